"""A `Transform` applied to one image in NumPy, for Grain, PyDataset and arrays in memory.

`keras_vit.data.transform_tf` gives the same pixels in tf.data. TensorFlow is not needed here.
"""

import functools
import io

import numpy as np

from keras_vit.data import geometry
from keras_vit.data.affine_map import affine
from keras_vit.data.eval_resize import tensorflow_resize
from keras_vit.data.randaugment import randaugment
from keras_vit.data.randomness import Purpose, uniform
from keras_vit.data.resize import import_pillow
from keras_vit.data.transform_checks import (
    check_key,
    is_flipped,
    to_range,
    too_small,
)


def apply(transform, image, key=None):
    """Applies a transform to one image.

    Args:
        transform: a `keras_vit.data.transform.Transform`.
        image: uint8, shape (height, width, channels), of any size.
        key: int64 (seed, epoch, index of the example); all randomness is a function of it. Not
            needed where `transform.is_random` is False.

    Returns:
        float32 of shape (*transform.image_size, channels), in `transform.value_range`.

    Raises:
        ValueError: no key for a random transform, another shape or dtype, or an image that is
            too small for its crop.

    Source: pp/ops_image.py of big_vision, input_pipeline.py of google-research/vision_transformer.
    """
    check_key(transform, key)
    image = _checked(image)
    if transform.crop == "inception":
        image = _cut(image, _inception_box(transform, *image.shape[:2], key))
    return _finish(transform, _crop(transform, image, key), key)


def apply_encoded(transform, encoded, key=None, channels=3):
    """Decodes an image file and applies a transform to it.

    Args:
        transform, key: as in `apply`.
        encoded: the bytes of the file.
        channels: 3 for RGB, 1 for grayscale.

    Returns:
        float32 of shape (*transform.image_size, channels).

    Raises:
        ValueError: as in `apply` and `decode`.
        ImportError: Pillow is not installed.
    """
    check_key(transform, key)
    box = None
    if transform.crop == "inception":
        box = functools.partial(_inception_box, transform, key=key)
    pixels = _decode(encoded, channels, box)
    return _finish(transform, _crop(transform, pixels, key), key)


def decode(encoded, channels=3):
    """The pixels of an image file, as TensorFlow decodes it.

    The first frame of an animation; transparency is dropped, palettes are resolved, 16 bits are
    cut to 8. The EXIF orientation is not applied, as in the authors' pipelines.

    Args:
        encoded: the bytes of a JPEG, PNG or another file that Pillow reads.
        channels: 3 for RGB, 1 for grayscale.

    Returns:
        uint8 of shape (height, width, channels).

    Raises:
        ValueError: damaged or unknown bytes.
        ImportError: Pillow is not installed.
    """
    return _decode(encoded, channels)


def _decode(encoded, channels, box=None):
    """Decodes the box of an image that `box(height, width)` names; all of it by default."""
    pillow = import_pillow()
    if channels not in (1, 3):
        raise ValueError(f"channels must be 1 or 3. Received: channels={channels!r}")
    try:
        with pillow.open(io.BytesIO(encoded)) as image:
            image = _with_channels(image, channels)
            if box is not None:
                top, left, height, width = box(image.height, image.width)
                image = image.crop((left, top, left + width, top + height))
            return np.asarray(image).reshape(image.height, image.width, channels)
    except MemoryError:
        raise
    # Pillow's decoders answer damaged files with errors of many unrelated types.
    except Exception as error:
        raise ValueError(
            f"The image cannot be decoded. Received: {len(encoded)} bytes that begin with "
            f"{bytes(encoded[:8])!r} ({type(error).__name__}: {error})"
        ) from error


def _with_channels(image, channels):
    sixteen_bits = image.mode == "I" and image.format in ("PNG", "PPM")
    if image.mode in ("I", "F") and not sixteen_bits:
        raise ValueError("32-bit pixels have no fixed range; save with 8 or 16 bits")
    if sixteen_bits or image.mode.startswith("I;16"):  # Pillow's convert would clip at 255
        pixels = np.asarray(image).astype(np.uint16) >> 8
        image = import_pillow().fromarray(pixels.astype(np.uint8))
    if channels == 1:
        image.draft("L", None)  # the decoder's own luma, where a JPEG has it
        return image if image.mode == "L" else image.convert("RGB").convert("L")
    return image if image.mode == "RGB" else image.convert("RGB")


def _checked(image):
    image = np.asarray(image)
    if image.dtype != np.uint8 or image.ndim != 3 or 0 in image.shape:
        raise ValueError(
            "image must be uint8 of shape (height, width, channels). "
            f"Received: {image.dtype} of shape {image.shape}"
        )
    return image


def _inception_box(transform, height, width, key):
    draws = uniform(key, Purpose.CROP, geometry.INCEPTION_DRAWS)
    box = geometry.inception_box(height, width, transform.area, transform.ratio, draws)
    return tuple(map(int, box))


def _crop(transform, image, key):
    """The part of the image that is kept, at its final size: uint8, or float32 if resized.

    Half of the images are mirrored on the way: an array that runs backwards is slow to read.
    """
    size, method = transform.image_size, transform.interpolation
    height, width = image.shape[:2]
    mirror = transform.flip and is_flipped(key)
    if transform.crop in ("inception", "squash"):  # the box has been cut out before
        return tensorflow_resize(image, size, method, mirror=mirror)
    if transform.crop == "pad_random":
        padding = transform.padding
        image = np.pad(image, ((padding, padding), (padding, padding), (0, 0)))
        if image.shape[0] < size[0] or image.shape[1] < size[1]:
            raise ValueError(too_small((height, width), transform))
        pixels = _cut(image, _window(transform, *image.shape[:2], key))
        return pixels[:, ::-1] if mirror else pixels
    new_size = (transform.resize_small, transform.resize_small)
    if not transform.crop.startswith("squash_"):
        new_size = tuple(map(int, geometry.covering_size(height, width, transform.resize_small)))
    window = _window(transform, *new_size, key)
    return tensorflow_resize(image, new_size, method, window, mirror)


def _window(transform, height, width, key):
    size = transform.image_size
    if "random" not in transform.crop:
        return geometry.center_window(height, width, size)
    window = geometry.random_window(height, width, size, uniform(key, Purpose.CROP, 2))
    return tuple(map(int, window))


def _cut(image, box):
    top, left, height, width = box
    return image[top : top + height, left : left + width]


def _finish(transform, pixels, key):
    """Affine map, whole grey levels, RandAugment, value range."""
    if transform.affine is not None:
        pixels = affine(pixels, key, *transform.affine)
    if transform.round_to_uint8 or transform.augments:
        # Nothing to clip: an average of bytes passes 255 by a rounding error at most.
        pixels = pixels.astype(np.uint8, copy=False)
    if transform.augments:
        pixels = randaugment(pixels, key, *transform.randaugment)
    return to_range(pixels, transform.value_range)
