"""From stored pixels to what the models were trained on."""

import numpy as np

from keras_vit.checks import pair
from keras_vit.data.images import list_images, read_images
from keras_vit.data.resize import fit_image
from keras_vit.preprocessing import Preprocessing


def preprocess(images, model=None, preprocessing=None, image_size=None):
    """Makes images of any kind and size what a model was trained on.

    With a model, each image is read, resized, cropped and normalised as the authors of its
    weights did it: `model.preprocessing` says how. With nothing but an array, its pixels are
    mapped to [-1, 1], the value range of the authors' models, and keep their size.

    ```python
    model(keras_vit.data.preprocess(["cat.jpg", "dog.png"], model))
    ```

    Args:
        images: a path, a PIL image, an array of shape (height, width, channels), or (height,
            width) for grayscale; a list of any of these, of different sizes if need be; or an
            array of shape (images, height, width, channels). Arrays are uint8 in 0..255, or
            floats in [0, 1]. Alone, only the last kind.
        model: a `VisionTransformer`, or any Keras model of images (batch, height, width,
            channels). What it does not say is `Preprocessing()`.
        preprocessing: a `keras_vit.preprocessing.Preprocessing` instead of the model's.
        image_size: int or (height, width) in pixels instead of the model's.

    Returns:
        float32 array of shape (images, height, width, channels). Grayscale becomes RGB and RGB
        grayscale as the model needs; transparency is dropped. Without a model there are as many
        channels as `preprocessing.mean` has numbers. An array alone keeps its shape, and becomes
        (x - 127.5) / 127.5 from uint8, 2x - 1 from floats.

    Raises:
        FileNotFoundError: names the files that do not exist.
        ValueError: names the files that cannot be read; or an array has another shape, dtype or
            range; or the size, the channels or their mean and std are unknown.

    Source: input_pipeline.py of google-research/vision_transformer; for other families the
    transforms named in `keras_vit.data.resize`.
    """
    if model is None and preprocessing is None and image_size is None:
        return _to_unit_range(images)
    (height, width), channels, preprocessing = input_of(model, preprocessing, image_size)
    mean, std = (
        _per_channel(getattr(preprocessing, name), name, channels) for name in ("mean", "std")
    )
    items = list_images(images, channels)
    batch = np.empty((len(items), height, width, channels), np.float32)
    for index, pixels in enumerate(read_images(items, channels)):
        batch[index] = fit_image(pixels, (height, width), preprocessing)
    # Times 255, so that bytes become exactly what they become without a model.
    batch -= mean * np.float32(255)
    batch /= std * np.float32(255)
    return batch


def input_of(model, preprocessing=None, image_size=None):
    """What a model takes: ((height, width), channels, `Preprocessing`).

    Args:
        model: a Keras model, or None if the other two are given.
        preprocessing: instead of the model's.
        image_size: int or (height, width) instead of the model's.

    Raises:
        ValueError: neither the model nor the arguments tell the size or the channels.
    """
    preprocessing = preprocessing or getattr(model, "preprocessing", None) or Preprocessing()
    if not isinstance(preprocessing, Preprocessing):
        raise ValueError(
            "preprocessing must be a keras_vit.preprocessing.Preprocessing. "
            f"Received: {preprocessing!r}"
        )
    height, width, channels = _input_shape(model)
    size = image_size if image_size is not None else getattr(model, "image_size", None)
    size = (height, width) if size is None else pair(size, "image_size")
    channels = getattr(model, "channels", None) or channels
    channels = len(preprocessing.mean) if model is None else channels
    if None in (*size, channels):
        raise ValueError(
            "The model must tell the size and channels of its images; pass image_size=(height, "
            f"width) if any size will do. Received: {_described(model)}"
        )
    return size, channels, preprocessing


def _input_shape(model):
    """(height, width, channels) of a Keras model, None where it does not say."""
    shape = getattr(model, "input_shape", None)
    return shape[1:] if isinstance(shape, tuple) and len(shape) == 4 else (None, None, None)


def _described(model):
    if model is None:
        return "no model and no image_size"
    return f"{type(model).__name__} with input_shape {getattr(model, 'input_shape', None)}"


def _per_channel(values, name, channels):
    """Mean or std as an array; one number serves all channels if it is the same for all."""
    if len(values) != channels:
        if len(set(values)) > 1:
            raise ValueError(
                f"preprocessing.{name} must have one number for each of the {channels} channels of "
                f"the model; pass preprocessing=Preprocessing(...). Received: {name}={values}"
            )
        values = values[:1] * channels
    return np.array(values, np.float32)


def _to_unit_range(images):
    images = np.asarray(images)
    if images.dtype.kind in "USO":
        raise ValueError(
            "Files and PIL images are read for a model: preprocess(images, model). "
            f"Received: no model, and images of dtype {images.dtype}"
        )
    if images.ndim != 4:
        raise ValueError(
            "images must have shape (images, height, width, channels); use images[None] for "
            f"one image, or pass the model. Received: shape {images.shape}"
        )
    if images.dtype == np.uint8:
        pixels = images.astype(np.float32)
        pixels -= 127.5
        pixels /= 127.5
        return pixels
    if images.dtype.kind == "f":
        pixels = images.astype(np.float32)
        pixels *= 2.0
        pixels -= 1.0
        return pixels
    raise ValueError(
        "images must be uint8 in 0..255 or float in [0, 1]; convert with "
        f"images.astype('uint8') if the values are 0..255. Received: dtype {images.dtype}"
    )
