"""Similarity of position embeddings (Fig. 7 centre, Fig. 10)."""

import numpy as np

from keras_vit.inspection.tokens import to_array
from keras_vit.layers.position import PositionEmbedding


def position_similarity(model, block=None):
    """Cosine similarity of the position embedding of each patch with those of all patches.

    Args:
        model: a `VisionTransformer` with absolute position embeddings of patches.
        block: index of the block, where each has its own embedding
            (`position_at="every_layer"`); the first for `None`.

    Returns:
        float64 array of shape (rows, columns, rows, columns): [i, j] is the map for the patch in
        row i and column j. Values lie in [-1, 1], 1 with itself. Class token and registers are
        left out.

    Raises:
        ValueError: the model has no such embedding.

    Source: the paper's Fig. 7 centre, and Fig. 10 for other hyperparameters.
    """
    layer = _position_layer(model, block)
    table = to_array(layer.table())[0, layer.learned_tokens :].astype("float64")
    return cosine_similarity(table).reshape(*layer.grid, *layer.grid)


def cosine_similarity(vectors):
    """The cosine of the angle between any two rows; vectors of length 0 have cosine 0."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    normal = vectors / np.where(lengths > 0, lengths, 1.0)
    return normal @ normal.T


def _position_layer(model, block):
    layers = getattr(model, "layers", ())
    found = [getattr(layer, "position", None) for layer in layers if layer.name == "patch_encoder"]
    found += [layer for layer in layers if layer.name.startswith("position")]
    found = [layer for layer in found if isinstance(layer, PositionEmbedding)]
    if not found:
        kind = getattr(getattr(model, "variant", None), "position", None)
        raise ValueError(
            "A model with position embeddings of its patches is needed, position='learned_1d', "
            f"'learned_2d' or 'sincos_2d'. Received: {type(model).__name__} {model.name!r} with "
            f"position={kind!r}."
        )
    if block is not None and not -len(found) <= block < len(found):
        raise ValueError(
            f"{model.name} has {len(found)} position embedding(s), so indices go from "
            f"{-len(found)} to {len(found) - 1}. Received: block={block}."
        )
    return found[block or 0]
