"""The pixels of files, PIL images and arrays, with 8 bits and the channels that are wanted."""

import contextlib
import io
import math
import os
import pathlib
import statistics
import warnings

import numpy as np
from PIL import ExifTags, Image, TiffImagePlugin, UnidentifiedImageError

from keras_vit.checks import require
from keras_vit.workarounds import decode

PATHS = (str, os.PathLike)
# What makes an image of each EXIF orientation, 2 to 8, upright.
_UPRIGHT = """FLIP_LEFT_RIGHT ROTATE_180 FLIP_TOP_BOTTOM TRANSPOSE ROTATE_270 TRANSVERSE
    ROTATE_90""".split()

# Pillow warns of every damaged tag by itself, of which only the orientation is read: 240 kB of EXIF
# data make 20,000 warnings.
warnings.filterwarnings("ignore", module=r"PIL\.TiffImagePlugin")


class ImageError(ValueError):
    """An image that cannot be decoded, or that a transform cannot take for its size."""


def open_image(source):
    """The PIL image of a path or of the bytes of a file, of which only the header is read.

    Raises:
        OSError, ValueError: no image, not a regular file, or more pixels than
            `PIL.Image.MAX_IMAGE_PIXELS`: a small file can claim many gigabytes of them.
    """
    in_memory = isinstance(source, bytes)
    if not in_memory and pathlib.Path(source).exists() and not pathlib.Path(source).is_file():
        raise OSError(f"{source} is no regular file")
    try:
        image = Image.open(io.BytesIO(source) if in_memory else source)
    except UnidentifiedImageError as error:
        if in_memory:  # the address of an object in memory helps nobody
            raise UnidentifiedImageError("no image of a known format") from error
        raise
    tags = getattr(image, "tag_v2", {})  # of a TIFF, whose tiles may be larger than the image
    tile = [tags.get(tag) for tag in (TiffImagePlugin.TILEWIDTH, TiffImagePlugin.TILELENGTH)]
    has_tiles = all(isinstance(side, int) for side in tile)
    width, height = max(image.size, tile, key=math.prod) if has_tiles else image.size
    if width * height > (Image.MAX_IMAGE_PIXELS or math.inf):
        raise ValueError(
            f"an image or a tile of {width} x {height} pixels; raise PIL.Image.MAX_IMAGE_PIXELS, "
            f"{Image.MAX_IMAGE_PIXELS}, to read it"
        )
    return image


def orientation(image):
    """The EXIF orientation of a PIL image, 1 to 8: 1 is upright, 5 to 8 lie on their side.

    It is 1 where EXIF data are missing, broken or wrong. Only a JPEG is not decoded by this.
    """
    if image.format != "JPEG":
        decode(image)  # which turns a TIFF, and finds what a PNG says behind its pixels
    try:
        tag = image.getexif().get(ExifTags.Base.Orientation)
    except Exception:  # Pillow answers broken EXIF data with errors of many unrelated types
        return 1
    return int(tag) if tag in range(1, 9) else 1


def pixels_of(image, channels, upright=True):
    """The pixels of an image as they are meant to be seen, shape (height, width, channels).

    Args:
        image: a path, the bytes of a file, a PIL image, or an array, which keeps its dtype. Others
            become uint8: the first frame of an animation, palettes and CMYK as RGB, without
            transparency.
        channels: 3 for RGB, 1 for grayscale; of an array as in `convert_channels`.
        upright: whether to turn a file's image as its EXIF orientation says; see `orientation`.
    """
    if isinstance(image, np.ndarray):
        return convert_channels(image, channels)
    if isinstance(image, (bytes, *PATHS)):
        with open_image(image) as opened:
            return pixels_of(opened, channels, upright)
    turned = orientation(image) if upright else 1
    picture = picture_of(image, channels)
    if turned > 1:
        picture = picture.transpose(Image.Transpose[_UPRIGHT[turned - 2]])
    return np.asarray(picture).reshape(picture.height, picture.width, channels)


