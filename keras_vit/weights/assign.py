"""Strict assignment: every variable and every array is accounted for, or nothing happens."""

import dataclasses
import re

import numpy as np

from keras_vit.checks import marked
from keras_vit.models.bit import BiT
from keras_vit.models.vit import VisionTransformer
from keras_vit.text import visible
from keras_vit.variants import VARIANTS, size_of
from keras_vit.weights.canonical import PROJECTION, ROOT
from keras_vit.weights.files import CheckpointError
from keras_vit.weights.resize import (
    POSITIONS,
    adapt_channels,
    resize_patches,
    resize_positions,
)
from keras_vit.weights.settle import grid_for, learned_tokens, shape_of
from keras_vit.weights.tables import shortened

MODELS = {"VisionTransformer": VisionTransformer, "BiT": BiT}  # as `Canonical.model` has them
PRE_LOGITS = ("pre_logits/kernel", "pre_logits/bias")
HEAD = ("head/kernel", "head/bias")
DISTILLATION_HEAD = ("head_distillation/kernel", "head_distillation/bias")


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """What became of a checkpoint: every variable and every array of it is accounted for.

    Attributes:
        loaded: canonical names of the variables that took their value from the file.
        initial: variables left at their initial value: a fresh head, if anything.
        ignored: arrays of the file that the model has no use for: its head, a text tower.
        resized: (variable, shape in the file, shape in the model, method) for each that was.
        head: what became of the head, in words.
        assumed: (argument, value, where it is from) for what the arrays do not say.
        differs: (argument, value in the file's family, value in the model) where the model
            computes something else than the file was trained with.
        family: whose format the file has.
        path: the file or folder.
        prefix: what the names of the model's arrays begin with in the file, and is left out.
        others: prefixes of further models in the file, which `prefix=` would choose.
    """

    loaded: tuple[str, ...]
    initial: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    resized: tuple[tuple, ...] = ()
    head: str = ""
    assumed: tuple[tuple, ...] = ()
    differs: tuple[tuple, ...] = ()
    family: str = ""
    path: str = ""
    prefix: str = ""
    others: tuple[str, ...] = ()

    def __str__(self):
        differs = "{}: {!r} in the checkpoint, {!r} in the model"
        rows = {
            "checkpoint": [f"{self.path} ({self.family})"],
            "prefix": [f"{self.prefix!r}, left out of the names" if self.prefix else ""],
            "other models": [", ".join(map(repr, self.others))],
            "loaded": [f"{len(self.loaded)} variables"],
            "resized": [f"{n} {old} -> {new}, {how}" for n, old, new, how in self.resized],
            "head": [self.head],
            "left at initial value": [_names(self.initial)],
            "ignored": [_names(self.ignored)],
            "assumed": [f"{what}={value!r}: {why}" for what, value, why in self.assumed],
            "differs": [differs.format(*row) for row in self.differs],
        }
        lines = [f"{what:<22} {visible(text)}" for what in rows for text in rows[what] if text]
        return "\n".join(lines)


