"""What the NumPy and the TensorFlow transforms share: checks, the flip, and the scale of values."""

import numpy as np

from keras_vit.data.randomness import Purpose, uniform


def check_key(transform, key):
    """Raises ValueError where a random transform has no key to be random by."""
    if key is None and transform.is_random:
        raise ValueError(
            "A random transform needs the key of its example, int64 (seed, epoch, index). "
            f"Received: key=None, {transform}"
        )


def is_flipped(key):
    """Whether the example of a key is mirrored: a bool, or one for each of several keys."""
    return uniform(key, Purpose.FLIP, 1)[..., 0] < 0.5


def value_scale(value_range):
    """(shift, factor) such that (x + shift) * factor maps 0..255 to a range, in float32.

    A product, not a quotient: TensorFlow turns division by a constant into it when it compiles
    a graph, and NumPy must round alike.
    """
    low, high = value_range
    return np.float32(low * 255 / (high - low)), np.float32((high - low) / 255)


def to_range(pixels, value_range):
    """Pixels of 0..255 in NumPy as float32 in a range."""
    shift, factor = value_scale(value_range)
    pixels = pixels + shift
    pixels *= factor
    return pixels


def too_small(size, transform):
    """The message for an image that a padded window does not fit into."""
    return (
        f"crop='pad_random' cuts {transform.image_size} from an image with {transform.padding} "
        f"pixels around it, which must be as large. Received: an image of {tuple(size)}; lower "
        "image_size, raise padding, or use another crop"
    )
