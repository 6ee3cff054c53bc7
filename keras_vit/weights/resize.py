"""The arrays of a checkpoint in the sizes of a model, before they are assigned to it."""

import dataclasses
import re

from keras_vit.models.backbone import MODELS
from keras_vit.models.resize_weights import (
    POSITIONS,
    adapt_channels,
    resize_patches,
    resize_positions,
)
from keras_vit.weights.canonical import PROJECTION, ROOT
from keras_vit.weights.evidence import grid_for, learned_tokens, shape_of
from keras_vit.weights.files import CheckpointError


def resized(canonical, model, interpolation=None, patches_too=False):
    """A `Canonical` with the grid, the patches and the channels of a model.

    Args:
        canonical: stays as it is.
        model: a `VisionTransformer` or a `BiT`.
        interpolation: how position embeddings are resampled; `None` for the rule of the family.
        patches_too: whether patch kernels may be resized.

    Returns:
        The new `Canonical`, and a row of `LoadReport.resized` for each array that changed.

    Raises:
        CheckpointError: the checkpoint is of a model of another class.
    """
    if not isinstance(model, MODELS[canonical.model]):
        raise CheckpointError(
            f"{canonical.path!r} holds a {canonical.model}; the model {model.name!r} is a "
            f"{type(model).__name__}. Nothing was loaded."
        )
    canonical = dataclasses.replace(
        canonical, arrays=dict(canonical.arrays), origin=dict(canonical.origin)
    )
    rows = []
    if canonical.model == "VisionTransformer":
        if model.variant.layer_scale is None and model.variant.block != "parallel":
            _fold_layer_scale(canonical.arrays, canonical.origin)
        if patches_too:
            rows += _resize_patches(canonical, model)
        rows += _resize_positions(canonical, model, interpolation)
    if canonical.evidence["channels"] == 3 and model.channels != 3:
        rows += _adapt_channels(canonical.arrays, model.channels)
        canonical.preprocessing = canonical.preprocessing.for_channels(model.channels)
    return canonical, rows


def _fold_layer_scale(arrays, origin):
    """For a model without LayerScale: the last matrix of a branch is multiplied by its scale."""
    for name in [n for n in arrays if re.fullmatch(r"block_\d+/layer_scale_[12]/gamma", n)]:
        scale, name_in_file = arrays.pop(name), origin.pop(name)
        block, branch = name.removesuffix("/gamma").split("/layer_scale_")
        last = f"{block}/attention/out" if branch == "1" else f"{block}/mlp/dense_2"
        for part in (f"{last}/kernel", f"{last}/bias"):
            if part in arrays:
                if scale.shape != arrays[part].shape[-1:]:
                    raise CheckpointError(
                        f"{name_in_file!r} and {origin[part]!r} are of different width."
                    )
                arrays[part] = arrays[part] * scale
                origin[part] += f" * {name_in_file}"


def _resize_patches(canonical, model):
    old_size, new_size = canonical.evidence["patch_size"], model.variant.patch_size
    if old_size == new_size:
        return []
    # FlexiViT's authors resize a patch without antialias, timm by its rule for positions.
    flexible = canonical.evidence["interpolation"] == "bilinear_antialias"
    method = "bilinear" if flexible else "bicubic"
    old = canonical.arrays[PROJECTION]
    new = resize_patches(old, old_size, new_size, method)
    canonical.arrays[PROJECTION] = new
    return [(PROJECTION, old.shape, new.shape, f"pseudo-inverse, {method}")]


def _resize_positions(canonical, model, interpolation):
    architecture, v = canonical.evidence, model.variant
    tokens = learned_tokens(architecture)
    has_grid = v.position in ("learned_1d", "relative_2d")
    if not has_grid or architecture["position"] != v.position or tokens != v.learned_tokens:
        return []
    grid = grid_for(architecture["image_size"], shape_of(architecture))
    method = interpolation or architecture["interpolation"]
    tables = {
        name: array.astype("float64")
        for name, array in canonical.arrays.items()
        if re.fullmatch(POSITIONS, name)
    }
    changed = resize_positions(tables, grid, model.grid, tokens, method)
    canonical.arrays.update(changed)
    return [(name, grid, model.grid, method) for name in changed]


def _adapt_channels(arrays, channels):
    """Changes the kernel that sees the images."""
    name = ROOT if ROOT in arrays else PROJECTION
    old = arrays[name]
    new = adapt_channels(old.reshape(-1, 3, old.shape[-1]), channels)
    shape = (*old.shape[:-2], channels) if name == ROOT else (-1,)
    arrays[name] = new = new.reshape(*shape, old.shape[-1])
    method = f"those of red, green and blue in turn, times 3 / {channels}"
    if channels == 1:
        method = "sum over the colours"
    return [(name, old.shape, new.shape, method)]
