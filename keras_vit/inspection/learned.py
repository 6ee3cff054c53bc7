"""What the weights alone show: positions and filters (Fig. 7 left and centre, Fig. 10)."""

import typing

import keras
import numpy as np

from keras_vit.checks import positive_int
from keras_vit.inspection.forward import network_of, to_array
from keras_vit.layers import RotaryPosition
from keras_vit.layers.patch_encoder import PatchEncoder
from keras_vit.layers.position import PositionEmbedding
from keras_vit.models import VisionTransformer
from keras_vit.workarounds import one_at_a_time


def position_similarity(model: VisionTransformer, block: int | None = None) -> np.ndarray:
    """Cosine similarity of the position embedding of each patch with those of all patches.

    A model with rotary positions alone is compared by their angles: the similarity of two patches
    is the cosine of the angle between them, averaged over the pairs of values, and over the heads
    where each has learned frequencies of its own.

    Args:
        model: a `VisionTransformer` with positions of patches that are absolute or rotary.
        block: index of the block, if each has its own embedding
            (`position_at="every_layer"`) or frequencies; the first for `None`.

    Returns:
        float64 array of shape (rows, columns, rows, columns): [i, j] is the map for the patch in
        row i and column j. Class token and registers are left out.

    Raises:
        ValueError: the model has no such positions; relative ones belong to pairs of patches.

    Source: the paper's Fig. 7 centre, and Fig. 10 for other hyperparameters.
    """
    model = network_of(model)
    layer = _position_layer(model, block)
    with one_at_a_time(model):
        if isinstance(layer, RotaryPosition):
            turns = to_array(layer(np.zeros((1, 1, 1), "float32")))  # (2, tokens, heads, width)
            table = np.swapaxes(turns, 0, 1).reshape(turns.shape[1], -1)
        else:
            table = to_array(layer.table())[0]
    table = table[layer.learned_tokens :].astype("float64")
    lengths = np.linalg.norm(table, axis=1, keepdims=True)
    normal = table / np.where(lengths > 0, lengths, 1.0)
    return (normal @ normal.T).reshape(*layer.grid, *layer.grid)


def _position_layer(model, block):
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
    count = len(positions)
    if block is not None and not -count <= block < count:
        raise ValueError(
            f"{model.name} has {count} position embedding(s), so indices go from {-count} to "
            f"{count - 1}. Received: block={block}."
        )
    return positions[block or 0]


class FilterComponents(typing.NamedTuple):
    """What `filter_components` found.

    Attributes:
        components: (count, height, width, channels), each of length 1, the strongest first.
        explained: (count,) share of the variance of the filters, from 0 to 1.
    """

    components: np.ndarray
    explained: np.ndarray


def filter_components(model: keras.Model, count: int = 28) -> FilterComponents:
    """The first principal components of the patch embedding's filters: a `FilterComponents`.

    Each of the D columns of E is a filter over the P x P x C values of a patch. Their mean is
    subtracted. The sign of a component has no meaning; here its largest value is positive. In a
    hybrid, a BiT or another convolutional network the filters are those of its first convolution.

    Args:
        model: a `VisionTransformer`, `BiT`, or another Keras model with a convolution.
        count: how many at most; the paper shows 28.

    Raises:
        ValueError: the model has no filters over pixels.

    Source: the paper's Fig. 7 left.
    """
    count, filters = positive_int(count, "count"), pixel_filters(model)
    shape, rows = filters.shape[:-1], filters.reshape(-1, filters.shape[-1]).T
    rows = rows - rows.mean(axis=0)
    _, singular, components = np.linalg.svd(rows, full_matrices=False)
    largest = np.abs(components).argmax(axis=1)
    components *= np.sign(components[np.arange(len(components)), largest])[:, None]
    power = singular**2
    explained = power / power.sum() if power.sum() else power
    return FilterComponents(components[:count].reshape(-1, *shape), explained[:count])


def pixel_filters(model):
    """The filters over pixels, float64, shape (height, width, channels, filters)."""
    model = network_of(model)
    channels = getattr(model, "input_shape", (None,))[-1]
    with one_at_a_time(model):
        for owner, layer in _flat(model):
            variant = getattr(owner, "variant", None)
            channels = getattr(owner, "channels", channels)
            if isinstance(layer, PatchEncoder) and variant and variant.stem is None:
                kernel = to_array(layer.projection.exact_kernel)
                return kernel.reshape(*variant.patch_size, channels, -1).astype("float64")
            kernels = [v for v in layer.weights if len(v.shape) == 4 and v.shape[2] == channels]
            if kernels:
                return to_array(kernels[0]).astype("float64")
    raise ValueError(
        "A model with a patch embedding or a convolution over pixels is needed. Received: "
        f"{type(model).__name__} {getattr(model, 'name', '')!r}."
    )


def _flat(model):
    """(model, layer) of the layers of a model, and of models within it."""
    for layer in getattr(model, "layers", ()):
        yield from _flat(layer) if hasattr(layer, "layers") else [(model, layer)]