def picture_of(image, channels):
    """A PIL image of any mode as an RGB or L one."""
    rule = f"files and PIL images give 1 or 3 channels, the model needs {channels}; pass arrays"
    require(channels in (1, 3), rule, received=image.mode)
    is_deep = image.mode == "I" and image.format in ("PNG", "PPM")
    if is_deep or image.mode.startswith("I;16"):
        # Pillow would clip 16 bits at 255 and leave the image nearly white. Of a TIFF with 12 bits
        # it gives 0..4095, and it turns a negative (white is 0) of 8 bits only.
        tags = getattr(image, "tag_v2", {})
        bits = tags.get(TiffImagePlugin.BITSPERSAMPLE, (16,))[0]
        pixels = np.asarray(image)
        used = int(pixels.max()).bit_length()
        if 0 < used <= bits - 4:  # in few texts, as Python shows each once
            warnings.warn(
                f"The gray levels of an image of {bits} bits are 0..{2**bits - 1}. Received: none "
                f"above {2**used - 1}, which is nearly black; multiply the pixels of such files by "
                f"{2 ** (bits - used)} where that is white.",
                stacklevel=2,
            )
        pixels = pixels.astype(np.float32) * np.float32(255 / (2**bits - 1))
        if tags.get(TiffImagePlugin.PHOTOMETRIC_INTERPRETATION) == 0:
            pixels = 255 - pixels
        image = Image.fromarray((pixels + 0.5).astype(np.uint8))
    is_signed = 2 in getattr(image, "tag_v2", {}).get(TiffImagePlugin.SAMPLEFORMAT, ())
    if image.mode in ("I", "F") or is_signed:
        raise ValueError("signed and 32-bit pixels have no fixed range; save 8 or 16 bits")
    mode = "RGB" if channels == 3 else "L"
    picture = image if image.mode == mode else image.convert(mode)
    if image.has_transparency_data and (np.ptp(picture, axis=(0, 1)) == 0).all():
        if np.ptp(image.convert("RGBA").getchannel("A")):
            warnings.warn(
                "What an image shows must not be in its transparency alone, which is dropped. "
                f"Received: {image.mode}, of one color everywhere; save it on a background.",
                stacklevel=2,
            )
    return picture


@contextlib.contextmanager
def decoding(received=""):
    """Errors within it are an `ImageError`: decoders answer damaged files with any type of error.

    None is swallowed: each is reported with its image.
    """
    try:
        yield
    except (MemoryError, ImageError):
        raise
    except Exception as error:
        raise ImageError(f"{received}{error} ({type(error).__name__})") from error


def convert_channels(images, channels):
    """Repeats grayscale, or makes luma of RGB; uint8 or float32, the channels on the last axis."""
    present = images.shape[-1]
    if channels == present:
        return images
    if (present, channels) == (1, 3):
        return images.repeat(3, axis=-1)
    rule = "Only 1 -> 3 and 3 -> 1 channels can be converted"
    require((present, channels) == (3, 1), rule, received=f"{present} -> {channels}")
    if images.dtype == np.uint8:
        rows = np.ascontiguousarray(images).reshape(-1, *images.shape[-2:])
        return np.asarray(Image.fromarray(rows).convert("L")).reshape(*images.shape[:-1], 1)
    weights = np.array([19595, 38470, 7471], np.float32) / 2**16  # Pillow's 0.299, 0.587, 0.114
    return (images @ weights)[..., None].astype(images.dtype)


def levels_of(image, channels):
    """An array of uint8, or of floats in [0, 1] as float32 of 0..255, of so many channels."""
    image = convert_channels(image, channels)
    return image if image.dtype == np.uint8 else image.astype(np.float32) * np.float32(255)


def bytes_of(image, channels):
    """An array of uint8, or of floats in [0, 1], as uint8 of so many channels."""
    if image.dtype != np.uint8:
        if 0 < np.ptp(image) < 4 / 255:
            warnings.warn(
                "A random transform works on the 256 levels of bytes. Received: an image of floats "
                "that fills less than 4 of them; spread such images over 0 to 1.",
                stacklevel=2,
            )
        image = np.rint(image * np.float32(255)).astype(np.uint8)
    return convert_channels(image, channels)


def normalized(images, mean, std):
    """Pixels of 0..255 as new float32 ones, (x / 255 - mean) / std; both as of `per_channel`."""
    images = images.astype(np.float32)
    # Times 255, so that bytes become exactly what `(x - 127.5) / 127.5` makes of them.
    images -= mean * np.float32(255)
    images /= std * np.float32(255)
    return images


def per_channel(preprocessing, channels):
    """Mean and std of a `Preprocessing` as float32 arrays of shape (channels,).

    One number serves all channels if it is the same for all.
    """
    mean, std = preprocessing.mean, preprocessing.std
    for name, values in (("mean", mean), ("std", std)):
        fits = len(values) in (1, channels) or len(set(values)) == 1
        rule = f"{name} must have one number for each of the {channels} channels of the images"
        advice = f"preprocessing.for_channels({channels}) makes them"
        require(fits, f"{rule}; {advice}", received=values)
    return tuple(np.resize(np.array(values, np.float32), channels) for values in (mean, std))


def shorter_side(source, rows, most=32):
    """The median of the shorter sides of some images as they are, in pixels; 0 for none."""
    sides = []
    for row in rows[:: max(1, len(rows) // most)]:
        image, _ = source[row]
        if isinstance(image, bytes):
            with contextlib.suppress(Exception), open_image(image) as opened:  # damaged ones
                sides.append(min(opened.size))
        else:
            sides.append(min(image.shape[:2]))
    return statistics.median_high(sides or [0])
