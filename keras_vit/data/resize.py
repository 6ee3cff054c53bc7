"""From any image size to the model's, with the arithmetic of the library it was trained with.

TensorFlow's resizes are repeated here in NumPy, in float32 and in the order of its kernels: where a
pipeline truncates to bytes, another rounding of the last bit already moves a pixel by one.
"""

import dataclasses
import math
import warnings

import numpy as np
from PIL import Image

from keras_vit.data.pixels import ImageError
from keras_vit.preprocessing import BY_PILLOW

_HALF = np.float32(0.5)
_TABLE = 1024  # TensorFlow tabulates its cubic kernel at so many places between two pixels


def fit_image(image, image_size, preprocessing):
    """Resizes and crops one image to the size of a model.

    With `library="transformers"` the shorter side gets the smaller of the two numbers, and black
    fills what the other may lack.

    Shapes: (height, width, channels) -> (*image_size, channels), uint8, or float32 of 0..255: an
    image, which is rounded for libraries that work on bytes; a result, where the resize keeps
    fractions. Those of TensorFlow's bicubic resize can lie a little outside.

    Source: transforms_factory.py of timm, pp/ops_image.py of big_vision,
    image_processing_backends.py of transformers 5 (`TorchvisionBackend`).
    """
    library = preprocessing.library
    if library != "tensorflow" and image.dtype != np.uint8:
        image = np.rint(image).astype(np.uint8)
    if preprocessing.resize == "center_square":
        side = min(image.shape[:2])
        image = cut(image, center_window(image.shape[:2], (side, side), library))
    size = tuple(math.floor(side / preprocessing.crop_fraction) for side in image_size)
    if preprocessing.resize == "shortest":
        size = covering_size(image.shape[:2], size, library)
    return resized(image, size, preprocessing, center_window(size, image_size, library))


def as_loaded(preprocessing, dataset, image_size, may_change=True):
    """The `Preprocessing` that makes of files what a model gets of images that `load` has resized.

    It is the given one with the resize of `load`, where images of that size go into the model as
    they are. A warning tells if they would be resized once more, for which there is none, or
    without `may_change` if the resize given is another one.
    """
    size = dataset.image_shape[:2]
    image = np.random.default_rng(0).integers(0, 256, (*size, 1), np.uint8)
    as_is = np.array_equal(fit_image(image, image_size, preprocessing), image)
    changes = {"resize": "squash", "crop_fraction": 1.0, "interpolation": "bilinear"}
    loaded = dataclasses.replace(preprocessing, **changes, library="pillow")
    if not as_is or not (may_change or loaded == preprocessing):
        warnings.warn(
            f"Images that load(image_size=...) has resized are others than the model gets of their "
            f"files. Received: {dataset.name} of {size[0]}x{size[1]} for {preprocessing}; make a "
            "pipeline of the files, as keras_vit.data.pipeline(PATH, recipe, model=model).",
            stacklevel=3,
        )
    return loaded if as_is else preprocessing


def resized(image, size, preprocessing, window=None):
    """Resizes an image with the interpolation and the library of a `Preprocessing`.

    Shapes: (height, width, channels) -> (*size, channels), or that of the window (top, left,
    height, width) of it. uint8 where the result has whole grey levels, else float32.
    """
    library, method = preprocessing.library, preprocessing.interpolation
    is_same = tuple(size) == image.shape[:2]
    if not is_same and library not in BY_PILLOW:
        pixels = tensorflow_resize(image, size, method, window)
        return pixels.clip(0, 255).astype(np.uint8) if library == "tensorflow_uint8" else pixels
    image = image if is_same else pillow_resize(image, size, method)
    return image if window is None else cut(image, window)


def covering_size(sides, box, library="tensorflow"):
    """The (height, width) at which an image of such sides just covers a box.

    Source: torchvision's Resize and timm's ResizeKeepRatio; `resize_small` of big_vision, in
    float32 and in its order, because the rounding decides about a pixel.
    """
    if library == "transformers" or (library == "pillow" and box[0] == box[1]):  # torchvision's
        old, new = min(sides), min(box)
        return tuple(new if side == old else int(new * side / old) for side in sides)
    if library == "pillow":  # timm's ResizeKeepRatio
        ratio = min(side / target for side, target in zip(sides, box))
        return tuple(round(side / ratio) for side in sides)
    sides = np.array(sides, np.float32)
    factor = (np.array(box, np.float32) / sides).max()
    return tuple(int(side) for side in np.rint(sides * factor))


def center_window(sides, target, library="tensorflow"):
    """(top, left, height, width) of a centre crop; odd margins are split as the library does.

    Top and left are negative where the sides are shorter than the target, by transformers alone.
    """
    split = {"pillow": round, "transformers": int}.get(library, math.floor)
    return (*(split((side - wanted) / 2) for side, wanted in zip(sides, target)), *target)


def cut(image, window):
    """The window (top, left, height, width) of an image, black where it lies outside of it."""
    top, left, height, width = window
    part = image[max(top, 0) : top + height, max(left, 0) : left + width]
    if part.shape[:2] == (height, width):
        return part
    black = np.zeros((height, width, image.shape[-1]), image.dtype)
    above, before = max(-top, 0), max(-left, 0)
    black[above : above + part.shape[0], before : before + part.shape[1]] = part
    return black


