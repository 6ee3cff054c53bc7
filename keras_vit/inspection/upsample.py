"""From a value per patch to a value per pixel."""

import numpy as np

from keras_vit.checks import check_choice, pair
from keras_vit.layers.resample import resize_matrix


def upsample(maps, image_size, method="bilinear"):
    """Lays maps over images: one value per patch becomes one per pixel.

    ```python
    overlay = upsample(attention_maps(model, images, heads=None), model.image_size)
    ```

    Args:
        maps: array of shape (..., rows, columns): of images, heads, blocks or queries.
        image_size: int or (height, width) in pixels.
        method: `"bilinear"`: the value of a patch stands at its centre, linear in between;
            `"nearest"`: the same value for all pixels of a patch.

    Returns:
        float array of shape (..., height, width). Where the patches tile the image, `"nearest"`
        keeps the mean of a map exactly.

    Raises:
        ValueError: no maps, or an unknown method.
    """
    check_choice("method", method, ("bilinear", "nearest"))
    maps, size = np.asarray(maps), pair(image_size, "image_size")
    if maps.ndim < 2 or 0 in maps.shape[-2:]:
        raise ValueError(
            f"maps must have shape (..., rows, columns). Received: shape {maps.shape}."
        )
    maps = maps.astype(np.result_type(maps.dtype, "float32"), copy=False)
    if method == "nearest":
        row, column = (
            np.arange(side) * patches // side for side, patches in zip(size, maps.shape[-2:])
        )
        return maps[..., row[:, None], column]
    row, column = (
        resize_matrix(patches, side, "bilinear").astype(maps.dtype)
        for side, patches in zip(size, maps.shape[-2:])
    )
    return row @ maps @ column.T
