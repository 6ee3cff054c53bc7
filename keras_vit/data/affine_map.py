"""Images turned, scaled and moved a little, alike in NumPy and TensorFlow."""

import math

import numpy as np

from keras_vit.data.arrays import namespace
from keras_vit.data.randomness import Purpose, uniform


def affine(pixels, key, rotation, scale, shift):
    """Turns, scales and moves an image at random, by one bilinear interpolation.

    Places outside of the image repeat its edge.

    Args:
        pixels: shape (height, width, channels), of known sizes; in NumPy also (batch, height,
            width, channels).
        key: of the example, as in `randomness.bits`; (batch, words) for a batch.
        rotation: the largest turn either way, in degrees.
        scale: the largest change of size either way, as a share below 1.
        shift: the largest move along each axis, as a share of height and width.

    Returns:
        float32 of the same shape.
    """
    *batch, height, width, channels = pixels.shape
    draws = 2.0 * uniform(key, Purpose.AFFINE, 4) - 1.0
    xp = namespace(draws)
    turn, grow, down, right = (draws[..., i][..., None, None] for i in range(4))
    angle, size = turn * math.radians(rotation), 1.0 + grow * scale
    y = np.arange(height, dtype=np.float64)[:, None] - (height - 1) / 2
    x = np.arange(width, dtype=np.float64)[None, :] - (width - 1) / 2
    # For each pixel of the result, the place in the image that it comes from.
    rows = (xp.cos(angle) * y - xp.sin(angle) * x) / size + down * (shift * height)
    columns = (xp.sin(angle) * y + xp.cos(angle) * x) / size + right * (shift * width)
    rows = xp.minimum(xp.maximum(rows + (height - 1) / 2, 0.0), height - 1.0)
    columns = xp.minimum(xp.maximum(columns + (width - 1) / 2, 0.0), width - 1.0)
    flat = xp.reshape(xp.cast(pixels, "float32"), (-1, channels))
    first = np.arange(batch[0])[:, None, None] * (height * width) if batch else 0.0
    return _bilinear(xp, flat, rows, columns, height, width, first)


def _bilinear(xp, flat, rows, columns, height, width, first):
    """The values of a (pixels, channels) image at fractional places; it begins at `first`."""
    top, left = xp.floor(rows), xp.floor(columns)
    bottom, right = xp.minimum(top + 1.0, height - 1.0), xp.minimum(left + 1.0, width - 1.0)
    down, across = (xp.cast(part, "float32")[..., None] for part in (rows - top, columns - left))

    def at(row, column):
        return xp.take(flat, xp.cast(row * width + column + first, "int64"))

    upper = (1.0 - across) * at(top, left) + across * at(top, right)
    lower = (1.0 - across) * at(bottom, left) + across * at(bottom, right)
    return (1.0 - down) * upper + down * lower
