"""Strict assignment: every variable and every array is accounted for, or nothing happens."""

import numpy as np

from keras_vit.models.bit import BiT
from keras_vit.models.vit import VisionTransformer
from keras_vit.variants import VARIANTS, marked
from keras_vit.weights.canonical import PROJECTION, shortened
from keras_vit.weights.files import CheckpointError
from keras_vit.weights.image_size import grid_for, shape_of
from keras_vit.weights.report import LoadReport
from keras_vit.weights.resize import resize_patches, resize_positions

MODELS = {"VisionTransformer": VisionTransformer, "BiT": BiT}  # as `Canonical.model` has them
PRE_LOGITS = ("pre_logits/kernel", "pre_logits/bias")
HEAD = ("head/kernel", "head/bias")


def check_model(model):
    """Raises a TypeError unless it is a `VisionTransformer`, a `BiT`, or of a subclass of them."""
    if not isinstance(model, tuple(MODELS.values())):
        raise TypeError(
            f"The model must be a keras_vit.{' or a keras_vit.'.join(MODELS)}, or of a subclass. "
            f"Received: {model!r}. Where it contains such a model, give that one "
            "(model.get_layer(...)); the weights of any other Keras model are read and written by "
            "its own load_weights and save_weights."
        )


def assign(
    model, canonical, interpolation=None, patches_too=False, fresh_head=False, adapt_channels=False
):
    """Gives a model the weights of a checkpoint in canonical form.

    Args:
        model: a `VisionTransformer` or a `BiT`.
        canonical: a `Canonical`.
        interpolation: how position embeddings are resampled; `None` for the family's rule.
        patches_too: whether patch kernels may be resized.
        fresh_head: whether the model keeps its own head even where that of the file fits.
        adapt_channels: whether kernels for colour may be summed up for grayscale.

    Returns:
        A `LoadReport`.

    Raises:
        CheckpointError: they do not fit; the model is unchanged.
    """
    variables = {v.path: v for v in model.weights if "seed_generator" not in v.path}
    if not isinstance(model, MODELS[canonical.model]):
        raise CheckpointError(
            f"{str(canonical.path)!r} holds a {canonical.model}; the model {model.name!r} is a "
            f"{type(model).__name__}. Nothing was loaded."
        )
    arrays, resized = dict(canonical.arrays), []
    if canonical.model == "VisionTransformer":
        resized += _resize(arrays, model, canonical, interpolation, patches_too)
        if adapt_channels and model.variant.stem is None:
            resized += _adapt_channels(arrays, model, canonical)
    left_out = _left_out(arrays, variables, fresh_head)
    assigned = [name for name in variables if name not in left_out]
    _check_fit(model, canonical, arrays, variables, assigned, left_out)
    _check_numbers(canonical, arrays, assigned)
    for name in assigned:
        variables[name].assign(arrays[name])
    return LoadReport(
        loaded=tuple(assigned),
        initial=tuple(name for name in left_out if name in variables),
        ignored=tuple(canonical.origin[name] for name in left_out if name in arrays)
        + tuple(canonical.ignored),
        resized=tuple(resized),
        head=_what_became_of_the_head(arrays, variables, left_out),
        assumed=_assumptions(canonical),
        differs=_differences(model, canonical),
        family=canonical.family,
        path=str(canonical.path),
    )


def _resize(arrays, model, canonical, interpolation, patches_too):
    """Resizes in place what may be, and returns what the report says about it."""
    found, notes = canonical.architecture, []
    patch_size, new_patch = tuple(found["patch_size"]), model.variant.patch_size
    if patches_too and patch_size != new_patch and arrays[PROJECTION].ndim == 2:
        old = arrays[PROJECTION]
        arrays[PROJECTION] = resize_patches(old, patch_size, new_patch)
        notes.append((PROJECTION, old.shape, arrays[PROJECTION].shape, "pseudo-inverse"))
    grid = grid_for(found["image_size"], shape_of(found))
    method = interpolation or found["interpolation"]
    learned = int(found["class_token"]) + found["registers"]
    is_learned = found["position"] == model.variant.position == "learned_1d"
    if is_learned and learned == model.variant.learned_tokens:
        changed = resize_positions(arrays, grid, model.grid, learned, method)
        arrays.update(changed)
        notes += [(name, grid, model.grid, method) for name in changed]
    return notes


def _adapt_channels(arrays, model, canonical):
    """Gray is all three colours at once: their kernels add up."""
    if (canonical.architecture["channels"], model.channels) != (3, 1):
        return []
    kernel = arrays[PROJECTION]
    summed = kernel.reshape(-1, 3, kernel.shape[-1]).sum(axis=1)
    arrays[PROJECTION] = summed
    return [(PROJECTION, kernel.shape, summed.shape, "sum over the colours")]


