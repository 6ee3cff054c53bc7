"""How alike layers are (linear CKA), how alike positions are, and how long tokens are."""

import typing
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import ArrayLike

from keras_vit.checks import check_choice, to_array
from keras_vit.inspection import forward
from keras_vit.layers import RotaryPosition
from keras_vit.layers.patch_encoder import PatchEncoder
from keras_vit.layers.position import PositionEmbedding
from keras_vit.layers.transformer_block import TransformerBlock
from keras_vit.models import VisionTransformer
from keras_vit.workarounds import one_at_a_time


def linear_cka(x: ArrayLike, y: ArrayLike, unbiased: bool = False) -> float:
    """Centred kernel alignment of two representations of the same examples, with linear kernels.

    It is 1 for representations that differ in nothing but a rotation or a scale.

    Args:
        x, y: arrays of shape (examples, ...); the axes after the first hold features.
        unbiased: whether to use the unbiased estimate of HSIC (Song et al., 2012), which needs
            four examples; it does not grow with the number of features, and may be below 0.

    Raises:
        ValueError: other numbers of examples, or too few.

    Source: Kornblith et al. (2019), "Similarity of neural network representations revisited".
    """
    x, y = (np.asarray(a) for a in (x, y))
    if x.ndim < 2 or y.ndim < 2 or len(x) != len(y) or len(x) < (4 if unbiased else 2):
        raise ValueError(
            "linear_cka compares features (examples, ...) of the same examples, at least "
            f"{4 if unbiased else 2}. Received: shapes {x.shape} and {y.shape}."
        )
    return float(_cka(_hsics([_gram(x), _gram(y)], unbiased))[0, 1])


def layer_similarity(
    model: keras.Model,
    images: Any,
    layers: Sequence[str] | None = None,
    other: keras.Model | None = None,
    other_layers: Sequence[str] | None = None,
    estimate: str = "minibatch",
    batch_size: int = 16,
) -> np.ndarray:
    """Linear CKA between layers of a model, or of two: a float64 array (layers, other layers).

    All tokens count: an image is one example whose features are all values of a layer's output.

    Args:
        model: a Functional Keras model.
        images: as in `attention_weights`, but the same array for both models.
        layers: names of layers; by default what enters the first block and leaves each.
        other, other_layers: the model to compare with, by default the same, and its layers.
        estimate: `"minibatch"`: unbiased HSIC, averaged over batches of images, one in memory at a
            time (Nguyen et al., 2021); `"exact"`: the original, with all features in memory.
        batch_size: images per call; for `"minibatch"` at least 4, and more are more precise.

    Raises:
        ValueError: no such layer, or too few images.
    """
    check_choice("estimate", estimate, ("minibatch", "exact"))
    exact, two = estimate == "exact", bool(other or other_layers)
    least = 2 if exact else 4
    seen, x, tensors = _tapped(model, images, layers)
    parts = forward.features(seen, tensors, x, batch_size)
    if two:
        seen, x, others = _tapped(other or model, images, other_layers)
        parts = ([*a, *b] for a, b in zip(parts, forward.features(seen, others, x, batch_size)))
    if exact:
        parts = [[np.concatenate(arrays) for arrays in zip(*parts)]]
    # The rest of the last batch may be too small to estimate anything from.
    whole = ([_gram(x) for x in features] for features in parts if len(features[0]) >= least)
    sums = [_hsics(grams, unbiased=not exact) for grams in whole]
    if not sums:
        raise ValueError(
            f"estimate={estimate!r} needs at least {least} images in a batch. Received: "
            f"{len(images)} images, batch_size={batch_size}."
        )
    similarity = _cka(sum(sums))
    return similarity[: len(tensors), len(tensors) :] if two else similarity


def _tapped(model, images, names):
    """(a model or the network in it, what enters it, the symbolic outputs of its layers)."""
    layers = {layer.name: layer for layer in getattr(model, "layers", ())}
    if names is None or any(name not in layers for name in names):
        model, images = forward.look_into(model, images)
        layers = {layer.name: layer for layer in getattr(model, "layers", ())}
    if names is None:
        classes = (PatchEncoder, TransformerBlock)
        names = [name for name, layer in layers.items() if isinstance(layer, classes)]
        # What enters the first block is this norm's output, if there is one.
        names[:1] = ["pre_norm"] if "pre_norm" in layers and names else names[:1]
    if not names or any(name not in layers for name in names):
        raise ValueError(
            f"layers must name layers of {getattr(model, 'name', model)!r}. Received: "
            f"layers={list(names)}; it has {list(layers)}."
        )
    tensors = [keras.tree.flatten(layers[name].output)[0] for name in names]
    return model, forward.as_inputs(model, images), tensors


