"""A `Transform` applied to a batch of images of one size at once, in NumPy.

Bit for bit what `keras_vit.data.transform_numpy` makes of each image by itself. Of images of a few
hundred pixels that one spends its time in Python, not on pixels.
"""

import numpy as np

from keras_vit.data import geometry
from keras_vit.data.affine_map import affine
from keras_vit.data.eval_resize import tensorflow_resize
from keras_vit.data.randomness import Purpose, uniform
from keras_vit.data.transform_checks import is_flipped, to_range, too_small

_CROPS = ("squash", "pad_random")


def applies_to(transform):
    """Whether `apply` knows what a transform does."""
    return transform.crop in _CROPS and not transform.augments


def apply(transform, images, keys):
    """Applies a transform to images.

    Args:
        transform: a `keras_vit.data.transform.Transform` that `applies_to` accepts.
        images: uint8, shape (batch, height, width, channels).
        keys: int64 of shape (batch, 3), the (seed, epoch, index) of each image.

    Returns:
        float32 of shape (batch, *transform.image_size, channels), in `transform.value_range`.

    Raises:
        ValueError: images that are too small for the crop.
    """
    if transform.crop == "squash":
        pixels = _resized(images, transform.image_size, transform.interpolation)
    else:
        pixels = _windows(transform, images, keys)
    if transform.flip:
        mirrored = is_flipped(keys)
        pixels[mirrored] = pixels[mirrored, :, ::-1]
    if transform.affine is not None:
        pixels = affine(pixels, keys, *transform.affine)
    if transform.round_to_uint8:
        pixels = pixels.astype(np.uint8, copy=False)
    return to_range(pixels, transform.value_range)


def _resized(images, size, method):
    """All images as the channels of one, since each channel is resized by itself."""
    count, height, width, channels = images.shape
    one = np.moveaxis(images, 0, 2).reshape(height, width, count * channels)
    resized = tensorflow_resize(one, size, method).reshape(*size, count, channels)
    return np.ascontiguousarray(np.moveaxis(resized, 2, 0))


def _windows(transform, images, keys):
    """A random window of each image, with zeros around it."""
    size, padding = transform.image_size, transform.padding
    padded = np.pad(images, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    height, width = padded.shape[1:3]
    if height < size[0] or width < size[1]:
        raise ValueError(too_small(images.shape[1:3], transform))
    draws = uniform(keys, Purpose.CROP, 2)
    top, left, *_ = geometry.random_window(height, width, size, draws.T)
    rows, columns = (start[:, None] + np.arange(side) for start, side in zip((top, left), size))
    return padded[np.arange(len(images))[:, None, None], rows[:, :, None], columns[:, None]]
