"""Mixup and CutMix: images and labels of a batch are mixed with their neighbours'.

The partner of an image is the one before it in the batch, of the first the last, and one share
holds for the whole batch, as in big_vision.
"""

import numpy as np


def mix(images, labels, rng, mixup_alpha=0.0, cutmix_alpha=0.0):
    """Mixes a batch as a recipe says.

    Args:
        images: uint8 or float32, shape (batch, height, width, channels).
        labels: float32, shape (batch, classes), one-hot or with several classes each.
        rng: a `numpy.random.Generator`.
        mixup_alpha: parameter of the Beta distribution of `mixup`, 0 for none.
        cutmix_alpha: the same of `cutmix`. With both, a batch gets one of the two, each equally
            likely.

    Returns:
        (images, labels) of the same shapes; the images are float32 where they were blended.
    """
    if cutmix_alpha and (not mixup_alpha or rng.random() < 0.5):
        return cutmix(images, labels, rng, cutmix_alpha)
    if mixup_alpha:
        return mixup(images, labels, rng, mixup_alpha)
    return images, labels


def mixup(images, labels, rng, alpha):
    """Mixes every image with its partner: a * image + (1 - a) * partner, the labels alike.

    a is drawn from Beta(alpha, alpha) and replaced by max(a, 1 - a), so that an image keeps at
    least half of itself.

    Args:
        images, labels, rng: as in `mix`.
        alpha: a positive number; the authors use 0.2, 0.5 and 0.8.

    Returns:
        (images, labels), float32.

    Source: `get_mixup`, utils.py of big_vision; https://arxiv.org/abs/1710.09412.
    """
    a = rng.beta(alpha, alpha)
    own = np.float32(max(a, 1 - a))
    return tuple(x * own + np.roll(x, 1, axis=0) * (1 - own) for x in (images, labels))


def cutmix(images, labels, rng, alpha):
    """Puts a box of its partner into every image, and mixes the labels by its area.

    The share of the box is drawn from Beta(alpha, alpha) and its centre uniformly; what reaches
    over the border is cut off, and the labels follow what is left.

    Args:
        images, labels, rng: as in `mix`.
        alpha: a positive number; the paper uses 1.

    Returns:
        (images, labels), of the dtypes they had.

    Source: `rand_bbox`, train.py of clovaai/CutMix-PyTorch; https://arxiv.org/abs/1905.04899.
    """
    height, width = images.shape[1:3]
    side = np.sqrt(1 - rng.beta(alpha, alpha))
    bounds = []
    for length in (height, width):
        half, center = int(length * side) // 2, int(rng.integers(length))
        bounds.append(slice(max(center - half, 0), min(center + half, length)))
    box = (slice(None), *bounds)
    mixed = images.copy()
    mixed[box] = np.roll(images, 1, axis=0)[box]
    share = np.float32(mixed[box][0, ..., 0].size / (height * width))
    return mixed, labels * (1 - share) + np.roll(labels, 1, axis=0) * share