def _names(names, limit=6):
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def assign(model, canonical, interpolation=None, patches_too=False, fresh_head=False, choices=None):
    """Resizes what may be resized, assigns all or nothing, and gives a `LoadReport`.

    The model keeps the report, too. `interpolation=None` is the family's rule for positions.
    `patches_too` says whether patch kernels may be resized. For a model that was built for the
    file, `choices` are the names of what the caller wanted otherwise, of which a misfit can come.
    """
    if not isinstance(model, MODELS[canonical.model]):
        raise CheckpointError(
            f"{canonical.path!r} holds a {canonical.model}; the model {model.name!r} is a "
            f"{type(model).__name__}. Nothing was loaded."
        )
    variables = {v.path: v for v in model.weights if "seed_generator" not in v.path}
    arrays, resized = dict(canonical.arrays), []
    if canonical.model == "VisionTransformer":
        if model.variant.layer_scale is None and model.variant.block != "parallel":
            _fold_layer_scale(arrays, canonical.origin)
        resized = _resize(arrays, model, canonical, interpolation, patches_too)
    if canonical.architecture["channels"] == 3 != model.channels:
        resized += _adapt_channels(arrays, model.channels)
        canonical.preprocessing = canonical.preprocessing.for_channels(model.channels)
    left_out = _left_out(arrays, variables, fresh_head)
    assigned = [name for name in variables if name not in left_out]
    _check_fit(model, canonical, arrays, variables, left_out, choices)
    arrays.update({name: _as_variable(arrays[name], variables[name]) for name in assigned})
    strange = [
        canonical.origin[name]
        for name in assigned
        if arrays[name].dtype.kind not in "fiub" or not np.isfinite(arrays[name]).all()
    ]
    if strange:
        raise CheckpointError(
            f"The checkpoint {canonical.path!r} has NaN or infinite values in "
            f"{shortened(strange)}, as they are or in the precision of the model; nothing was "
            "loaded. The training that wrote it diverged, or the file is damaged."
        )
    for name in assigned:
        variables[name].assign(arrays[name])
    # Preprocessing belongs to the weights; names of classes to the head that they came with.
    model.preprocessing, model.weights_from = canonical.preprocessing, canonical.source or None
    if "head/kernel" in assigned:
        model.class_names, model.label_set = canonical.class_names, canonical.label_set
        model.reading = canonical.reading or model.reading
    found, ours = canonical.architecture, model.variant
    found = {**found, "preprocessing": str(canonical.preprocessing)}
    ignored = tuple(canonical.origin[name] for name in left_out if name in arrays)
    model.load_report = LoadReport(
        loaded=tuple(assigned),
        initial=tuple(name for name in left_out if name in variables),
        ignored=ignored + tuple(canonical.ignored),
        resized=tuple(resized),
        head=_what_became_of_the_head(arrays, variables, left_out),
        assumed=tuple((what, found.get(what), why) for what, why in canonical.assumed.items()),
        differs=tuple(
            (name, found[name], getattr(ours, name))
            for name in marked(type(ours), "compared")
            if name in found and found[name] != getattr(ours, name)
        ),
        **{name: getattr(canonical, name) for name in ("family", "path", "prefix", "others")},
    )
    return model.load_report


def _resize(arrays, model, canonical, interpolation, patches_too):
    """Resizes in place what may be, and returns what the report says about it."""
    found, v, notes = canonical.architecture, model.variant, []
    old = arrays[PROJECTION]
    if patches_too and found["patch_size"] != v.patch_size:
        # FlexiViT's authors resize a patch without antialias, timm by its rule for positions.
        way = "bilinear" if found["interpolation"] == "bilinear_antialias" else "bicubic"
        arrays[PROJECTION] = resize_patches(old, found["patch_size"], v.patch_size, way)
        notes.append((PROJECTION, old.shape, arrays[PROJECTION].shape, f"pseudo-inverse, {way}"))
    grid = grid_for(found["image_size"], shape_of(found))
    method = interpolation or found["interpolation"]
    learned, resizable = learned_tokens(found), ("learned_1d", "relative_2d")
    if found["position"] == v.position in resizable and learned == v.learned_tokens:
        precise = {n: a.astype("float64") for n, a in arrays.items() if re.fullmatch(POSITIONS, n)}
        changed = resize_positions(precise, grid, model.grid, learned, method)
        arrays.update(changed)
        notes += [(name, grid, model.grid, method) for name in changed]
    return notes


def _adapt_channels(arrays, channels):
    """Changes in place the kernels that see the images, and returns what the report says of it."""
    name = ROOT if ROOT in arrays else PROJECTION
    kernel = arrays[name]
    arrays[name] = adapt_channels(kernel.reshape(-1, 3, kernel.shape[-1]), channels)
    shape = (*kernel.shape[:-2], channels) if name == ROOT else (-1,)
    arrays[name] = arrays[name].reshape(*shape, kernel.shape[-1])
    way = f"those of red, green and blue in turn, times 3 / {channels}"
    way = "sum over the colours" if channels == 1 else way
    return [(name, kernel.shape, arrays[name].shape, way)]


def _fold_layer_scale(arrays, origin):
    """For a model without LayerScale: what a branch adds is multiplied in its last matrix."""
    for name in [n for n in arrays if re.fullmatch(r"block_\d+/layer_scale_[12]/gamma", n)]:
        scale, where = arrays.pop(name), origin.pop(name)
        block, which = name.removesuffix("/gamma").split("/layer_scale_")
        last = f"{block}/attention/out" if which == "1" else f"{block}/mlp/dense_2"
        for part in (f"{last}/kernel", f"{last}/bias"):
            if part in arrays:
                if scale.shape != arrays[part].shape[-1:]:
                    raise CheckpointError(f"{where!r} and {origin[part]!r} are of different width.")
                arrays[part] = arrays[part] * scale
                origin[part] += f" * {where}"


