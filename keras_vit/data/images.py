"""What a caller has at hand - image files, PIL images, arrays, or a list of them - as pixels."""

import collections.abc
import io
import os
import pathlib

import numpy as np
from PIL import Image, ImageOps

from keras_vit.data.resize import convert_channels

LISTED = 10  # images named in a message; the count tells the rest
_ORIENTATION = 0x0112  # the EXIF tag


def open_image(source):
    """Opens an image file and reads its header; Pillow decodes the pixels when they are needed.

    Args:
        source: a path, or the bytes of a file.

    Returns:
        A PIL image.

    Raises:
        OSError, ValueError: no image, not a regular file, or more pixels than
            `PIL.Image.MAX_IMAGE_PIXELS`: a small file can claim many gigabytes of them.
    """
    if not isinstance(source, bytes) and not pathlib.Path(source).is_file():
        raise OSError(f"{source} is no regular file")
    image = Image.open(io.BytesIO(source) if isinstance(source, bytes) else source)
    width, height = image.size
    if Image.MAX_IMAGE_PIXELS is not None and width * height > Image.MAX_IMAGE_PIXELS:
        raise ValueError(
            f"an image of {width} x {height} pixels; raise PIL.Image.MAX_IMAGE_PIXELS, "
            f"{Image.MAX_IMAGE_PIXELS}, to read it"
        )
    return image


def orientation(image):
    """The EXIF orientation of a PIL image: 1 is upright, 5 to 8 lie on their side."""
    return image.getexif().get(_ORIENTATION, 1)


def pixels_of(image, channels, upright=True):
    """The pixels of a PIL image as they are meant to be seen, with 8 bits per channel.

    The first frame of an animation; palettes and CMYK become RGB, transparency is dropped.

    Args:
        image: a PIL image of any mode.
        channels: 3 for RGB, 1 for grayscale.
        upright: whether to turn the image as its EXIF orientation says.

    Returns:
        uint8 array of shape (height, width, channels).

    Raises:
        ValueError: 32-bit pixels, whose range is unknown, or another number of channels.
    """
    if channels not in (1, 3):
        raise ValueError(
            f"files and PIL images give 1 or 3 channels, the model needs {channels}; pass arrays"
        )
    sixteen_bits = image.mode.startswith("I;16") or (
        image.mode == "I" and image.format in ("PNG", "PPM")
    )
    if image.mode in ("I", "F") and not sixteen_bits:
        raise ValueError("32-bit pixels have no fixed range; save with 8 or 16 bits")
    if upright and orientation(image) != 1:
        image = ImageOps.exif_transpose(image)
    if sixteen_bits:  # Pillow would clip at 255 and leave the image nearly white
        pixels = np.asarray(image).astype(np.float32) / 257.0
        image = Image.fromarray((pixels + 0.5).astype(np.uint8))
    mode = "RGB" if channels == 3 else "L"
    pixels = np.asarray(image if image.mode == mode else image.convert(mode))
    return pixels.reshape(image.height, image.width, channels)


def list_images(images, channels):
    """The images one by one, checked as far as that is possible without decoding a file.

    Args:
        images: a path, a PIL image, an array of one image, shape (height, width) or (height,
            width, channels), or of several, shape (images, height, width, channels); or a list
            or another iterable of single ones. Arrays are uint8, or floats in [0, 1].
        channels: what the model needs.

    Returns:
        list of paths, PIL images and arrays.

    Raises:
        FileNotFoundError: names the files that do not exist.
        ValueError: something else than an image, none at all, or an array of another shape,
            dtype, range or number of channels.
    """
    if _is_file(images) or isinstance(images, Image.Image):
        items = [images]
    elif hasattr(images, "__array__"):
        array = np.asarray(images)
        if array.dtype.kind in "UO":  # a column of paths
            return list_images(array.ravel().tolist(), channels)
        _check_array(array, "images", channels, ranks=(2, 3, 4))
        return list(array) if array.ndim == 4 else [array]
    elif isinstance(images, collections.abc.Iterable):
        items = list(images)
    else:
        items = [images]
    if not items:
        raise ValueError("No images. Received: an empty list; is the folder or the pattern right?")
    items = [_checked(item, index, channels) for index, item in enumerate(items)]
    missing = [str(item) for item in items if _is_file(item) and not os.path.exists(item)]
    if missing:
        raise FileNotFoundError(
            f"{len(missing)} of {len(items)} images do not exist. Received:\n" + listed(missing)
        )
    return items