def _gram(features):
    features = features.reshape(len(features), -1).astype("float64")
    features = features - features.mean(axis=0)  # changes nothing, but keeps the digits
    return features @ features.T


def _hsics(grams, unbiased):
    """HSIC of every pair of Gram matrices."""
    grams = np.stack(grams)
    n = grams.shape[-1]
    if not unbiased:
        flat = grams.reshape(len(grams), -1)  # the features are centred, and so are these
        return flat @ flat.T / (n - 1) ** 2
    # Song et al., Eq. 5: the diagonal, where an example meets itself, is left out.
    grams = grams * (1.0 - np.eye(n))
    flat, rows = grams.reshape(len(grams), -1), grams.sum(axis=-1)
    total = rows.sum(axis=-1)
    value = flat @ flat.T + np.outer(total, total) / ((n - 1) * (n - 2))
    return (value - 2 / (n - 2) * rows @ rows.T) / (n * (n - 3))


def _cka(hsics):
    norms = np.sqrt(np.clip(np.diag(hsics), 0.0, None))
    product = np.outer(norms, norms)
    return hsics / np.where(product > 0, product, np.inf)


def position_similarity(model: VisionTransformer, block: int | None = None) -> np.ndarray:
    """Cosine similarity of the position embedding of each patch with those of all patches.

    Rotary positions, where they are alone, are compared by the cosine of the angle between two
    patches, averaged over pairs of values, and over heads with frequencies of their own.

    Args:
        model: a `VisionTransformer` with positions of patches that are absolute or rotary.
        block: index of the block, if each has an embedding (`position_at="every_layer"`) or
            frequencies; the first for `None`.

    Returns:
        float64 (rows, columns, rows, columns): [i, j] is the map of the patch in row i, column j.

    Raises:
        ValueError: the model has no such positions; relative ones belong to pairs of patches.

    Source: the paper's Fig. 7 centre, and Fig. 10 for other hyperparameters.
    """
    model = forward.network_of(model)
    layers = getattr(model, "layers", ())
    layers = [*(layer.position for layer in layers if hasattr(layer, "position")), *layers]
    positions = [layer for layer in layers if isinstance(layer, PositionEmbedding)]
    positions = positions or [layer for layer in layers if isinstance(layer, RotaryPosition)]
    if not positions:
        position = getattr(getattr(model, "variant", None), "position", None)
        raise ValueError(
            "The model must have positions of single patches: position='learned_1d', 'learned_2d' "
            "or 'sincos_2d', or rotary ones; relative positions belong to pairs of patches. "
            f"Received: {model.name!r} with position={position!r}."
        )
    forward.check_indices(model, len(positions), "position embedding(s)", "block", block or 0)
    layer = positions[block or 0]
    with one_at_a_time(model):
        if isinstance(layer, RotaryPosition):
            turns = to_array(layer(np.zeros((1, 1, 1), "float32")))
            table = np.swapaxes(turns, 0, 1).reshape(turns.shape[1], -1)  # of (2, tokens, ...)
        else:
            table = to_array(layer.table())[0]
    table = table[layer.learned_tokens :].astype("float64")
    lengths = np.linalg.norm(table, axis=1, keepdims=True)
    normal = table / np.where(lengths > 0, lengths, 1.0)
    return (normal @ normal.T).reshape(*layer.grid, *layer.grid)


class TokenNorms(typing.NamedTuple):
    """The result of `token_norms`.

    Attributes:
        learned: (blocks, images, learned tokens), as in `Layout.names`.
        patches: (blocks, images, rows, columns).
    """

    learned: np.ndarray
    patches: np.ndarray

    def outliers(self, factor=4.0):
        """Which `patches` are longer than `factor` times the median of their block.

        Darcet et al. set a length for each model (150 for DINOv2-g); the median serves all.
        """
        return self.patches > factor * np.median(self.patches, axis=(1, 2, 3), keepdims=True)


def token_norms(
    model: VisionTransformer, images: Any, blocks: Sequence[int] | None = None, batch_size: int = 8
) -> TokenNorms:
    """The Euclidean length of each token after each block, before any last LayerNorm: `TokenNorms`.

    The arguments are as in `attention_weights`.

    Source: Darcet et al. (2024), "Vision transformers need registers", Fig. 3 and 4.
    """
    model, images = forward.look_into(model, images)
    outputs = [block.output for block in forward.transformer_blocks(model, blocks)]
    layout = forward.layout_of(model, images.shape[1:3])
    parts = [
        np.stack([np.linalg.norm(x.astype("float64"), axis=-1) for x in tokens])
        for tokens in forward.features(model, outputs, images, batch_size)
    ]
    learned, patches = np.split(np.concatenate(parts, axis=1), [layout.learned], axis=2)
    return TokenNorms(learned, patches.reshape(*patches.shape[:2], *layout.grid))
