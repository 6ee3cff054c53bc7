"""Principal components: of patch tokens, as DINO's pictures, and of patch filters (Fig. 7 left)."""

import typing
from typing import Any

import keras
import numpy as np

from keras_vit.checks import positive_int, to_array
from keras_vit.inspection import forward
from keras_vit.models import VisionTransformer
from keras_vit.models.intermediate import final_norm
from keras_vit.workarounds import one_at_a_time


class PatchComponents(typing.NamedTuple):
    """The result of `patch_components`.

    Attributes:
        values: (images, rows, columns, count) components of each patch, NaN in the background.
        foreground: (images, rows, columns) which patches they were fitted to.
        explained: (count,) share of the variance of these patches, from 0 to 1.
    """

    values: np.ndarray
    foreground: np.ndarray
    explained: np.ndarray


def patch_components(
    model: VisionTransformer,
    images: Any,
    count: int = 3,
    block: int = -1,
    foreground: float | np.ndarray | None = None,
    norm: bool = True,
    batch_size: int = 8,
) -> PatchComponents:
    """The first principal components of the patch tokens of all images: a `PatchComponents`.

    They are fitted to all images together, without learned tokens, so that what is alike has alike
    values. Their signs are arbitrary: here the first is larger inside the images than at their
    borders, and each other one is positive where it is farthest from 0.

    Args:
        model, images, batch_size: as in `attention_weights`.
        count: how many components.
        block: index of the block after which the tokens are taken.
        foreground: the patches to fit to: `None` for all; booleans (images, rows, columns); or a
            number, such as 0: those whose first component is above it, as of the authors.
        norm: whether the tokens get the model's last norm, unless that follows the pooling.

    Raises:
        ValueError: more components than a token has values; a foreground of no patches, or of
            patches that are all alike; images that the model does not take.

    Source: Oquab et al. (2024), "DINOv2: learning robust visual features", Fig. 1.
    """
    model, images = forward.look_into(model, images)
    (tokens,) = patch_tokens(model, images, [block], norm, batch_size)
    if positive_int(count, "count") > tokens.shape[-1]:
        raise ValueError(f"A token has {tokens.shape[-1]} values. Received: count={count}.")
    return components_of(tokens, count, foreground)


def patch_tokens(model, images, blocks, norm=True, batch_size=8):
    """The patch tokens after each of some blocks, float64 (images, rows, columns, width)."""
    outputs = [block.output for block in forward.transformer_blocks(model, blocks)]
    layout, last = forward.layout_of(model, images.shape[1:3]), final_norm(model) if norm else None
    normalise = forward.compiled(model, "norm", last) if last else lambda x: x
    batches = [
        [to_array(normalise(x))[:size, layout.learned :] for x in tokens]
        for tokens, size in forward.outputs(model, outputs, images, batch_size)
    ]
    shape = (len(images), *layout.grid, model.variant.width)
    return [np.concatenate(parts).astype("float64").reshape(shape) for parts in zip(*batches)]


def components_of(tokens, count=3, foreground=None):
    """The `PatchComponents` of what `patch_tokens` gives for a block."""
    everywhere = np.ones(tokens.shape[:3], bool)
    mask = everywhere if foreground is None else np.asarray(foreground)
    if mask.ndim == 0:
        mask = _fitted(tokens, everywhere, 1)[0][..., 0] > foreground
    elif mask.shape != everywhere.shape or mask.dtype != bool:
        raise ValueError(
            f"foreground must be a number or booleans of shape {everywhere.shape}. Received: "
            f"shape {mask.shape}, dtype {mask.dtype}."
        )
    values, explained = _fitted(tokens, mask, count)
    return PatchComponents(np.where(mask[..., None], values, np.nan), mask, explained)


def component_colors(components):
    """The colours of `plot_components`, (images, rows, columns, 3), 0 to 1."""
    values, mask = np.asarray(components.values)[..., :3], np.asarray(components.foreground)
    low, high = np.percentile(values[mask], (1, 99), axis=0)
    colors = ((values - low) / np.where(high > low, high - low, 1.0)).clip(0, 1)
    return np.where(mask[..., None], colors, 0.0)


def _fitted(tokens, mask, count):
    """Components of all patches, fitted to those of the mask, and their shares of the variance."""
    chosen = tokens[mask]
    mean = chosen.mean(axis=0) if len(chosen) else 0.0
    centred = chosen - mean
    if not centred.any():
        raise ValueError(
            "Components need patches that differ; choose another foreground. Received: "
            f"{len(chosen)} patches of one value."
        )
    power, vectors = np.linalg.eigh(centred.T @ centred)
    power = power[::-1].clip(0)
    values = (tokens - mean) @ vectors[:, ::-1][:, :count]
    signs = _signs(values[mask])
    border = np.ones(mask.shape, bool)
    border[:, 1:-1, 1:-1] = False
    inside, outside = (values[mask & part][:, 0] for part in (~border, border))
    if len(inside) and len(outside) and inside.mean() != outside.mean():
        signs[0] = np.sign(inside.mean() - outside.mean())
    return values * signs, power[:count] / power.sum()


def _signs(values):
    """The sign of the value farthest from 0 in each column; 1 for a column of zeros."""
    signs = np.sign(np.take_along_axis(values, np.abs(values).argmax(axis=0)[None], axis=0)[0])
    return np.where(signs == 0, 1.0, signs)


class FilterComponents(typing.NamedTuple):
    """The result of `filter_components`.

    Attributes:
        components: (count, height, width, channels), each of length 1, the strongest first.
        explained: (count,) share of the variance of the filters, from 0 to 1.
    """

    components: np.ndarray
    explained: np.ndarray


def filter_components(model: keras.Model, count: int = 28) -> FilterComponents:
    """The first principal components of the patch embedding's filters: a `FilterComponents`.

    Each of the D columns of E is a filter over the P x P x C values of a patch; in a convolutional
    network, as a hybrid or a BiT, those of its first convolution are. Their mean is subtracted. The
    sign of a component has no meaning; here its largest value is positive.

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
    components *= _signs(components.T)[:, None]
    power = singular**2
    explained = power / (power.sum() or 1.0)
    return FilterComponents(components[:count].reshape(-1, *shape), explained[:count])


def pixel_filters(model):
    """The filters over pixels, float64, shape (height, width, channels, filters)."""
    model = forward.network_of(model)
    channels = getattr(model, "input_shape", (None,))[-1]
    with one_at_a_time(model):
        if isinstance(model, VisionTransformer) and model.variant.stem is None:
            kernel = to_array(model.get_layer("patch_encoder").projection.exact_kernel)
            return kernel.reshape(*model.variant.patch_size, channels, -1).astype("float64")
        for v in getattr(model, "weights", ()):
            if len(v.shape) == 4 and v.shape[2] == channels:
                return to_array(v).astype("float64")
    raise ValueError(
        f"A model with filters over pixels is needed. Received: {forward.described(model)}."
    )
