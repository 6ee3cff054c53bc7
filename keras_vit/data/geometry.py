"""Which part of an image a crop takes: sizes and boxes, alike in NumPy and TensorFlow.

Heights, widths and offsets may be ints, arrays or tensors; all arithmetic is in float64, in
which whole numbers and square roots are exact, so that both libraries find the same box.
"""

import numpy as np

from keras_vit.data.arrays import namespace

ATTEMPTS = 100  # of `tf.image.sample_distorted_bounding_box`
INCEPTION_DRAWS = 4 * ATTEMPTS
_BELOW_HALF = 0.5 - 1e-7  # the kernel's epsilon: a width may not round up past the image


def inception_box(height, width, area, ratio, draws):
    """A random box of an image, as for the training of Inception, BiT and ViT.

    The aspect ratio is uniform in `ratio`, then the height is uniform over the whole numbers for
    which the area is in `area`, then the place. What does not fit into the image is drawn again;
    after 100 attempts the whole image is taken. Large boxes are therefore rarer than with a
    uniform area, and the last row and column are left out unless the box spans the image: both as
    in TensorFlow.

    Args:
        height, width: of the image, in pixels.
        area: smallest and largest share of the image.
        ratio: smallest and largest width / height.
        draws: float64 in [0, 1), shape (`INCEPTION_DRAWS`,).

    Returns:
        (top, left, height, width) of the box, int64.

    Source: `tf.image.sample_distorted_bounding_box` with `min_object_covered=0`,
    sample_distorted_bounding_box_op.cc of TensorFlow.
    """
    xp = namespace(draws)
    height, width = (xp.cast(side, "float64") for side in (height, width))
    aspect, size, down, right = (draws[start::4] for start in range(4))
    aspect = aspect * (ratio[1] - ratio[0]) + ratio[0]
    smallest, largest = (share * (height * width) for share in area)
    low = xp.rint(xp.sqrt(smallest / aspect))
    high = xp.minimum(_tallest(xp, width, aspect, largest), height)
    low = xp.minimum(low, high)
    tall = low + xp.floor(size * (high - low + 1.0))
    wide = xp.rint(tall * aspect)
    # Where rounding has left the bounds, one row more or less is tried, in this order.
    tall = xp.where(tall * wide < smallest, tall + 1.0, tall)
    wide = xp.rint(tall * aspect)
    tall = xp.where(tall * wide > largest, tall - 1.0, tall)
    wide = xp.rint(tall * aspect)
    covered = tall * wide
    fits = (covered >= smallest) & (covered <= largest) & (covered >= 1.0)
    fits = fits & (tall <= height) & (wide <= width)
    top = xp.floor(down * (height - tall))
    left = xp.floor(right * (width - wide))
    return _first_fit(xp, fits, (top, left, tall, wide), (height, width))


def _tallest(xp, width, aspect, largest):
    """The greatest height whose area and whose rounded width are not too large."""
    tallest = xp.rint(xp.sqrt(largest / aspect))
    limit = xp.floor((width + _BELOW_HALF) / aspect)
    limit = xp.where(xp.rint(limit * aspect) > width, limit - 1.0, limit)
    return xp.where(xp.rint(tallest * aspect) > width, limit, tallest)


def _first_fit(xp, fits, boxes, image):
    """The first box that fits, or the whole image."""
    first = xp.first_true(fits)
    found = xp.take(fits, first)
    whole = (0.0 * image[0], 0.0 * image[1], *image)
    chosen = (xp.where(found, xp.take(box, first), side) for box, side in zip(boxes, whole))
    return tuple(xp.cast(value, "int64") for value in chosen)


def random_window(height, width, size, draws):
    """A window of a fixed size, each of its places equally likely: `tf.image.random_crop`.

    Args:
        height, width: of the image, in pixels.
        size: (height, width) of the window, no larger than the image.
        draws: float64 in [0, 1), at least two.

    Returns:
        (top, left, height, width), int64 but for `size`.
    """
    xp = namespace(draws)
    top, left = (
        xp.cast(xp.floor(draw * (xp.cast(side, "float64") - float(wanted - 1))), "int64")
        for draw, side, wanted in zip((draws[0], draws[1]), (height, width), size)
    )
    return top, left, *size


def center_window(height, width, size):
    """The middle of an image; an odd margin is smaller above and on the left, as big_vision's."""
    return (height - size[0]) // 2, (width - size[1]) // 2, *size


def covering_size(height, width, shorter):
    """The size of an image once its shorter side is `shorter`: (height, width), int64.

    In float32 and in this order, because the rounding decides about a pixel.

    Source: `resize_small`, pp/ops_image.py of big_vision.
    """
    xp = namespace(height)
    sides = [xp.cast(side, "float32") for side in (height, width)]
    factor = np.float32(shorter) / xp.minimum(*sides)
    return tuple(xp.cast(xp.rint(side * factor), "int64") for side in sides)
