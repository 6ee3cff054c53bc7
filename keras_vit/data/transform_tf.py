"""A `Transform` applied to one image in TensorFlow operations, for `tf.data.Dataset.map`.

`keras_vit.data.transform_numpy` gives the same pixels without TensorFlow.
"""

from keras_vit.data import geometry
from keras_vit.data.affine_map import affine
from keras_vit.data.arrays import as_written, tf
from keras_vit.data.randaugment_tf import randaugment
from keras_vit.data.randomness import Purpose, uniform
from keras_vit.data.transform_checks import (
    check_key,
    is_flipped,
    too_small,
    value_scale,
)

_JPEG = {"dct_method": "INTEGER_ACCURATE"}  # the method of Pillow, OpenCV and PyTorch


@as_written
def apply(transform, image, key=None):
    """Applies a transform to one image.

    Args:
        transform: a `keras_vit.data.transform.Transform`.
        image: uint8 tensor of shape (height, width, channels), of any size, also unknown ones.
        key: int64 tensor (seed, epoch, index of the example); all randomness is a function of it.
            Not needed where `transform.is_random` is False.

    Returns:
        float32 tensor of static shape (*transform.image_size, channels).

    Raises:
        ValueError: no key for a random transform, or another dtype or rank.
        tf.errors.InvalidArgumentError: as it runs, an image that is too small for its crop.
    """
    check_key(transform, key)
    image = tf.convert_to_tensor(image)
    if image.dtype != tf.uint8 or image.shape.rank != 3:
        raise ValueError(
            "image must be uint8 of shape (height, width, channels). "
            f"Received: {image.dtype.name} of shape {image.shape}"
        )
    key = None if key is None else tf.convert_to_tensor(key, tf.int64)
    return _finish(transform, _crop(transform, image, key), key)


@as_written
def apply_encoded(transform, encoded, key=None, channels=3):
    """Decodes an image file and applies a transform to it.

    Of a JPEG only the box of an inception crop is decoded.

    Args:
        transform, key: as in `apply`.
        encoded: scalar string tensor, the bytes of the file.
        channels: 3 for RGB, 1 for grayscale.

    Returns:
        float32 tensor of static shape (*transform.image_size, channels).

    Raises:
        ValueError: no key for a random transform, or other channels.
        tf.errors.InvalidArgumentError: as it runs, bytes that are no image.
    """
    check_key(transform, key)
    if channels not in (1, 3):
        raise ValueError(f"channels must be 1 or 3. Received: channels={channels!r}")
    if transform.crop != "inception":
        return apply(transform, decode(encoded, channels), key)
    key = tf.convert_to_tensor(key, tf.int64)
    box = tf.cond(
        tf.io.is_jpeg(encoded),
        lambda: _jpeg_box(transform, encoded, key, channels),
        lambda: _inception_box(transform, decode(encoded, channels), key),
    )
    box.set_shape([None, None, channels])
    return _finish(transform, _resize(transform, box), key)


@as_written
def decode(encoded, channels=3):
    """The pixels of an image file: see `keras_vit.data.transform_numpy.decode`.

    Args:
        encoded: scalar string tensor, the bytes of a JPEG, PNG, GIF or BMP.
        channels: 3 for RGB, 1 for grayscale.

    Returns:
        uint8 tensor of shape (height, width, channels).
    """
    pixels = tf.cond(
        tf.io.is_jpeg(encoded),
        lambda: tf.io.decode_jpeg(encoded, channels, **_JPEG),
        lambda: _decode_other(encoded, channels),
    )
    pixels.set_shape([None, None, channels])
    return pixels


def _decode_other(encoded, channels):
    # TensorFlow's own gray of a PNG has other weights than the luma of all else.
    pixels = tf.io.decode_image(encoded, channels=3, expand_animations=False)
    pixels.set_shape([None, None, 3])
    if channels == 3:
        return pixels
    red, green, blue = tf.split(tf.cast(pixels, tf.int32), 3, axis=-1)
    luma = tf.bitwise.right_shift(19595 * red + 38470 * green + 7471 * blue + 2**15, 16)
    return tf.cast(luma, tf.uint8)


