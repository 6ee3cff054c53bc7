"""Which part of an image is kept, and at what size: the crops of the authors' codebases.

A crop is a function `(transform, (height, width), rng)` that returns the box to cut out of the
image, the size to resize it to, and the window of the result to keep, or None for all of it. Boxes
and windows are (top, left, height, width).
"""

import math

from keras_vit.data.resize import center_window, covering_size

_ATTEMPTS = 100  # of `tf.image.sample_distorted_bounding_box`


def inception(transform, sides, rng):
    return inception_box(*sides, transform.area, transform.ratio, rng), transform.image_size, None


def resize_small_random(transform, sides, rng):
    size = covering_size(sides, (transform.resize_small,) * 2)
    return (0, 0, *sides), size, random_window(size, transform.image_size, rng)


def squash_random(transform, sides, rng):
    size = (transform.resize_small,) * 2
    return (0, 0, *sides), size, random_window(size, transform.image_size, rng)


def pad_random(transform, sides, rng):
    padded = [side + 2 * transform.padding for side in sides]
    size = transform.image_size
    if padded[0] < size[0] or padded[1] < size[1]:
        raise ValueError(
            f"crop='pad_random' cuts {size} from an image with {transform.padding} pixels around "
            f"it, which must be as large. Received: an image of {tuple(sides)}; lower image_size, "
            "raise padding, or use another crop"
        )
    top, left, *_ = random_window(padded, size, rng)
    return (top - transform.padding, left - transform.padding, *size), size, None


def resize_small_center(transform, sides, rng):
    size = covering_size(sides, (transform.resize_small,) * 2)
    return (0, 0, *sides), size, center_window(size, transform.image_size)


def squash_center(transform, sides, rng):
    size = (transform.resize_small,) * 2
    return (0, 0, *sides), size, center_window(size, transform.image_size)


def squash(transform, sides, rng):
    return (0, 0, *sides), transform.image_size, None


def random_window(sides, size, rng):
    """A window of a size within (height, width), each of its places equally likely."""
    top, left = (int(rng.integers(side - wanted + 1)) for side, wanted in zip(sides, size))
    return top, left, *size


def inception_box(height, width, area, ratio, rng):
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
        rng: a `numpy.random.Generator`.

    Returns:
        (top, left, height, width) of the box.

    Source: `tf.image.sample_distorted_bounding_box` with `min_object_covered=0`,
    sample_distorted_bounding_box_op.cc of TensorFlow.
    """
    smallest, largest = (share * height * width for share in area)
    for _ in range(_ATTEMPTS):
        aspect = rng.uniform(*ratio)
        low, high = (round(math.sqrt(share / aspect)) for share in (smallest, largest))
        if round(high * aspect) > width:
            high = int((width + 0.5 - 1e-7) / aspect)  # a width may not round up past the image
            high -= round(high * aspect) > width
        high = min(high, height)
        tall = min(low, high)
        tall += int(rng.integers(high - tall + 1))
        # Where rounding has left the bounds, one row more or less is tried, in this order.
        tall += tall * round(tall * aspect) < smallest
        tall -= tall * round(tall * aspect) > largest
        wide = round(tall * aspect)
        if smallest <= tall * wide <= largest and 0 < tall <= height and 0 < wide <= width:
            top = int(rng.integers(height - tall)) if tall < height else 0
            left = int(rng.integers(width - wide)) if wide < width else 0
            return top, left, tall, wide
    return 0, 0, height, width


CROPS = {
    crop.__name__: crop
    for crop in (
        inception,
        resize_small_random,
        squash_random,
        pad_random,
        resize_small_center,
        squash_center,
        squash,
    )
}