def pillow_resize(image, size, method):
    """Pillow's resize of a uint8 or float32 image to (height, width), which antialiases.

    Shapes: (height, width, channels) -> (*size, channels), uint8 rounded, or float32.
    """
    _check_memory(image, size, size[1] * max(size[0], len(image)))
    # Pillow has no mode for floats in colour, or for other numbers of channels.
    is_rgb = image.shape[-1] == 3 and image.dtype == np.uint8
    planes = [image] if is_rgb else np.moveaxis(image, -1, 0)
    pictures = [Image.fromarray(np.ascontiguousarray(plane)) for plane in planes]
    method = Image.Resampling[method.upper()]
    planes = [np.asarray(each.resize((size[1], size[0]), method)) for each in pictures]
    return planes[0] if is_rgb else np.stack(planes, axis=-1)


def _check_memory(image, size, pixels):
    """Raises an ImageError where a resize would need many more pixels than the image has."""
    most = Image.MAX_IMAGE_PIXELS
    if most is not None and pixels > max(most, image.shape[0] * image.shape[1]):
        raise ImageError(
            f"an image of {image.shape[1]} x {image.shape[0]} pixels, too long and narrow to "
            f"become one of {size[1]} x {size[0]}, which takes {pixels} pixels at once; cut it, or "
            f"raise PIL.Image.MAX_IMAGE_PIXELS, {most}"
        )


def tensorflow_resize(image, size, method, window=None):
    """`tf.image.resize` without antialias, by `"bilinear"`, `"bicubic"` or `"area"`.

    Shapes: (height, width, channels) of uint8 or float32 -> (*size, channels) of float32; or that
    of the window (top, left, height, width), the part of the result that is computed.

    Source: resize_bilinear_op.cc, resize_bicubic_op.cc, resize_area_op.cc of TensorFlow.
    """
    top, left, height, width = window or (0, 0, *size)
    wanted = np.arange(top, top + height), np.arange(left, left + width)
    between = height * image.shape[1] if method == "bicubic" else len(image) * width
    _check_memory(image, size, between)
    scales = [np.float32(old) / np.float32(new) for old, new in zip(image.shape, size)]
    for axis in (0, 1) if method == "bicubic" else (1, 0):
        if method == "bilinear":
            image = _bilinear(image, axis, scales[axis], wanted[axis])
        else:
            taps = _bicubic_taps if method == "bicubic" else _area_taps
            weighted = taps(image.shape[axis], scales[axis], wanted[axis])
            image = _weighted_sum(image, axis, *weighted)
    return image * (np.float32(1) / (scales[1] * scales[0])) if method == "area" else image


def _lines(image, axis, indices):
    """The rows or columns of those indices, as float32 of shape (rows, columns * channels).

    NumPy gathers bytes twice as fast as pixels of three of them.
    """
    if axis == 1:
        channels = image.shape[-1]
        indices = (indices[:, None] * channels + np.arange(channels)).ravel()
    return image.reshape(len(image), -1).take(indices, axis).astype(np.float32, copy=False)


def _along(weights, axis, channels):
    """One number for each row or column, in the shape that fits `_lines`."""
    return weights[:, None] if axis == 0 else np.repeat(weights, channels)


def _bilinear(image, axis, scale, wanted):
    """low + (high - low) * fraction along an axis."""
    last, channels = image.shape[axis] - 1, image.shape[-1]
    place = (wanted.astype(np.float32) + _HALF) * scale - _HALF  # of centres among the old ones
    below = np.floor(place)
    low = _lines(image, axis, np.maximum(below, 0).astype(int))
    high = _lines(image, axis, np.minimum(np.ceil(place), last).astype(int))
    high -= low
    high *= _along(place - below, axis, channels)
    high += low
    return high.reshape(len(high), -1, channels)


def _bicubic_taps(old, scale, wanted):
    """The four old pixels that make each new one, and their weights: (indices, weights)."""
    place = (wanted.astype(np.float32) + _HALF) * scale - _HALF
    below = np.floor(place)
    # The table has Keys's kernel, a = -0.5, from 0 to 1 and from 1 to 2 pixels from its centre.
    x, a = np.arange(_TABLE + 1) / _TABLE, -0.5
    near = (((a + 2) * x - (a + 3)) * x * x + 1).astype(np.float32)
    far = (((a * (x + 1) - 5 * a) * (x + 1) + 8 * a) * (x + 1) - 4 * a).astype(np.float32)
    step = np.rint((place - below) * np.float32(_TABLE)).astype(int)
    weights = np.stack([far[step], near[step], near[_TABLE - step], far[_TABLE - step]], 1)
    indices = below.astype(int)[:, None] + np.arange(-1, 3)
    weights *= (indices >= 0) & (indices < old)  # what lies outside counts nothing
    total = ((weights[:, 0] + weights[:, 1]) + weights[:, 2]) + weights[:, 3]
    weights *= (np.float32(1) / total)[:, None]
    return indices.clip(0, old - 1), weights


def _area_taps(old, scale, wanted):
    """The old pixels under each new one, and how much of them it covers: (indices, weights)."""
    start, end = (edges.astype(np.float32) * scale for edges in (wanted, wanted + 1))
    first, last = np.floor(start).astype(int), np.ceil(end).astype(int)  # the last one exclusive
    indices = first[:, None] + np.arange((last - first).max())
    left = indices.astype(np.float32)
    right, start, end = left + 1, start[:, None], end[:, None]
    begun = np.where(right > end, scale, right - start)
    whole = np.where(right > end, end - left, np.float32(1))
    weights = np.where(left < start, begun, whole) * (indices < last[:, None])
    return indices.clip(0, old - 1), weights


def _weighted_sum(image, axis, indices, weights):
    """Sums pixels along an axis, one after the other: indices and weights of (new, terms)."""
    total, channels = np.float32(0), image.shape[-1]
    for index, weight in zip(indices.T, weights.T):
        total = total + _lines(image, axis, index) * _along(weight, axis, channels)
    return total.reshape(len(total), -1, channels)
