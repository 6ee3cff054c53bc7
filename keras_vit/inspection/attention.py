"""Attention exactly as the model computes it (Eq. 6), its rollout, and how far it reaches."""

import functools
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import ArrayLike

from keras_vit.checks import check_choice, pair, to_array
from keras_vit.inspection import forward
from keras_vit.layers import AttentionPool
from keras_vit.layers.resample import resize_matrix
from keras_vit.models import VisionTransformer
from keras_vit.models.intermediate import BlockAttention


def attention_weights(
    model: VisionTransformer,
    images: Any,
    blocks: Sequence[int] | None = None,
    heads: str | None = None,
    batch_size: int = 8,
) -> list[np.ndarray]:
    """A = softmax(q kᵀ / √D_h) of some blocks for some images.

    Args:
        model: a `VisionTransformer`, or a Keras model of images around one (`keras_vit.backbone`).
        images: preprocessed (batch, height, width, channels), or what `keras_vit.preprocess` takes.
        blocks: indices of blocks, negative ones counting from the last; `None` for all.
        heads: `"mean"`, `"min"` or `"max"` over the heads, or `None` for each.
        batch_size: images per call of the model.

    Returns:
        For each block a float array (batch, heads, tokens, tokens), or (batch, tokens, tokens) of
        fused heads. Rows belong to queries and sum to 1, except those of `"min"` and `"max"`. The
        class token, if any, is token 0; a distillation token and registers follow.

    Raises:
        ValueError: the model has no such block, or does not take the images.
    """
    parts = iterate_attention(model, images, blocks, batch_size, fused(heads))
    return [np.concatenate(arrays) for arrays in zip(*parts)]


def attention_maps(
    model: VisionTransformer,
    images: Any,
    block: int = -1,
    query: str | int | tuple[int, int] | None = None,
    heads: str | None = "mean",
    batch_size: int = 8,
) -> np.ndarray:
    """Where one block looks in each image: attention from one token to the patches.

    Args:
        model, images, heads, batch_size: as in `attention_weights`.
        block: index of the block.
        query: who asks: the token `"class"` or `"distillation"`, a patch (row, column), a token by
            its number, or the `"mean"` of all patches; `None`: the class token or else the mean.

    Returns:
        A float array (batch, rows, columns), or (batch, heads, rows, columns) with `heads=None`.
        The values of an image sum to the attention that is not given to learned tokens.
    """
    model, images = forward.look_into(model, images)
    layout, fuse = forward.layout_of(model, images.shape[1:3]), fused(heads)
    parts = iterate_attention(
        model, images, [block], batch_size, lambda a: layout.query_rows(fuse(a), query)
    )
    return np.concatenate([maps for (maps,) in parts])


def probe_maps(
    model: VisionTransformer, images: Any, heads: str | None = "mean", batch_size: int = 8
) -> np.ndarray:
    """Where the probe of attention pooling looks in each image (MAP; Zhai et al., 2022).

    With `pool="map"` or `"probe"` it stands in place of a class token. Arguments, result and errors
    are as in `attention_maps`; a model that pools in another way is a ValueError.
    """
    (model, images), fuse = forward.look_into(model, images), fused(heads)
    layout = forward.layout_of(model, images.shape[1:3])
    pool = next((layer for layer in model.layers if isinstance(layer, AttentionPool)), None)
    if pool is None:
        raise ValueError(
            "Only attention pooling has a probe; attention_maps shows where the class token or the "
            f'patches look. Received: {model.name}, which has no attention pooling (pool="map").'
        )
    run = forward.compiled(model, "probe", pool.attention_scores)
    parts = forward.outputs(model, pool.input, images, batch_size)
    scores = np.concatenate([fuse(to_array(run(x))[:count]) for x, count in parts])
    maps = scores[..., 0, layout.learned :]
    return maps.reshape(*maps.shape[:-1], *layout.grid)


def upsample(maps: ArrayLike, image_size: int | tuple[int, int]) -> np.ndarray:
    """Maps of patches as maps of pixels: (..., rows, columns) -> (..., height, width).

    The value of a patch stands at its centre; in between it is linear. `image_size` is in pixels.
    Maps without rows or columns are a ValueError.
    """
    maps, (height, width) = np.asarray(maps), pair(image_size, "image_size")
    if maps.ndim < 2 or 0 in maps.shape[-2:]:
        raise forward.shape_error("maps", "(..., rows, columns)", maps)
    rows = resize_matrix(maps.shape[-2], height, "bilinear")
    columns = resize_matrix(maps.shape[-1], width, "bilinear")
    return (rows @ maps @ columns.T).astype(np.result_type(maps.dtype, "float32"))


