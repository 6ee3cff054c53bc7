"""From stored pixels - files, PIL images, arrays, or a list of them - to what models take."""

import functools
import os
import warnings
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
from PIL import Image

from keras_vit.checks import pair, require
from keras_vit.data.dataset import check_pixels
from keras_vit.data.files import files_at, listed
from keras_vit.data.pixels import (
    PATHS,
    ImageError,
    decoding,
    levels_of,
    normalized,
    per_channel,
    pixels_of,
)
from keras_vit.data.resize import fit_image
from keras_vit.models.backbone import image_shape_of, network_of_images
from keras_vit.preprocessing import Preprocessing, preprocessing_of


def preprocess(
    images: Any,
    model: keras.Model | None = None,
    preprocessing: Preprocessing | None = None,
    image_size: int | tuple[int, int] | None = None,
) -> np.ndarray:
    """Makes images of any kind and size what a model was trained on.

    With a model, each image is read, resized, cropped and normalised as `model.preprocessing`
    says. With nothing but an array, its pixels are mapped to [-1, 1], the value range of the
    authors' models, and keep their size.

    Args:
        images: a path, a PIL image, an array of shape (height, width, channels), or (height,
            width) for grayscale; a list of any of these, of different sizes if need be; or an
            array of shape (images, height, width, channels). Arrays are uint8 in 0..255, or
            floats in [0, 1]. Alone, only the last kind. The path of a folder stands for the images
            in it at any depth, in the order of `keras_vit.data.image_files`.
        model: a `VisionTransformer`, or any Keras model of images (batch, height, width,
            channels). One without `preprocessing` gets `Preprocessing()`, with a warning.
        preprocessing, image_size: a `keras_vit.Preprocessing`, and int or (height, width) in
            pixels, instead of the model's.

    Returns:
        float32 array of shape (images, height, width, channels). Grayscale becomes RGB and RGB
        grayscale as the model needs; transparency is dropped. Without a model there are as many
        channels as `preprocessing.mean` has numbers.

    Raises:
        FileNotFoundError, ValueError: names the files that do not exist or cannot be read; or an
            array has another shape, dtype or range; or the size or the channels are unknown.
    """
    if model is None and preprocessing is None and image_size is None:
        images = np.asarray(images)
        if images.dtype.kind in "USO" or images.ndim != 4:
            raise ValueError(
                "Without a model, images are an array of shape (images, height, width, channels): "
                "pass images[None] for one image, and preprocess(images, model) for files. "
                f"Received: no model, and an array of shape {images.shape}, dtype {images.dtype}"
            )
        check_pixels(images, "images")
        middle = 127.5 if images.dtype == np.uint8 else 0.5
        return (images.astype(np.float32) - middle) / middle
    wanted = input_of(model, preprocessing, image_size)
    return prepared(list_images(images, wanted[1]), wanted)[0]


def preprocess_readable(images, model):
    """What `preprocess` makes of a list of images, and the indices of those that cannot be read."""
    wanted = input_of(model)
    items = list_images(images, wanted[1], must_exist=False)
    batch, kept = prepared(items, wanted, skip_corrupt=True)
    return batch, sorted({*range(len(items))} - {*kept})


def prepared(items, wanted, rows=None, skip_corrupt=False):
    """(images, rows): some rows of `list_images` as `input_of` wants them, and which rows they are.

    Those that cannot be read are an error, or left out with a warning that names each.
    """
    rows = range(len(items)) if rows is None else rows
    read = functools.partial(pixels_of, channels=wanted[1])
    batch, errors = prepare([items[row] for row in rows], read, *wanted)
    names = {row: x if isinstance(x, PATHS) else f"images[{row}]" for row, x in enumerate(items)}
    told = [f"{names[rows[index]]}: {error}" for index, error in errors.items()]
    if told and not skip_corrupt:
        raise ValueError(
            f"{len(told)} of {len(items)} images cannot be read. Received:\n{listed(told)}\n"
            "Repair them or leave them out."
        )
    warn_of_unreadable(told, stacklevel=4)
    kept = [index for index in range(len(rows)) if index not in errors]
    return batch[kept] if errors else batch, [rows[index] for index in kept]


def warn_of_unreadable(told, stacklevel=2):
    """Warns of each image that cannot be read, by its name and the reason."""
    for text in told:
        warnings.warn(f"{text}; it is left out", stacklevel=stacklevel + 1)


