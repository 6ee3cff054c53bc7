"""RandAugment on one image, in NumPy."""

import numpy as np

from keras_vit.data import randaugment_tables as tables
from keras_vit.data.resize import convert_channels


def randaugment(image, key, operations=2, magnitude=10.0):
    """Applies operations drawn from the sixteen of the authors, each equally likely.

    All have the same magnitude; rotations, shears and shifts go either way with equal
    probability. Shifts (100 pixels at magnitude 10) and cut-outs (80 pixels wide) are the
    authors' constants, made for images of about 224 pixels.

    Args:
        image: uint8, shape (height, width, channels).
        key: int64 of shape (words,), such as (seed, epoch, index).
        operations: how many are applied, one after the other.
        magnitude: 0 and more; the authors use 10, 15 and 20.

    Returns:
        uint8 of the shape of `image`. `randaugment_tf.randaugment` gives the same.

    Raises:
        ValueError: `operations` or `magnitude` is negative or no number.

    Source: `distort_image_with_randaugment`, pp/archive/autoaugment.py of big_vision;
    https://arxiv.org/abs/1909.13719. Where the authors' arithmetic depends on the order in which
    floats are added, whole numbers are used: a pixel may differ from theirs by one grey level.
    Solarize follows their text, image < threshold, also for thresholds that no byte can hold.
    """
    tables.check(operations, magnitude)
    for index, reverse, places in tables.draw(key, operations):
        image = apply_operation(tables.OPERATIONS[index], image, magnitude, bool(reverse), places)
    return image


def apply_operation(operation, image, magnitude, reverse=False, places=(0.5, 0.5)):
    """Applies one operation.

    Args:
        operation: one of `randaugment_tables.OPERATIONS`.
        image: uint8, shape (height, width, channels).
        magnitude: 0 and more.
        reverse: whether a rotation, shear or shift goes the other way.
        places: where a cut-out is: two numbers in [0, 1), down and right.

    Returns:
        uint8 of the shape of `image`.
    """
    if operation in tables.POINTWISE:
        return _translate(image, tables.levels(operation, magnitude))
    if operation in tables.GEOMETRIC:
        return _move(image, tables.places(operation, magnitude, reverse, image.shape[:2]))
    if operation == "Cutout":
        return _cutout(image, tables.cutout_bounds(image.shape[:2], places, magnitude))
    if operation == "AutoContrast":
        return _by_channel(image, [_stretched(plane) for plane in _planes(image)])
    if operation == "Equalize":
        return _by_channel(image, [_equalized(plane) for plane in _planes(image)])
    blends = tables.blends(magnitude)
    if operation == "Contrast":
        luma = _luma(image)
        return _translate(image, blends[luma.sum(dtype=np.int64) // luma.size])
    degenerate = _luma(image) if operation == "Color" else _blurred(image)
    return blends.ravel().take(degenerate * np.uint16(256) + image)


def _translate(image, levels):
    """Looks grey levels up; the fastest way there is to do it without a compiler."""
    return np.frombuffer(image.tobytes().translate(levels.tobytes()), np.uint8).reshape(image.shape)


def _planes(image):
    return np.moveaxis(image, -1, 0)


def _by_channel(image, levels):
    return np.stack([_translate(plane, new) for plane, new in zip(_planes(image), levels)], -1)


def _move(image, places):
    height, width, channels = image.shape
    pixels = np.empty((height * width + 1, channels), np.uint8)
    pixels[:-1] = image.reshape(-1, channels)
    pixels[-1] = tables.GRAY
    return pixels.take(places, 0).reshape(image.shape)


def _cutout(image, bounds):
    top, bottom, left, right = bounds
    image = image.copy()
    image[top:bottom, left:right] = tables.GRAY
    return image


def _stretched(plane):
    """The grey levels that let a channel use the whole range."""
    low, high = int(plane.min()), int(plane.max())
    old = np.arange(256)
    new = old if low == high else (old - low).clip(0) * 255 // (high - low)
    return new.clip(0, 255).astype(np.uint8)


def _equalized(plane):
    """The grey levels that make the histogram of a channel flat."""
    counts = np.bincount(plane.ravel(), minlength=256)
    step = (plane.size - counts[np.flatnonzero(counts)[-1]]) // 255
    if not step:
        return np.arange(256, dtype=np.uint8)
    below = np.cumsum(counts) - counts
    levels = (below + step // 2) // step
    return levels.clip(0, 255).astype(np.uint8)


def _luma(image):
    """Brightness, uint8 of shape (height, width, 1)."""
    return convert_channels(image, 1) if image.shape[-1] == 3 else image[..., :1]


def _blurred(image):
    """3 x 3 pixels averaged, the middle one counting five times; the border stays as it is."""
    wide = image.astype(np.uint16)
    rows = wide[:-2] + wide[1:-1] + wide[2:]
    total = rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:] + 4 * wide[1:-1, 1:-1]
    blurred = image.copy()
    blurred[1:-1, 1:-1] = total // 13
    return blurred