def rollout(weights: Sequence[ArrayLike], heads: str = "mean") -> np.ndarray:
    """Multiplies attention through the blocks: the product of the row-normalised A + I.

    Args:
        weights: for each block, in their order, an array of shape (..., heads, tokens, tokens).
        heads: how the heads of a block are fused: `"mean"` (the paper), `"max"` or `"min"`.

    Returns:
        float64 (..., tokens, tokens): row i, whose sum is 1, holds the share of each token of the
        input in token i of the output.

    Raises:
        ValueError: no blocks, or arrays of another shape.

    Source: Abnar & Zuidema (2020), "Quantifying attention flow in transformers"; Fig. 6, D.8.
    """
    result, fuse = None, fused(heads or "mean")
    for attention in weights:
        attention, expected = np.asarray(attention, "float64"), "(..., heads, tokens, tokens)"
        if attention.ndim < 3 or attention.shape[-1] != attention.shape[-2]:
            raise forward.shape_error("weights of each block", expected, attention)
        step = fuse(attention) + np.eye(attention.shape[-1])
        step /= step.sum(axis=-1, keepdims=True)
        result = step if result is None else step @ result
    if result is None:
        raise ValueError("weights must be those of at least one block. Received: none.")
    return result


def rollout_maps(
    model: VisionTransformer,
    images: Any,
    query: str | int | tuple[int, int] | None = None,
    heads: str = "mean",
    blocks: Sequence[int] | None = None,
    batch_size: int = 8,
) -> np.ndarray:
    """Rollout from one token to the patches of each image, as in Fig. 6 and 14 of the paper.

    Args:
        model, images, query, batch_size: as in `attention_maps`.
        heads: as in `rollout`.
        blocks: indices of consecutive blocks; `None` for all.

    Returns:
        A float64 array (batch, rows, columns). An image sums to 1 less what learned tokens give.
    """
    (model, images), fuse = forward.look_into(model, images), fused(heads or "mean")
    layout = forward.layout_of(model, images.shape[1:3])
    # Fused block by block, so that the heads of one block are all that is held.
    parts = iterate_attention(model, images, blocks, batch_size, lambda a: fuse(a)[:, None])
    return np.concatenate([layout.query_rows(rollout(weights), query) for weights in parts])


def attention_distance(
    weights: ArrayLike,
    grid: tuple[int, int],
    patch_size: int | tuple[int, int],
    renormalize: bool = True,
) -> np.ndarray:
    """The distance between the centres of query and key patches, weighted by attention.

    Learned tokens, which have no place, are left out. The mean is taken over the queries. An array
    of another shape is a ValueError.

    Args:
        weights: (..., tokens, tokens); the last tokens are the patches.
        grid: (rows, columns) of the patches.
        patch_size: int or (height, width) in pixels, from one patch to the next.
        renormalize: whether to divide a row by its attention to patches; otherwise attention to
            learned tokens counts as distance 0, as in keras.io's "Investigating Vision Transformer
            representations".

    Returns:
        A float64 array (...), in pixels.

    Source: the paper's Fig. 7 right and 11.
    """
    weights, patches = np.asarray(weights), grid[0] * grid[1]
    if weights.ndim < 2 or weights.shape[-1] != weights.shape[-2] or weights.shape[-1] < patches:
        expected = f"(..., tokens, tokens) with at least {patches} tokens"
        raise forward.shape_error("weights", expected, weights)
    weights = weights[..., -patches:, -patches:].astype("float64")
    height, width = pair(patch_size, "patch_size")
    row, column = np.divmod(np.arange(patches), grid[1])
    pixels = np.hypot((row[:, None] - row) * height, (column[:, None] - column) * width)
    distance = (weights * pixels).sum(axis=-1)
    if renormalize:
        total = weights.sum(axis=-1)
        # All attention of a patch may go to learned tokens: then it looks nowhere.
        distance = distance / np.where(total > 0, total, 1.0)
    return distance.mean(axis=-1)


def attention_distances(
    model: VisionTransformer,
    images: Any,
    blocks: Sequence[int] | None = None,
    renormalize: bool = True,
    batch_size: int = 8,
) -> np.ndarray:
    """`attention_distance` of each block and head for each image, float64, in pixels of the input.

    The shape is (blocks, images, heads). The paper averages over 128 images:
    `attention_distances(model, images).mean(axis=1)`. Arguments are as in `attention_weights`.
    """
    model, images = forward.look_into(model, images)
    layout = forward.layout_of(model, images.shape[1:3])
    place = {"grid": layout.grid, "patch_size": layout.stride, "renormalize": renormalize}
    distance = functools.partial(attention_distance, **place)
    parts = iterate_attention(model, images, blocks, batch_size, distance)
    return np.concatenate([np.stack(of_blocks) for of_blocks in parts], axis=1)


def iterate_attention(model, images, blocks, batch_size, reduce):
    """For each batch of images: a list with `reduce(A)` of each block.

    A has shape (batch, heads, tokens, tokens); that of one block is in memory at a time.
    """
    model, images = forward.look_into(model, images)
    chosen = forward.transformer_blocks(model, blocks)
    # The tokens before every block, so that one program serves all choices of blocks.
    entering = {b.name: keras.tree.flatten(b.input) for b in forward.transformer_blocks(model)}
    scores = {
        block.name: forward.compiled(model, f"attention {block.name}", BlockAttention(block).call)
        for block in chosen
    }
    for tokens, count in forward.outputs(model, entering, images, batch_size):
        yield [reduce(to_array(scores[b.name](*tokens[b.name]))[:count]) for b in chosen]


def fused(heads):
    """The function from (..., heads, tokens, tokens) that takes the heads together as asked."""
    check_choice("heads", heads, ("mean", "min", "max", None))
    return (lambda a: a) if heads is None else (lambda a: getattr(a, heads)(axis=-3))