def prepare(items, read, image_size, channels, preprocessing):
    """(images, {index: reason} of those that cannot be read): as `input_of` tells, in float32.

    `read` makes pixels of an item: uint8 in 0..255 or floats in [0, 1]. One image at a time is held
    at its full size.
    """
    mean, std = per_channel(preprocessing, channels)
    batch, errors = np.zeros((len(items), *image_size, channels), np.float32), {}
    for index, item in enumerate(items):
        try:
            with decoding():
                pixels = levels_of(read(item), channels)
                batch[index] = normalized(fit_image(pixels, image_size, preprocessing), mean, std)
        except ImageError as error:
            errors[index] = str(error)  # the error itself would keep the pixels
    return batch, errors


def input_of(model, preprocessing=None, image_size=None):
    """((height, width), channels, `Preprocessing`) of a model, or what is given instead."""
    inner = None
    if model is not None and preprocessing is None and not hasattr(model, "preprocessing"):
        if (inner := network_of_images(model)) is None:
            warnings.warn(
                f"{getattr(model, 'name', model)} does not say how its images are prepared: they "
                "are resized as a whole and mapped to [-1, 1]. Set model.preprocessing, such as to "
                "that of the model it was cloned from, and model.reading, unless it gives logits "
                "of a softmax.",
                stacklevel=3,
            )
    owner = model if inner is None else inner
    preprocessing = preprocessing or preprocessing_of(owner) or Preprocessing()
    rule = "preprocessing must be a keras_vit.preprocessing.Preprocessing"
    require(isinstance(preprocessing, Preprocessing), rule, received=preprocessing)
    *size, channels = image_shape_of(model)
    image_size = getattr(model, "image_size", None) if image_size is None else image_size
    if image_size is not None:
        size = pair(image_size, "image_size")
    elif None in size and (inner := inner or network_of_images(model, required=False)):
        size, channels = inner.image_size, channels or inner.channels
    channels = len(preprocessing.mean) if model is None else getattr(model, "channels", channels)
    if None in (*size, channels):
        raise ValueError(
            "The model must tell the size and channels of its images; pass image_size=(height, "
            f"width) if any size will do. Received: {type(model).__name__} with input_shape "
            f"{getattr(model, 'input_shape', None)}"
        )
    return tuple(size), channels, preprocessing


def list_images(images, channels, must_exist=True):
    """A list of the paths, PIL images and arrays in `images`, checked without decoding a file."""
    if isinstance(images, (*PATHS, Image.Image)) or not isinstance(images, Iterable):
        images = [images]
    elif hasattr(images, "__array__"):
        images = _array(images)
        if images.ndim == 4:
            return list(_checked(images, "images", channels))
        images = images.tolist() if images.dtype.kind in "OSU" else [images]  # of paths
    items = [each for x in images for each in (files_at(x) if isinstance(x, PATHS) else [x])]
    if not items:
        raise ValueError("No images. Received: an empty list; is the folder or the pattern right?")
    for index, item in enumerate(items):
        if isinstance(item, (*PATHS, Image.Image)):
            continue
        if not hasattr(item, "__array__"):
            raise ValueError(
                "images must be paths, PIL images or arrays, or a list of them. Received: item "
                f"{index} of type {type(item).__name__}"
            )
        array = _array(item)
        array = array[..., None] if array.ndim == 2 else array
        items[index] = _checked(array, f"images[{index}]", channels, rank=3)
    missing = [str(x) for x in items if isinstance(x, PATHS) and not os.path.exists(x)]
    if missing and must_exist:
        raise FileNotFoundError(
            f"{len(missing)} of {len(items)} images do not exist. Received:\n" + listed(missing)
        )
    return items


def _array(images):
    """An array without a mask, or a tensor, perhaps on a device or with gradients, in NumPy."""
    is_array = isinstance(images, np.ndarray)  # masks hide pixels from checks, not from models
    return np.asarray(images) if is_array else keras.ops.convert_to_numpy(images)


def _checked(array, name, channels, rank=4):
    if array.ndim != rank or 0 in array.shape[-3:]:
        raise ValueError(
            f"{name} must have shape (height, width, channels), or (height, width) for grayscale; "
            "several images in one array (images, height, width, channels). "
            f"Received: shape {array.shape}"
        )
    present = array.shape[-1]
    if present != channels and (present, channels) not in ((1, 3), (3, 1)):
        raise ValueError(
            f"{name} must have {channels} channels, as the model, on the last axis; several "
            f"grayscale images in one array need images[..., None]. Received: shape {array.shape}"
        )
    check_pixels(array, name)
    return array
