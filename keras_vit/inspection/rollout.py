"""Attention rollout: how much of each patch reaches a token through all blocks."""

import numpy as np

from keras_vit.inspection.attention import fused, iterate_attention
from keras_vit.inspection.inputs import as_inputs, layout_of


def rollout(weights, heads="mean"):
    """Multiplies attention through the blocks: the product of the row-normalised A + I.

    Args:
        weights: for each block, in their order, an array of shape (..., heads, tokens, tokens).
        heads: how the heads of a block become one: `"mean"` (the paper), `"max"` or `"min"`.

    Returns:
        float64 array of shape (..., tokens, tokens): row i tells from which tokens of the input
        token i of the output comes. Rows sum to 1.

    Raises:
        ValueError: no blocks, or arrays of another shape.

    Source: Abnar & Zuidema (2020), "Quantifying attention flow in transformers"; Fig. 6 and
    appendix D.8 of the paper.
    """
    result, fuse = None, fused(heads or "mean")
    for attention in weights:
        attention = np.asarray(attention, "float64")
        if attention.ndim < 3 or attention.shape[-1] != attention.shape[-2]:
            raise ValueError(
                "weights must be a list of arrays of shape (batch, heads, tokens, tokens), one for "
                f"each block. Received: one of shape {attention.shape}."
            )
        step = with_residual(fuse(attention))
        result = step if result is None else step @ result
    if result is None:
        raise ValueError("Rollout needs the attention of at least one block. Received: none.")
    return result


def rollout_maps(model, images, query=None, heads="mean", blocks=None, batch_size=8):
    """Rollout from one token to the patches of each image, as in Fig. 6 and 14 of the paper.

    Args:
        model, images, batch_size: as in `attention_weights`.
        query: as in `attention_maps`.
        heads: as in `rollout`.
        blocks: indices of consecutive blocks; `None` for all.

    Returns:
        float64 array of shape (batch, rows, columns). The values of an image sum to 1 less what
        comes from the class token and registers.

    Raises:
        ValueError: the model has no such block or token; images that it does not take.
    """
    images, fuse = as_inputs(model, images), fused(heads or "mean")
    layout = layout_of(model, images.shape[1:3])
    # Fused block by block, so that the heads of one block are all that is held.
    parts = iterate_attention(model, images, blocks, batch_size, lambda a: fuse(a)[:, None])
    return np.concatenate([layout.query_rows(rollout(weights), query) for weights in parts])


def with_residual(attention):
    """(A + I) with rows that sum to 1: half of a token is what it was before the block."""
    mixed = attention + np.eye(attention.shape[-1])
    return mixed / mixed.sum(axis=-1, keepdims=True)
