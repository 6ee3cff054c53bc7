"""From stored pixels to what the models were trained on."""

import numpy as np


def preprocess(images):
    """Maps pixels to float32 in [-1, 1], the value range of the authors' models.

    Args:
        images: shape (images, height, width, channels); uint8 in 0..255, or floats in
            [0, 1].

    Returns:
        float32 array of the same shape: (x - 127.5) / 127.5 for uint8, 2x - 1 for floats.

    Raises:
        ValueError: not rank 4, or another dtype.
    """
    images = np.asarray(images)
    if images.ndim != 4:
        raise ValueError(
            "images must have shape (images, height, width, channels); use images[None] for "
            f"one image. Received: shape {images.shape}"
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
