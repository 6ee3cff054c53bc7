"""Attention weights of a model, exactly as it computes them (Eq. 6)."""

import itertools

import numpy as np

from keras_vit.checks import check_choice, pair
from keras_vit.inspection.forward import as_list, cached, inference, iterate_outputs, to_array
from keras_vit.inspection.inputs import as_inputs, layout_of, transformer_blocks
from keras_vit.layers.head import AttentionPool
from keras_vit.layers.resample import resize_matrix

FUSIONS = ("mean", "min", "max")


def attention_weights(model, images, blocks=None, heads=None, batch_size=8):
    """A = softmax(q kᵀ / √D_h) of some blocks for some images.

    The model is read, not changed: its outputs stay what they are. It holds the attention of one
    block for one batch at a time; `heads` makes what is returned as many times smaller as there
    are heads.

    Args:
        model: a `VisionTransformer`.
        images: preprocessed images, (batch, height, width, channels); or what
            `keras_vit.preprocess` takes.
        blocks: indices of blocks, negative ones counting from the last; `None` for all.
        heads: `"mean"`, `"min"` or `"max"` over the heads, or `None` for each.
        batch_size: images per call of the model.

    Returns:
        A list with one float array of shape (batch, heads, tokens, tokens) per block, or (batch,
        tokens, tokens) where the heads are fused; rows belong to queries and sum to 1 (in each
        head, and in their mean). The class token, if any, is token 0, then come registers.

    Raises:
        ValueError: the model has no such block; images that it does not take.
    """
    parts = list(iterate_attention(model, images, blocks, batch_size, fused(heads)))
    return [np.concatenate(arrays) for arrays in zip(*parts)]


def attention_maps(model, images, block=-1, query=None, heads="mean", batch_size=8):
    """Where one block looks in each image: attention from one token to the patches.

    The values of an image sum to the attention that is not given to the class token or registers.
    `upsample` brings them to the size of the image.

    Args:
        model, images, batch_size: as in `attention_weights`.
        block: index of the block.
        query: who asks: `"class"` for the class token, `"mean"` for the mean over all patches,
            (row, column) for one patch, a number for any token; `None` for the class token or,
            without one, the mean.
        heads: `"mean"`, `"min"` or `"max"` over the heads, or `None` for a map of each.

    Returns:
        float array of shape (batch, rows, columns), one value per patch, or (batch, heads, rows,
        columns).

    Raises:
        ValueError: the model has no such block or token; images that it does not take.
    """
    images = as_inputs(model, images)
    layout, fuse = layout_of(model, images.shape[1:3]), fused(heads)
    parts = iterate_attention(
        model, images, [block], batch_size, lambda a: layout.query_rows(fuse(a), query)
    )
    return np.concatenate([maps for (maps,) in parts])


def probe_maps(model, images, heads="mean", batch_size=8):
    """Where the probe of attention pooling looks in each image (MAP; Zhai et al., 2022).

    Such a model has no class token whose attention would tell what the prediction rests on.

    Args:
        model: a `VisionTransformer` with `pool="map"`.
        images, heads, batch_size: as in `attention_maps`.

    Returns:
        float array of shape (batch, rows, columns), one value per patch, or (batch, heads, rows,
        columns). The values of an image sum to the attention that learned tokens do not get.

    Raises:
        ValueError: the model pools in another way; images that it does not take.
    """
    images, fuse = as_inputs(model, images), fused(heads)
    layout = layout_of(model, images.shape[1:3])
    pools = [layer for layer in model.layers if isinstance(layer, AttentionPool)]
    if not pools:
        raise ValueError(
            f'{model.name} has no attention pooling (pool="map"), so there is no probe that looks '
            "anywhere; attention_maps shows where the class token or the patches look."
        )
    (pool,) = pools
    run = cached(
        model,
        "attention of the probe",
        lambda: inference(pool.attention_scores, pool.variables),
    )
    parts = []
    for (x,), count in iterate_outputs(
        model, [pool.input], "tokens before the pool", images, batch_size
    ):
        rows = fuse(to_array(run(x))[:count])[..., 0, layout.learned :]
        parts.append(rows.reshape(*rows.shape[:-1], *layout.grid))
    return np.concatenate(parts)


def iterate_attention(model, images, blocks=None, batch_size=8, reduce=lambda a: a):
    """For each batch of images: a list with `reduce(A)` of each block.

    A has shape (batch, heads, tokens, tokens); that of one block is in memory at a time.
    """
    images, chosen = as_inputs(model, images), transformer_blocks(model, blocks)
    everywhere = [as_list(block.input) for block in transformer_blocks(model)]
    parts = [len(tensors) for tensors in everywhere]
    scores = [
        cached(
            model,
            f"attention of {block.name}",
            lambda block=block: inference(block.attention_scores, block.variables),
        )
        for block in chosen
    ]
    places = [transformer_blocks(model).index(block) for block in chosen]
    tensors = list(itertools.chain(*everywhere))
    key = "tokens before blocks"
    for found, count in iterate_outputs(model, tensors, key, images, batch_size):
        first = [sum(parts[:place]) for place in places]
        yield [
            reduce(to_array(run(*found[start : start + parts[place]]))[:count])
            for run, start, place in zip(scores, first, places)
        ]


def fused(heads):
    """The function from (..., heads, tokens, tokens) that takes the heads together as asked."""
    check_choice("heads", heads, (*FUSIONS, None))
    return (lambda a: a) if heads is None else (lambda a: getattr(a, heads)(axis=-3))


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