def read_images(items, channels):
    """Decodes images one at a time, so that only one is held at its full size.

    Args:
        items: from `list_images`.
        channels: 3 for RGB, 1 for grayscale; arrays may have any number.

    Yields:
        (height, width, channels) arrays of values 0..255: uint8, or float32 from float arrays.

    Raises:
        ValueError: after the last image; names every one that could not be decoded.
    """
    reasons = []
    for index, item in enumerate(items):
        try:
            pixels = _read(item, channels)
        except MemoryError:
            raise
        # Pillow's decoders answer damaged files with errors of many unrelated types. None is
        # swallowed: each is reported with its image.
        except Exception as error:
            name = item if _is_file(item) else f"images[{index}]"
            reasons.append(f"{name}: {type(error).__name__}: {error}")
            continue
        if not reasons:
            yield pixels
    if reasons:
        raise ValueError(
            f"{len(reasons)} of {len(items)} images cannot be read. Received:\n"
            f"{listed(reasons)}\nRepair them or leave them out."
        )


def listed(lines):
    """The first lines of a message, indented, and how many more there are."""
    more = [f"and {len(lines) - LISTED} more"] * (len(lines) > LISTED)
    return "\n".join(f"  {line}" for line in [*lines[:LISTED], *more])


def _read(item, channels):
    if _is_file(item):
        with open_image(item) as image:
            return pixels_of(image, channels)
    if isinstance(item, Image.Image):
        return pixels_of(item, channels)
    array = item if item.ndim == 3 else item[..., None]
    array = convert_channels(array, channels)
    return array if array.dtype == np.uint8 else array.astype(np.float32) * np.float32(255)


def _checked(item, index, channels):
    if _is_file(item) or isinstance(item, Image.Image):
        return item
    if not hasattr(item, "__array__"):
        raise ValueError(
            "images must be paths, PIL images or arrays, or a list of them. Received: item "
            f"{index} of type {type(item).__name__}"
        )
    array = np.asarray(item)
    _check_array(array, f"images[{index}]", channels, ranks=(2, 3))
    return array


def _check_array(array, name, channels, ranks):
    if array.ndim not in ranks or 0 in array.shape[-3:]:
        raise ValueError(
            f"{name} must have shape (height, width, channels), or (height, width) for grayscale"
            f"{', or (images, height, width, channels)' * (4 in ranks)}. "
            f"Received: shape {array.shape}"
        )
    present = array.shape[-1] if array.ndim > 2 else 1
    if present != channels and (present, channels) not in ((1, 3), (3, 1)):
        raise ValueError(
            f"{name} must have {channels} channels, as the model, on the last axis; several "
            f"grayscale images in one array need images[..., None]. Received: shape {array.shape}"
        )
    if array.dtype != np.uint8 and array.dtype.kind != "f":
        raise ValueError(
            f"{name} must be uint8 in 0..255 or float in [0, 1]; convert with "
            f"images.astype('uint8') if the values are 0..255. Received: dtype {array.dtype}"
        )
    if array.dtype.kind == "f" and array.size:
        low, high = array.min(), array.max()
        if not (low >= 0 and high <= 1):  # also where they are not numbers
            raise ValueError(
                f"{name} must have values in [0, 1] where they are floats. Received: values from "
                f"{low:.6g} to {high:.6g}; divide by 255, or convert with images.astype('uint8'), "
                "if they are pixels in 0..255, and do not preprocess twice"
            )


def _is_file(item):
    return isinstance(item, (str, os.PathLike))
