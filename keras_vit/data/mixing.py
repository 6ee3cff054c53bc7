"""Mixup and CutMix: batches whose images and labels are mixed with their neighbours'.

The same in NumPy and in TensorFlow, by the type of what comes in. The partner of an image is the
one before it in the batch, of the first the last, as in big_vision.
"""

import functools

import numpy as np

from keras_vit.checks import positive_float
from keras_vit.data.arrays import is_tensorflow, namespace, tf
from keras_vit.data.randomness import Purpose, uniform

_LEVELS = 2**16  # how finely the share of the partner is drawn
_GRID = 2**14


def mix(images, labels, key, mixup=0.0, cutmix=0.0):
    """Mixes a batch as a recipe says.

    Args:
        images: float32, shape (batch, height, width, channels); an array or a tensor.
        labels: float32, shape (batch, classes), one-hot or with several classes each.
        key: int64 (seed, step), an array or a tensor as the images are.
        mixup: parameter of the beta distribution of `mixup`, 0 for none.
        cutmix: the same of `cutmix`. With both, each step is one of the two with equal probability.

    Returns:
        (images, labels) of the same shapes and dtypes.

    Raises:
        ValueError: negative parameters, or arrays that do not fit together.
    """
    if not cutmix:
        return _mixup_or_nothing(images, labels, key, mixup)
    if not mixup:
        return _cutmix(images, labels, key, cutmix)
    is_mixup = uniform(key, Purpose.OTHER, 1)[0] < 0.5
    branches = (
        lambda: _mixup(images, labels, key, mixup),
        lambda: _cutmix(images, labels, key, cutmix),
    )
    if is_tensorflow(is_mixup):
        return tf.cond(is_mixup, *branches)
    return branches[0]() if is_mixup else branches[1]()


def mixup(images, labels, key, alpha):
    """Mixes every image with its partner: a * image + (1 - a) * partner, the labels alike.

    One a is drawn per batch, from Beta(alpha, alpha), and then replaced by max(a, 1 - a), so that
    an image keeps at least half of itself.

    Args:
        images, labels, key: as in `mix`.
        alpha: a positive number; the authors use 0.2, 0.5 and 0.8.

    Returns:
        (images, labels).

    Source: `get_mixup`, utils.py of big_vision; https://arxiv.org/abs/1710.09412.
    """
    _check(images, labels)
    xp = namespace(images)
    draws = uniform(key, Purpose.MIXUP, 1)
    partner = xp.cast(_partner_share(draws[0], alpha), "float32")
    own = 1 - partner
    return tuple(x * own + xp.roll(x) * partner for x in (images, labels))


def cutmix(images, labels, key, alpha):
    """Puts a box of its partner into every image, and mixes the labels by its area.

    Per batch, the share of the box is drawn from Beta(alpha, alpha) and its centre uniformly; what
    reaches over the border is cut off, and the labels follow what is left.

    Args:
        images, labels, key: as in `mix`.
        alpha: a positive number; the paper uses 1.

    Returns:
        (images, labels).

    Source: `rand_bbox`, train.py of clovaai/CutMix-PyTorch; https://arxiv.org/abs/1905.04899.
    """
    _check(images, labels)
    xp = namespace(images)
    height, width = xp.size(images)
    top, bottom, left, right = _box(key, alpha, height, width)
    area = xp.cast((bottom - top) * (right - left), "float64")
    partner = xp.cast(area / xp.cast(height * width, "float64"), "float32")
    rows, columns = xp.arange(height)[:, None], xp.arange(width)[None]
    inside = (rows >= top) & (rows < bottom) & (columns >= left) & (columns < right)
    mixed = xp.where(inside[None, :, :, None], xp.roll(images), images)
    return mixed, labels * (1 - partner) + xp.roll(labels) * partner


_mixup, _cutmix = mixup, cutmix  # under names that the arguments of `mix` do not hide


def _mixup_or_nothing(images, labels, key, alpha):
    return _mixup(images, labels, key, alpha) if alpha else (images, labels)


def _box(key, alpha, height, width):
    """(top, bottom, left, right) of the partner's box, int32."""
    draws = uniform(key, Purpose.CUTMIX, 4)
    xp = namespace(draws)
    share = _partner_share(draws[0], alpha)
    share = xp.where(draws[1] < 0.5, share, 1 - share)
    bounds = []
    for draw, side in ((draws[2], height), (draws[3], width)):
        length = xp.cast(side, "float64")
        half = xp.floor(xp.floor(length * xp.sqrt(share)) / 2.0)
        center = xp.floor(draw * length)
        bounds += [xp.maximum(center - half, 0.0), xp.minimum(center + half, length)]
    return [xp.cast(bound, "int32") for bound in bounds]


def _partner_share(draw, alpha):
    """Turns a uniform number into min(a, 1 - a) of an a from Beta(alpha, alpha), float64."""
    xp = namespace(draw)
    return xp.take(_shares(positive_float(alpha, "alpha")), xp.cast(draw * _LEVELS, "int32"))


@functools.lru_cache(maxsize=8)
def _shares(alpha):
    """The quantiles of min(a, 1 - a): float64 of shape (_LEVELS,), each equally likely.

    A table, because rejection needs a loop, and because two libraries' logarithms and powers
    differ in the last bit. The density x^(alpha-1) (1-x)^(alpha-1) is integrated over
    s = x^alpha where alpha is less than 1, which takes away its pole at 0.
    """
    power = min(alpha, 1)
    s = np.linspace(0, 0.5**power, _GRID)
    x = s ** (1 / power)
    density = (2 * x) ** (alpha - power) * (2 - 2 * x) ** (alpha - 1)
    cumulative = np.concatenate([[0], np.cumsum(density[1:] + density[:-1])])
    wanted = (np.arange(_LEVELS) + 0.5) / _LEVELS
    return np.interp(wanted, cumulative / cumulative[-1], s) ** (1 / power)


def _check(images, labels):
    ranks = len(images.shape), len(labels.shape)
    if ranks != (4, 2) or "float" not in str(images.dtype) or "float" not in str(labels.dtype):
        raise ValueError(
            "images must be floats of shape (batch, height, width, channels) and labels one-hot "
            "floats of shape (batch, classes); mix after the value range is set. Received: images "
            f"of {images.dtype}, shape {tuple(images.shape)}, labels of {labels.dtype}, shape "
            f"{tuple(labels.shape)}"
        )