def _left_out(arrays, variables, fresh_head):
    """Names of the last layers that are not taken over, of either side.

    As in the authors' `load_pretrained`: pre-logits of an equal size are kept, others dropped. A
    head means nothing without the pre-logits that it was trained on.
    """
    nowhere = not any(name in side for name in PRE_LOGITS for side in (arrays, variables))
    if not nowhere and not all(_same_shape(arrays, variables, name) for name in PRE_LOGITS):
        layers = (PRE_LOGITS, HEAD, DISTILLATION_HEAD)
    elif fresh_head or not all(_same_shape(arrays, variables, name) for name in HEAD):
        layers = (HEAD, DISTILLATION_HEAD)
    else:
        layers = ()
    # Half a layer is damage, and belongs to the errors.
    sides = (arrays, variables)
    whole = [la for la in layers if all(sum(name in side for name in la) != 1 for side in sides)]
    return tuple(name for layer in whole for name in layer if any(name in side for side in sides))


def _same_shape(arrays, variables, name):
    there = name in arrays and name in variables
    return there and arrays[name].shape == tuple(variables[name].shape)


def _check_fit(model, canonical, arrays, variables, left_out, choices):
    missing = [name for name in variables if name not in arrays and name not in left_out]
    unused = [name for name in arrays if name not in variables and name not in left_out]
    wrong = [
        f"{name}: {arrays[name].shape} in the file, {tuple(variable.shape)} in the model"
        for name, variable in variables.items()
        if name in arrays and name not in left_out and not _same_shape(arrays, variables, name)
    ]
    if missing or unused or wrong:
        advice = "keras_vit.from_checkpoint builds the model that fits a file."
        if choices is not None:
            advice = "Its arrays contradict each other, or the config beside them."
        if choices:
            advice = f"Leave out what the file has otherwise, of {', '.join(choices)}."
        raise CheckpointError(
            f"The checkpoint {canonical.path!r} does not fit the model {model.name!r}; "
            f"nothing was loaded. {_likely_cause(model, canonical)}{advice}\n"
            f"  In the model only: {shortened(missing, 6)}\n"
            f"  In the file only: {shortened([canonical.origin[name] for name in unused], 6)}\n"
            f"  Of another shape: {shortened(wrong, 6)}"
        )


def _likely_cause(model, canonical):
    """Which two architectures do not fit, in the terms of the paper."""
    found = canonical.architecture
    v = model.variant
    ours = {field.name: getattr(v, field.name) for field in dataclasses.fields(v)}
    ours["channels"] = model.channels
    if canonical.model == "VisionTransformer":
        size = ("width", "depth", "patch_size")
        theirs, own = (_name(*(side[n] for n in size)) for side in (found, ours))
        if theirs != own:
            return f"This is {theirs} file; the model is {own}. "
    differing = [
        f"{name}={found[name]!r} in the file, {value!r} in the model"
        for name, value in ours.items()
        if name in found and found[name] != value
    ]
    return f"They differ in: {'; '.join(differing)}. " if differing else ""


def _name(width, depth, patch_size):
    """`"a ViT-L/16"`, or the numbers where no published size has them."""
    for name, variant in VARIANTS.items():
        if (variant.width, variant.depth) == (width, depth):
            square = patch_size[0] == patch_size[1]
            patch = patch_size[0] if square else "{}x{}".format(*patch_size)
            return f"a {size_of(name)}/{patch}"
    return f"a ViT of width {width}, depth {depth} and patches of {patch_size} pixels"


def _as_variable(array, variable):
    """The array in the precision of the variable, where a large number may become infinite."""
    if array.dtype.kind != "f" or variable.dtype not in ("float16", "float32"):
        return array
    with np.errstate(over="ignore"):
        return array.astype(variable.dtype, copy=False)


def _what_became_of_the_head(arrays, variables, left_out):
    if HEAD[0] not in left_out:
        return ""
    theirs, ours = (
        f"{side[HEAD[0]].shape[-1]} classes in the {where}" if HEAD[0] in side else ""
        for side, where in ((arrays, "file"), (variables, "model"))
    )
    if not ours:
        return f"{theirs}, dropped: the model has none"
    text = f"{theirs or 'none in the file'}, {ours}, which keeps its own (zero when fresh)"
    if any(name in left_out for name in PRE_LOGITS):
        text += "; the pre-logits layers are not equal, and a head belongs to its own"
    return text
