"""Mean attention distance: how far a head looks, in pixels (Fig. 7 right, appendix D.7)."""

import numpy as np

from keras_vit.checks import pair
from keras_vit.inspection.attention import iterate_attention
from keras_vit.inspection.inputs import as_inputs, layout_of


def attention_distance(weights, grid, patch_size, renormalize=True):
    """The distance between the centres of query and key patches, weighted by attention.

    Learned tokens, which stand before the patches, have no place and are left out as queries and
    as keys; the mean is taken over the patches that ask.

    Args:
        weights: array of shape (..., tokens, tokens).
        grid: (rows, columns) of the patches; the last rows * columns tokens are the patches.
        patch_size: int or (height, width) in pixels, from one patch to the next.
        renormalize: whether what is left of a row sums to 1 again, so that the distance is an
            average over the patches. `False` counts attention to learned tokens as distance 0,
            as the example "Investigating Vision Transformer representations" of keras.io does.

    Returns:
        float64 array of shape (...), in pixels.

    Raises:
        ValueError: weights of another shape.

    Source: the paper's Fig. 7 right and 11: "the distance in image space across which information
    is integrated, based on the attention weights".
    """
    weights, patches = np.asarray(weights), grid[0] * grid[1]
    if weights.ndim < 2 or weights.shape[-1] != weights.shape[-2] or weights.shape[-1] < patches:
        raise ValueError(
            f"weights must have shape (..., tokens, tokens) with at least {patches} tokens for "
            f"grid={tuple(grid)}. Received: shape {weights.shape}."
        )
    weights = weights[..., -patches:, -patches:].astype("float64")
    distance = (weights * patch_distances(grid, patch_size)).sum(axis=-1)
    if renormalize:
        total = weights.sum(axis=-1)
        # All attention of a patch may go to learned tokens: then it looks nowhere.
        distance = distance / np.where(total > 0, total, 1.0)
    return distance.mean(axis=-1)


def attention_distances(model, images, blocks=None, renormalize=True, batch_size=8):
    """`attention_distance` of each block and head for each image.

    The attention of one block for one batch of images is held at a time. The paper averages over
    128 images: `attention_distances(model, images).mean(axis=1)`.

    Args:
        model, images, blocks, batch_size: as in `attention_weights`.
        renormalize: as in `attention_distance`.

    Returns:
        float64 array of shape (blocks, images, heads), in pixels of the model's input.

    Raises:
        ValueError: the model has no such block; images that it does not take.
    """
    images = as_inputs(model, images)
    layout = layout_of(model, images.shape[1:3])
    parts = iterate_attention(
        model,
        images,
        blocks,
        batch_size,
        lambda a: attention_distance(a, layout.grid, layout.stride, renormalize),
    )
    return np.concatenate([np.stack(blocks) for blocks in parts], axis=1)


def patch_distances(grid, patch_size):
    """Euclidean distances in pixels between patch centres, shape (patches, patches)."""
    height, width = pair(patch_size, "patch_size")
    row, column = np.divmod(np.arange(grid[0] * grid[1]), grid[1])
    return np.hypot((row[:, None] - row) * float(height), (column[:, None] - column) * float(width))
