"""RandAugment's operations as tables, computed once in NumPy and looked up by every pipeline.

An operation changes either values (a table of grey levels) or places (a table of which pixel
comes from where). What depends on the image itself is in `randaugment` and `randaugment_tf`.

Source: pp/archive/autoaugment.py of big_vision, a fork of models/official/efficientnet/
autoaugment.py of tensorflow/tpu; Cubuk et al., RandAugment, https://arxiv.org/abs/1909.13719.
"""

import functools
import math

import numpy as np

from keras_vit.data.arrays import namespace
from keras_vit.data.randomness import Purpose, uniform

OPERATIONS = (
    "AutoContrast",
    "Equalize",
    "Invert",
    "Rotate",
    "Posterize",
    "Solarize",
    "Color",
    "Contrast",
    "Brightness",
    "Sharpness",
    "ShearX",
    "ShearY",
    "TranslateX",
    "TranslateY",
    "Cutout",
    "SolarizeAdd",
)
GEOMETRIC = ("Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY")
POINTWISE = ("Invert", "Posterize", "Solarize", "SolarizeAdd", "Brightness")
GRAY = 128  # what comes in where nothing is left, and what a cut-out shows
_DRAWS = 4  # per operation: which, direction, two places


def check(operations, magnitude):
    """Raises ValueError unless `operations` and `magnitude` make a RandAugment."""
    if isinstance(operations, bool) or not isinstance(operations, int) or operations < 0:
        raise ValueError(
            f"operations must be a whole number >= 0, such as 2. Received: {operations!r}."
        )
    if isinstance(magnitude, bool) or not 0 <= magnitude < math.inf:
        raise ValueError(f"magnitude must be a number >= 0, such as 10. Received: {magnitude!r}.")


def draw(key, operations):
    """Which operations to apply to the example of a key, in order.

    Args:
        key: int64 of shape (words,), an array or a tensor.
        operations: how many.

    Returns:
        A list of (index into `OPERATIONS`, whether its direction is reversed, two numbers in
        [0, 1) for its place), each scalar an array or a tensor as the key is.
    """
    if not operations:
        return []
    numbers = uniform(key, Purpose.RANDAUGMENT, _DRAWS * operations)
    xp = namespace(numbers)
    chosen = []
    for start in range(0, _DRAWS * operations, _DRAWS):
        which, direction, down, right = (numbers[start + offset] for offset in range(_DRAWS))
        index = xp.cast(xp.floor(which * float(len(OPERATIONS))), "int32")
        chosen.append((index, direction < 0.5, (down, right)))
    return chosen


@functools.lru_cache(maxsize=64)
def levels(operation, magnitude):
    """What a pointwise operation makes of each grey level: uint8 of shape (256,)."""
    level = magnitude / 10
    old = np.arange(256)
    if operation == "Invert":
        new = 255 - old
    elif operation == "Posterize":  # TensorFlow shifts a byte by 7 bits at most
        shift = min(max(8 - int(level * 4), 0), 7)
        new = old >> shift << shift
    elif operation == "Solarize":
        new = np.where(old < int(level * 256), old, 255 - old)
    elif operation == "SolarizeAdd":
        new = np.where(old < 128, np.clip(old + int(level * 110), 0, 255), old)
    else:  # Brightness mixes with black
        new = blends(magnitude)[0]
    return _frozen(new.astype(np.uint8))


@functools.lru_cache(maxsize=8)
def blends(magnitude):
    """The mixture of two grey levels: uint8 of shape (256, 256), [degenerate, image].

    The share of the image goes from 0.1 at magnitude 0 over 1 at 5 to 1.9 at 10, and beyond:
    what leaves the range is clipped. Fractions are dropped.
    """
    factor = np.float32(magnitude / 10 * 1.8 + 0.1)
    degenerate, image = np.arange(256, dtype=np.float32)[:, None], np.arange(256, dtype=np.float32)
    mixed = degenerate + factor * (image - degenerate)
    return _frozen(np.clip(mixed, 0, 255).astype(np.uint8))


def cutout_half(magnitude):
    """Half the side of the square that is cut out, in pixels."""
    return int(magnitude / 10 * 40)


def cutout_bounds(size, places, magnitude):
    """The square that is cut out, as far as it lies in the image: (top, bottom, left, right).

    Its centre is any pixel, each equally likely.

    Args:
        size: (height, width) of the image.
        places: two numbers in [0, 1), arrays or tensors.
        magnitude: of RandAugment.
    """
    xp = namespace(places[0])
    half = cutout_half(magnitude)
    bounds = []
    for side, place in zip(size, places):
        center = xp.cast(xp.floor(place * float(side)), "int32")
        bounds += [xp.maximum(center - half, 0), xp.minimum(center + half, side)]
    return tuple(bounds)


@functools.lru_cache(maxsize=64)
def places(operation, magnitude, reverse, size):
    """Where the pixels of a moved image come from.

    Args:
        operation: one of `GEOMETRIC`.
        magnitude: of RandAugment.
        reverse: whether it goes the other way.
        size: (height, width) of the image.

    Returns:
        int32 of shape (height * width,): the place of a pixel in the flattened image, and
        height * width where there is none. The nearest pixel is taken, as in
        `tfa.image.transform`, whose arithmetic this is.
    """
    height, width = size
    a, b, c, d, e, f = np.array(_matrix(operation, magnitude, reverse, size), np.float32)
    y, x = np.indices(size, dtype=np.float32)
    column = _round_half_away(a * x + b * y + c)
    row = _round_half_away(d * x + e * y + f)
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    return _frozen(np.where(inside, row * width + column, height * width).ravel().astype(np.int32))


def _matrix(operation, magnitude, reverse, size):
    """The six numbers of (x, y) -> (a x + b y + c, d x + e y + f), from new places to old ones."""
    level = magnitude / 10 * (-1 if reverse else 1)
    if operation == "Rotate":
        return _rotation(np.float32(math.radians(level * 30)), size)
    return {
        "ShearX": (1, level * 0.3, 0, 0, 1, 0),
        "ShearY": (1, 0, 0, level * 0.3, 1, 0),
        "TranslateX": (1, 0, level * 100, 0, 1, 0),
        "TranslateY": (1, 0, 0, 0, 1, level * 100),
    }[operation]


def _rotation(angle, size):
    """About the middle of the image, in float32: `angles_to_projective_transforms` of tfa."""
    bottom, right = (np.float32(side - 1) for side in size)
    cos, sin = np.cos(angle), np.sin(angle)
    half = np.float32(2)
    across = (right - (cos * right - sin * bottom)) / half
    down = (bottom - (sin * right + cos * bottom)) / half
    return cos, -sin, across, sin, cos, down


def _round_half_away(x):
    """C's `round`."""
    whole = np.trunc(x)
    return (whole + np.where(np.abs(x - whole) >= 0.5, np.sign(x), 0)).astype(np.int64)


def _frozen(table):
    """A table that its users cannot change, because they share it."""
    table.flags.writeable = False
    return table