def _left_out(arrays, variables, fresh_head):
    """Names of the last layers that are not taken over, of either side.

    As in the authors' `load_pretrained`: pre-logits of an equal size are kept, others dropped. A
    head means nothing without the pre-logits that it was trained on.
    """
    pre_logits_fit = all(
        _same_shape(arrays, variables, n) or _nowhere(arrays, variables, n) for n in PRE_LOGITS
    )
    if not pre_logits_fit:
        layers = (PRE_LOGITS, HEAD)
    elif fresh_head or not all(_same_shape(arrays, variables, name) for name in HEAD):
        layers = (HEAD,)
    else:
        layers = ()
    # Half a layer is damage, and belongs to the errors.
    whole = [layer for layer in layers if _is_whole(layer, arrays) and _is_whole(layer, variables)]
    names = tuple(name for layer in whole for name in layer)
    return tuple(name for name in names if name in arrays or name in variables)


def _same_shape(arrays, variables, name):
    return (
        name in arrays and name in variables and arrays[name].shape == tuple(variables[name].shape)
    )


def _nowhere(arrays, variables, name):
    return name not in arrays and name not in variables


def _is_whole(layer, side):
    return sum(name in side for name in layer) != 1


def _check_fit(model, canonical, arrays, variables, assigned, left_out):
    missing = [name for name in assigned if name not in arrays]
    unused = [
        canonical.origin[name] for name in arrays if name not in variables and name not in left_out
    ]
    wrong = [
        f"{name}: {arrays[name].shape} in the file, {tuple(variables[name].shape)} in the model"
        for name in assigned
        if name in arrays and not _same_shape(arrays, variables, name)
    ]
    if missing or unused or wrong:
        raise CheckpointError(
            f"The checkpoint {str(canonical.path)!r} does not fit the model {model.name!r}; "
            f"nothing was loaded. {_likely_cause(model, canonical)}"
            "keras_vit.from_checkpoint builds the model that fits a file.\n"
            f"  In the model only: {shortened(missing, 6)}\n"
            f"  In the file only: {shortened(unused, 6)}\n"
            f"  Of another shape: {shortened(wrong, 6)}"
        )


def _likely_cause(model, canonical):
    """Which two architectures do not fit, in the terms of the paper."""
    found, v = canonical.architecture, model.variant
    if canonical.model == "BiT":
        theirs = f"a BiT with units {found['blocks']} and width {found['width']:g}"
        return f"This is {theirs}; the model has units {v.blocks} and width {v.width:g}. "
    file_name = _name(found["width"], found["depth"], tuple(found["patch_size"]))
    model_name = _name(v.width, v.depth, v.patch_size)
    if file_name != model_name:
        return f"This is {file_name} file; the model is {model_name}. "
    differing = [
        f"{name}={found[name]!r} in the file, {getattr(v, name)!r} in the model"
        for name in ("num_heads", "mlp_dim", "pool", "class_token", "registers", "position")
        + ("representation_size", "qkv_bias", "stem")
        if found.get(name) != getattr(v, name)
    ]
    if found["channels"] != model.channels:
        differing.append(f"channels={found['channels']} in the file, {model.channels} in the model")
    return f"They differ in: {'; '.join(differing)}. " if differing else ""


def _name(width, depth, patch_size):
    """`"a ViT-L/16"`, or the numbers where no published size has them."""
    for name, variant in VARIANTS.items():
        if (variant.width, variant.depth) == (width, depth):
            square = patch_size[0] == patch_size[1]
            patch = patch_size[0] if square else "{}x{}".format(*patch_size)
            return f"a ViT-{name.split('/')[0]}/{patch}"
    return f"a ViT of width {width}, depth {depth} and patches of {patch_size} pixels"


def _check_numbers(canonical, arrays, assigned):
    """Weights of a training that diverged would load, and fail far from here."""
    strange = [canonical.origin[name] for name in assigned if not _is_finite(arrays[name])]
    if strange:
        raise CheckpointError(
            f"The checkpoint {str(canonical.path)!r} has NaN or infinite values in "
            f"{shortened(strange)}; nothing was loaded. The training that wrote it diverged, or "
            "the file is damaged."
        )


def _is_finite(array):
    return array.dtype.kind in "fiub" and bool(np.isfinite(array).all())


def _what_became_of_the_head(arrays, variables, left_out):
    if "head/kernel" not in left_out:
        return ""
    in_file, in_model = (
        f"{side['head/kernel'].shape[-1]} classes" if "head/kernel" in side else "none"
        for side in (arrays, variables)
    )
    if in_model == "none":
        return f"{in_file} in the file, dropped: the model has none"
    text = f"{in_file} in the file, {in_model} in the model, which keeps its own (zero when fresh)"
    if any(name in left_out for name in PRE_LOGITS):
        text += "; the pre-logits layers are not equal, and a head belongs to its own"
    return text


def _assumptions(canonical):
    known = canonical.architecture
    return tuple((what, known.get(what), why) for what, why in canonical.assumed.items())


def _differences(model, canonical):
    found, v = canonical.architecture, model.variant
    return tuple(
        (name, found[name], getattr(v, name))
        for name in marked(type(v), "compared")
        if name in found and found[name] != getattr(v, name)
    )
