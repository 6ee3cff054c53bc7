"""What a `Transform` does to one image: decode, crop, resize, flip, augment."""

import contextlib
import functools
import math

import numpy as np
from PIL import Image, UnidentifiedImageError

from keras_vit.data.crops import CROPS
from keras_vit.data.pixels import open_image, orientation, picture_of
from keras_vit.data.resize import cut, fit_image, resized


def apply(transform, image, rng=None, channels=3, upright=True):
    """Applies a transform to one image.

    Args:
        transform: a `Transform`.
        image: the bytes of an image file, or uint8 pixels of shape (height, width, channels).
        rng: a `numpy.random.Generator`, which a random transform draws from.
        channels: 3 for RGB or 1 for grayscale, of a file.
        upright: whether to turn a file's image as its EXIF orientation says.

    Returns:
        Shape (*transform.image_size, channels), values 0..255: uint8, or float32 where the resize
        keeps fractions; see `Transform.library`.

    Source: pp/ops_image.py of big_vision, input_pipeline.py of google-research/vision_transformer.
    """
    is_file = isinstance(image, bytes)
    if transform.crop in CROPS:
        crop = functools.partial(CROPS[transform.crop], transform, rng=rng)
        if is_file:
            pixels, size, window = _cut_file(image, crop, channels, upright, transform.draft)
        else:
            box, size, window = crop(image.shape[:2])
            pixels = cut(image, box)
        mirrored = transform.flip and rng.random() < 0.5
        pixels = resized(pixels, size, transform.preprocessing, window, mirrored)
    else:
        pixels = _decoded(image, channels, upright) if is_file else image
        pixels = fit_image(pixels, transform.image_size, transform.preprocessing)
        if transform.flip and rng.random() < 0.5:
            pixels = pixels[:, ::-1]
    if pixels.dtype != np.uint8 and transform.is_random:
        # An average of bytes passes 255 by a rounding error at most.
        pixels = np.clip(pixels + np.float32(0.5), 0, 255).astype(np.uint8)
    return _augmented(pixels, transform.augmentations(), rng)


def _augmented(pixels, augmentations, rng):
    """Pixels after the functions of `Transform.augmentations`."""
    if not augmentations:
        return pixels
    pixels = np.ascontiguousarray(pixels)
    picture = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    for function, arguments in augmentations:
        picture = function(picture, rng, *arguments)
    return np.asarray(picture).reshape(pixels.shape)


def _decoded(encoded, channels, upright):
    """All the pixels of a file."""
    with _opened(encoded) as image:
        return _pixels(picture_of(image, channels, orientation(image) if upright else 1), channels)


def _cut_file(encoded, crop, channels, upright, draft):
    """(pixels, size, window): the box of a random crop of a file, and what becomes of it."""
    with _opened(encoded) as image:
        turned = orientation(image) if upright else 1
        if draft and image.format == "JPEG" and turned == 1:
            box, size, window = crop((image.height, image.width))
            box = _drafted(image, box, size)
            picture = picture_of(image, channels, turned)
        else:
            picture = picture_of(image, channels, turned)
            box, size, window = crop((picture.height, picture.width))
        top, left, height, width = box
        if box != (0, 0, picture.height, picture.width):  # cut before it leaves Pillow
            picture = picture.crop((left, top, left + width, top + height))
        return _pixels(picture, channels), size, window


def _drafted(image, box, size):
    """The box in a JPEG that is decoded at 1/2, 1/4 or 1/8 of its size, as far as `size` allows."""
    height, width = image.height, image.width
    enough = [math.ceil(a * new / old) for a, new, old in zip((height, width), size, box[2:])]
    image.draft(None, (enough[1], enough[0]))
    scales = image.height / height, image.width / width
    starts = [int(start * scale + 0.5) for start, scale in zip(box[:2], scales)]
    ends = [int((a + b) * scale + 0.5) for a, b, scale in zip(box[:2], box[2:], scales)]
    return (*starts, *(end - start for start, end in zip(starts, ends)))


def _pixels(picture, channels):
    return np.asarray(picture).reshape(picture.height, picture.width, channels)


@contextlib.contextmanager
def _opened(encoded):
    """The image of Pillow in the bytes of a file, or a ValueError that tells why there is none."""
    try:
        with open_image(encoded) as image:
            yield image
    except MemoryError:
        raise
    # Pillow's decoders answer damaged files with errors of many unrelated types.
    except Exception as error:
        is_unknown = isinstance(error, UnidentifiedImageError)  # whose text names an object
        reason = "Pillow knows no such format" if is_unknown else f"{type(error).__name__}: {error}"
        raise ValueError(
            f"The image cannot be decoded. Received: {len(encoded)} bytes that begin with "
            f"{encoded[:8]!r} ({reason})"
        ) from error