def _jpeg_box(transform, encoded, key, channels):
    """The box of an inception crop, without decoding the rest."""
    shape = tf.image.extract_jpeg_shape(encoded)
    height, width = shape[0], shape[1]
    top, left, tall, wide = _draw_box(transform, height, width, key)
    # One more column on each side: at the border of what it decodes, the decoder does not know
    # the neighbours from which it would interpolate colours.
    first = tf.maximum(left - 1, 0)
    last = tf.minimum(left + wide + 1, width)
    window = tf.stack([top, first, tall, last - first])
    pixels = tf.image.decode_and_crop_jpeg(encoded, window, channels, **_JPEG)
    return tf.slice(pixels, [0, left - first, 0], [-1, wide, -1])


def _inception_box(transform, image, key):
    top, left, tall, wide = _draw_box(transform, *_size(image), key)
    return image[top : top + tall, left : left + wide]


def _draw_box(transform, height, width, key):
    draws = uniform(key, Purpose.CROP, geometry.INCEPTION_DRAWS)
    box = geometry.inception_box(height, width, transform.area, transform.ratio, draws)
    return [tf.cast(side, tf.int32) for side in box]


def _crop(transform, image, key):
    """The part of the image that is kept, at its final size: uint8, or float32 if resized."""
    if transform.crop == "inception":
        return _resize(transform, _inception_box(transform, image, key))
    if transform.crop == "squash":
        return _resize(transform, image)
    if transform.crop == "pad_random":
        image = _padded(transform, image)
    elif transform.crop.startswith("squash_"):
        image = _resize(transform, image, (transform.resize_small, transform.resize_small))
    else:
        new_size = geometry.covering_size(*_size(image), transform.resize_small)
        image = _resize(transform, image, tf.stack([tf.cast(side, tf.int32) for side in new_size]))
    return _window(transform, image, key)


def _padded(transform, image):
    padding = transform.padding
    padded = tf.pad(image, [[padding, padding], [padding, padding], [0, 0]])
    for side, wanted in zip(padded.shape, transform.image_size):
        if side is not None and side < wanted:
            raise ValueError(too_small(image.shape[:2], transform))
    fits = tf.reduce_all(tf.shape(padded)[:2] >= transform.image_size)
    message = too_small(("height", "width"), transform)
    with tf.control_dependencies([tf.debugging.Assert(fits, [message, tf.shape(image)])]):
        return tf.identity(padded)


def _window(transform, image, key):
    size = transform.image_size
    if "random" in transform.crop:
        draws = uniform(key, Purpose.CROP, 2)
        window = geometry.random_window(*_size(image), size, draws)
    else:
        window = geometry.center_window(*_size(image), size)
    top, left = (tf.cast(side, tf.int32) for side in window[:2])
    return image[top : top + size[0], left : left + size[1]]


def _resize(transform, image, size=None):
    size = transform.image_size if size is None else size
    return tf.image.resize(image, size, transform.interpolation)


def _finish(transform, pixels, key):
    """Flip, affine map, whole grey levels, RandAugment, value range."""
    pixels.set_shape([*transform.image_size, pixels.shape[-1]])
    if transform.flip:
        pixels = _flipped(pixels, is_flipped(key))
    if transform.affine is not None:
        pixels = affine(pixels, key, *transform.affine)
    if transform.round_to_uint8 or transform.augments:
        pixels = _truncated(pixels)
    if transform.augments:
        pixels = randaugment(pixels, key, *transform.randaugment)
    shift, factor = value_scale(transform.value_range)
    return (tf.cast(pixels, tf.float32) + shift) * factor


def _flipped(pixels, condition):
    # Five times as fast as tf.where, which would reverse every image and then choose.
    return tf.cond(condition, lambda: tf.reverse(pixels, [1]), lambda: pixels)


def _truncated(pixels):
    if pixels.dtype == tf.uint8:
        return pixels
    return tf.cast(tf.clip_by_value(pixels, 0.0, 255.0), tf.uint8)


def _size(image):
    return tf.unstack(tf.shape(image)[:2])
