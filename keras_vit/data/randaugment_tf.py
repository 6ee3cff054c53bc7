"""RandAugment on one image, in TensorFlow operations for tf.data."""

import functools

import numpy as np

from keras_vit.data import randaugment_tables as tables
from keras_vit.data.arrays import tf


def randaugment(image, key, operations=2, magnitude=10.0):
    """`keras_vit.data.randaugment.randaugment` on a tensor: the same pixels.

    Args:
        image: uint8 of a known shape (height, width, channels).
        key: int64 of shape (words,).
        operations: how many are applied, one after the other.
        magnitude: 0 and more.

    Returns:
        uint8 of the shape of `image`.
    """
    tables.check(operations, magnitude)
    shape = image.shape
    for index, reverse, places in tables.draw(key, operations):
        branches = [
            functools.partial(apply_operation, name, image, magnitude, reverse, places)
            for name in tables.OPERATIONS
        ]
        image = tf.ensure_shape(tf.switch_case(index, branches), shape)
    return image


def apply_operation(operation, image, magnitude, reverse=False, places=(0.5, 0.5)):
    """One operation: see `keras_vit.data.randaugment.apply_operation`."""
    size = tuple(image.shape[:2])
    if operation in tables.POINTWISE:
        return _look_up(tables.levels(operation, magnitude), image)
    if operation in tables.GEOMETRIC:
        both = [tables.places(operation, magnitude, way, size) for way in (False, True)]
        return _move(image, tf.gather(np.stack(both), tf.cast(reverse, tf.int32)))
    if operation == "Cutout":
        places = tf.unstack(tf.convert_to_tensor(places, tf.float64))
        return _cutout(image, tables.cutout_bounds(size, places, magnitude))
    if operation == "AutoContrast":
        return _by_channel(image, _stretched(image))
    if operation == "Equalize":
        return _by_channel(image, _equalized(image))
    blends = tables.blends(magnitude)
    if operation == "Contrast":
        mean = tf.reduce_sum(tf.cast(_luma(image), tf.int64)) // (size[0] * size[1])
        return _look_up(tf.gather(blends, mean), image)
    degenerate = _luma(image) if operation == "Color" else _blurred(image)
    return tf.gather(blends.ravel(), degenerate * 256 + tf.cast(image, tf.int32))


def _look_up(levels, image):
    return tf.gather(levels, tf.cast(image, tf.int32))


def _by_channel(image, levels):
    """Looks grey levels up; `levels` has shape (channels, 256)."""
    return tf.gather(tf.reshape(levels, [-1]), _numbered_by_channel(image))


def _numbered_by_channel(image):
    """Grey levels that differ from channel to channel: 0..255, 256..511 and so on."""
    return tf.cast(image, tf.int32) + 256 * np.arange(image.shape[-1], dtype=np.int32)


def _move(image, places):
    height, width, channels = image.shape
    outside = np.full((1, channels), tables.GRAY, np.uint8)
    pixels = tf.concat([tf.reshape(image, [-1, channels]), outside], 0)
    return tf.reshape(tf.gather(pixels, places), [height, width, channels])


def _cutout(image, bounds):
    top, bottom, left, right = bounds
    row, column = np.indices(image.shape[:2], dtype=np.int32)
    inside = (row >= top) & (row < bottom) & (column >= left) & (column < right)
    return tf.where(inside[..., None], tf.constant(tables.GRAY, tf.uint8), image)


def _stretched(image):
    pixels = tf.cast(image, tf.int32)
    low, high = (f(pixels, [0, 1])[:, None] for f in (tf.reduce_min, tf.reduce_max))
    old = np.arange(256, dtype=np.int32)[None]
    new = tf.maximum(old - low, 0) * 255 // tf.maximum(high - low, 1)
    return _bytes(tf.where(high > low, new, old))


def _equalized(image):
    channels = image.shape[-1]
    size = 256 * channels
    numbered = tf.reshape(_numbered_by_channel(image), [-1])
    counts = tf.math.bincount(numbered, minlength=size, maxlength=size)
    counts = tf.reshape(counts, [channels, 256])
    brightest = tf.cast(tf.reduce_max(image, [0, 1]), tf.int32)
    last = tf.gather(counts, brightest, batch_dims=1)
    step = (tf.reduce_sum(counts, 1) - last) // 255
    step = step[:, None]
    below = tf.cumsum(counts, axis=1, exclusive=True)
    old = np.arange(256, dtype=np.int32)[None]
    levels = (below + step // 2) // tf.maximum(step, 1)
    return _bytes(tf.where(step == 0, old, levels))


def _bytes(levels):
    return tf.cast(tf.clip_by_value(levels, 0, 255), tf.uint8)


def _luma(image):
    """int32 of shape (height, width, 1): `keras_vit.data.resize.convert_channels`."""
    pixels = tf.cast(image, tf.int32)
    if image.shape[-1] != 3:
        return pixels[..., :1]
    red, green, blue = tf.split(pixels, 3, axis=-1)
    return tf.bitwise.right_shift(19595 * red + 38470 * green + 7471 * blue + 2**15, 16)


def _blurred(image):
    """int32 of the shape of `image`."""
    pixels = tf.cast(image, tf.int32)
    rows = pixels[:-2] + pixels[1:-1] + pixels[2:]
    total = rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:] + 4 * pixels[1:-1, 1:-1]
    border = np.ones(image.shape, bool)
    border[1:-1, 1:-1] = False
    return tf.where(border, pixels, tf.pad(total // 13, [[1, 1], [1, 1], [0, 0]]))
