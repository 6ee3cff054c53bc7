"""Mixup and CutMix: a batch whose images and labels are mixed with those of their partners.

The partner of an image is the image before it in the batch, or the last image for the first. One
share holds for the whole batch, as in big_vision.
"""

import numpy as np


def mix(batch, rng, mixup_alpha=0.0, cutmix_alpha=0.0):
    """Mixes (images, labels, notes) by `mixup` or `cutmix`; of two alphas, each is equally likely.

    Images are uint8 or float32 of shape (batch, height, width, channels), and float32 where they
    were blended; labels are float32 of shape (batch, classes). An alpha of 0 means no mixing.
    """
    images, labels, notes = batch
    if cutmix_alpha and (not mixup_alpha or rng.random() < 0.5):
        return *cutmix(images, labels, rng, cutmix_alpha), notes
    if mixup_alpha:
        return *mixup(images, labels, rng, mixup_alpha), notes
    return batch


def mixup(images, labels, rng, alpha):
    """Mixes every image with its partner: a * image + (1 - a) * partner, the labels alike.

    a is drawn from Beta(alpha, alpha) and replaced by max(a, 1 - a), so that an image keeps at
    least half of itself. The authors use alpha = 0.2, 0.5 and 0.8. The results are float32.

    Source: `get_mixup`, utils.py of big_vision; https://arxiv.org/abs/1710.09412.
    """
    a = rng.beta(alpha, alpha)
    a = np.float32(max(a, 1 - a))
    return _blended(images, a), _blended(labels, a)


def cutmix(images, labels, rng, alpha):
    """Puts a box of its partner into every image, and mixes the labels by its area.

    The share of the box is drawn from Beta(alpha, alpha), with alpha = 1 in the paper, and its
    centre uniformly. The box is cut at the border, and the labels follow the area that is left.

    Source: `rand_bbox`, train.py of clovaai/CutMix-PyTorch; https://arxiv.org/abs/1905.04899.
    """
    sides = images.shape[1:3]
    share = np.sqrt(1 - rng.beta(alpha, alpha))
    halves = [int(side * share) // 2 for side in sides]
    centers = [int(rng.integers(side)) for side in sides]
    rows, columns = (slice(max(c - half, 0), c + half) for c, half in zip(centers, halves))
    mixed = images.copy()
    mixed[:, rows, columns] = np.roll(images, 1, axis=0)[:, rows, columns]
    covered = np.float32(mixed[0, rows, columns, 0].size / (sides[0] * sides[1]))
    return mixed, _blended(labels, 1 - covered)


def _blended(batch, share):
    """`share` of each image or label, and 1 - `share` of its partner's."""
    return batch * share + np.roll(batch, 1, axis=0) * (1 - share)
