"""Images in their own aspect ratio as padded sequences of patches (NaFlex)."""

import math
from typing import Any

import numpy as np

from keras_vit.checks import positive_int
from keras_vit.data.pixels import bytes_of, pixels_of
from keras_vit.data.preprocess import list_images
from keras_vit.data.resize import pillow_resize


def naflex_size(image_size, patch_size, max_patches):
    """The (height, width) at which an image of (height, width) has at most so many patches.

    It is the largest scale that fits, both sides rounded up to whole patches, by the same halving
    as in image_processing_siglip2.py of transformers, so that the same images get the same size.
    """

    def scaled(scale):
        return tuple(
            max(math.ceil(side * scale / patch) * patch, patch)
            for side, patch in zip(image_size, patch_size)
        )

    low, high = 1e-6, 100.0
    while high - low >= 1e-5:
        middle = (low + high) / 2
        height, width = scaled(middle)
        fits = (height / patch_size[0]) * (width / patch_size[1]) <= max_patches
        low, high = (middle, high) if fits else (low, middle)
    return scaled(low)


def naflex_inputs(images: Any, model: Any, max_patches: int = 256) -> dict[str, np.ndarray]:
    """What a `NaFlexVisionTransformer` takes, of images of any kind and shape.

    Each image is resized, as large as its patches allow, with its aspect ratio kept (up to whole
    patches), and mapped to [-1, 1].

    Args:
        images: as in `keras_vit.preprocess`.
        model: the `NaFlexVisionTransformer`, for its patch size and channels.
        max_patches: the length of the sequences.

    Returns:
        A dict of `patches` (images, max_patches, P²·C), float32; `mask` (images, max_patches) and
        `shapes` (images, 2), int32.
    """
    max_patches, patch = positive_int(max_patches, "max_patches"), model.variant.patch_size
    items = list_images(images, model.channels)
    patches = np.zeros((len(items), max_patches, patch[0] * patch[1] * model.channels), "float32")
    mask = np.zeros((len(items), max_patches), "int32")
    shapes = np.zeros((len(items), 2), "int32")
    for i, item in enumerate(items):
        pixels = bytes_of(pixels_of(item, model.channels), model.channels)
        size = naflex_size(pixels.shape[:2], patch, max_patches)
        pixels = pillow_resize(pixels, size, "bilinear").astype("float32") / 127.5 - 1.0
        rows, columns = shapes[i] = [side // p for side, p in zip(size, patch)]
        pixels = pixels.reshape(rows, patch[0], columns, patch[1], -1).transpose(0, 2, 1, 3, 4)
        patches[i, : rows * columns] = pixels.reshape(rows * columns, -1)
        mask[i, : rows * columns] = 1
    return {"patches": patches, "mask": mask, "shapes": shapes}
