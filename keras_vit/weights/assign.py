"""Strict assignment: every variable and every array is accounted for, or nothing happens."""

import dataclasses

import numpy as np

from keras_vit.checks import marked
from keras_vit.text import visible
from keras_vit.variants import VARIANTS, size_of
from keras_vit.weights.files import CheckpointError
from keras_vit.weights.tables import shortened

PRE_LOGITS = ("pre_logits/kernel", "pre_logits/bias")
HEAD = ("head/kernel", "head/bias")
DISTILLATION_HEAD = ("head_distillation/kernel", "head_distillation/bias")


@dataclasses.dataclass(frozen=True)
class Plan:
    """Which array goes to which variable. To make a plan changes nothing.

    Attributes:
        values: path of a variable -> its new value, in the variable's precision.
        initial: paths of variables of the last layers that keep their value.
        dropped: names of arrays of the last layers that are not used.
        missing: paths of all other variables that have no array.
        unused: names of all other arrays that have no variable.
        misshapen: path -> (shape of the array, shape of the variable) where these differ.
        head: what becomes of the head, in words; empty where the file's is taken.
    """

    values: dict
    initial: tuple
    dropped: tuple
    missing: tuple
    unused: tuple
    misshapen: dict
    head: str

    @property
    def fits(self):
        return not (self.missing or self.unused or self.misshapen)


def assign(model, canonical, changes=(), fresh_head=False, choices=None):
    """Gives a model the arrays of a checkpoint, all or none, and returns a `LoadReport`.

    The model keeps the report, too.

    Args:
        model: a `VisionTransformer` or a `BiT`.
        canonical, changes: the checkpoint, and the rows of its arrays that `resized` changed.
        fresh_head: whether the model keeps its own head even where that of the file fits.
        choices: of a model that was built for the file, the names of the arguments that the caller
            wanted otherwise than in the file, of which a misfit can come.

    Raises:
        CheckpointError: the two do not fit, or an array is not finite; the model is unchanged.
    """
    variables = {v.path: v for v in model.weights if "seed_generator" not in v.path}
    plan = make_plan(canonical.arrays, variables, fresh_head=fresh_head)
    if not plan.fits:
        raise misfit(plan, model, canonical=canonical, choices=choices)
    _check_values(plan, canonical)
    _commit(plan, model, canonical=canonical, variables=variables)
    model.load_report = report(plan, model, canonical=canonical, resized=changes)
    return model.load_report


def make_plan(arrays, variables, fresh_head=False):
    """The `Plan` for arrays by canonical name and variables by path."""
    left_out = _last_layers_left_out(arrays, variables, fresh_head)
    wanted = {path: variable for path, variable in variables.items() if path not in left_out}
    offered = {name: array for name, array in arrays.items() if name not in left_out}
    shared = {
        path: (offered[path], variable) for path, variable in wanted.items() if path in offered
    }
    return Plan(
        values={path: _in_precision(*both) for path, both in shared.items()},
        initial=tuple(name for name in left_out if name in variables),
        dropped=tuple(name for name in left_out if name in arrays),
        missing=tuple(path for path in wanted if path not in offered),
        unused=tuple(name for name in offered if name not in wanted),
        misshapen={
            path: (array.shape, tuple(variable.shape))
            for path, (array, variable) in shared.items()
            if array.shape != tuple(variable.shape)
        },
        head=_what_becomes_of_the_head(arrays, variables, left_out),
    )


def _last_layers_left_out(arrays, variables, fresh_head):
    """Names of arrays and variables of the last layers that do not go together.

    As in the authors' `load_pretrained`: pre-logits of an equal size are kept, others dropped. A
    head means nothing without the pre-logits that it was trained on.
    """

    def equal(layer):
        return all(
            name in arrays
            and name in variables
            and arrays[name].shape == tuple(variables[name].shape)
            for name in layer
        )

    sides = (arrays, variables)
    has_pre_logits = any(name in side for name in PRE_LOGITS for side in sides)
    if has_pre_logits and not equal(PRE_LOGITS):
        layers = (PRE_LOGITS, HEAD, DISTILLATION_HEAD)
    elif fresh_head or not equal(HEAD):
        layers = (HEAD, DISTILLATION_HEAD)
    else:
        layers = ()
    # Half a layer is damage: its kernel or its bias is then missing or unused.
    whole = [la for la in layers if all(sum(name in side for name in la) != 1 for side in sides)]
    return [name for layer in whole for name in layer if name in arrays or name in variables]


def _what_becomes_of_the_head(arrays, variables, left_out):
    kernel = HEAD[0]
    if kernel not in left_out:
        return ""
    in_file = "none in the file"
    if kernel in arrays:
        in_file = f"{arrays[kernel].shape[-1]} classes in the file"
    if kernel not in variables:
        return f"{in_file}, dropped: the model has none"
    in_model = f"{variables[kernel].shape[-1]} classes in the model"
    text = f"{in_file}, {in_model}, which keeps its own (zero when fresh)"
    if any(name in left_out for name in PRE_LOGITS):
        text += "; the pre-logits layers are not equal, and a head belongs to its own"
    return text


def _in_precision(array, variable):
    """The array in the precision of the variable, where a large number may become infinite."""
    if array.dtype.kind != "f" or variable.dtype not in ("float16", "float32"):
        return array
    with np.errstate(over="ignore"):
        return array.astype(variable.dtype, copy=False)


def _check_values(plan, canonical):
    strange = [
        canonical.origin[path]
        for path, value in plan.values.items()
        if value.dtype.kind not in "fiub" or not np.isfinite(value).all()
    ]
    if strange:
        raise CheckpointError(
            f"The checkpoint {canonical.path!r} has NaN or infinite values in "
            f"{shortened(strange)}, as they are or in the precision of the model; nothing was "
            "loaded. The training that wrote it diverged, or the file is damaged."
        )


def _commit(plan, model, canonical, variables):
    """Assigns the values, and what came with them.

    Preprocessing belongs to the weights; the names of classes, to the head that they came with.
    """
    for path, value in plan.values.items():
        variables[path].assign(value)
    model.preprocessing, model.weights_from = canonical.preprocessing, canonical.source or None
    if HEAD[0] in plan.values:
        model.class_names, model.label_set = canonical.class_names, canonical.label_set
        model.reading = canonical.reading or model.reading


# ---- what became of a checkpoint, and why one does not fit


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
        rows = {
            "checkpoint": [f"{self.path} ({self.family})"],
            "prefix": [f"{self.prefix!r}, left out of the names" if self.prefix else ""],
            "other models": [", ".join(map(repr, self.others))],
            "loaded": [f"{len(self.loaded)} variables"],
            "resized": [f"{n} {old} -> {new}, {method}" for n, old, new, method in self.resized],
            "head": [self.head],
            "left at initial value": [_names(self.initial)],
            "ignored": [_names(self.ignored)],
            "assumed": [f"{name}={value!r}: {source}" for name, value, source in self.assumed],
            "differs": [
                f"{name}: {in_file!r} in the checkpoint, {in_model!r} in the model"
                for name, in_file, in_model in self.differs
            ],
        }
        lines = [f"{title:<22} {visible(text)}" for title in rows for text in rows[title] if text]
        return "\n".join(lines)


def _names(names, limit=6):
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def report(plan, model, canonical, resized):
    """The `LoadReport` of a plan that was carried out; `resized` are the rows of its arrays."""
    architecture = {**canonical.evidence, "preprocessing": str(canonical.preprocessing)}
    compared = [n for n in marked(type(model.variant), "compared") if n in architecture]
    return LoadReport(
        loaded=tuple(plan.values),
        initial=plan.initial,
        ignored=(*(canonical.origin[name] for name in plan.dropped), *canonical.ignored),
        resized=tuple(resized),
        head=plan.head,
        assumed=tuple(
            (n, architecture.get(n), source) for n, source in canonical.evidence.assumed.items()
        ),
        differs=tuple(
            (name, architecture[name], getattr(model.variant, name))
            for name in compared
            if architecture[name] != getattr(model.variant, name)
        ),
        family=canonical.family,
        path=canonical.path,
        prefix=canonical.prefix,
        others=canonical.others,
    )


def misfit(plan, model, canonical, choices=None):
    """The error for a plan that leaves variables or arrays over; `choices` as in `assign`."""
    advice = "keras_vit.from_checkpoint builds the model that fits a file."
    if choices is not None:
        advice = "Its arrays contradict each other, or the config beside them."
    if choices:
        advice = f"Leave out what the file has otherwise, of {', '.join(choices)}."
    unused = [canonical.origin[name] for name in plan.unused]
    misshapen = [
        f"{path}: {in_file} in the file, {in_model} in the model"
        for path, (in_file, in_model) in plan.misshapen.items()
    ]
    return CheckpointError(
        f"The checkpoint {canonical.path!r} does not fit the model {model.name!r}; "
        f"nothing was loaded. {_likely_cause(model, canonical)}{advice}\n"
        f"  In the model only: {shortened(plan.missing, 6)}\n"
        f"  In the file only: {shortened(unused, 6)}\n"
        f"  Of another shape: {shortened(misshapen, 6)}"
    )


def _likely_cause(model, canonical):
    """Which two architectures do not fit, in the terms of the paper."""
    in_file = canonical.evidence
    in_model = {**vars(model.variant), "channels": model.channels}
    if canonical.model == "VisionTransformer" and _size_of(in_file) != _size_of(in_model):
        return f"This is {_size_of(in_file)} file; the model is {_size_of(in_model)}. "
    differing = [
        f"{name}={in_file[name]!r} in the file, {value!r} in the model"
        for name, value in in_model.items()
        if name in in_file and in_file[name] != value
    ]
    return f"They differ in: {'; '.join(differing)}. " if differing else ""


def _size_of(architecture):
    """`"a ViT-L/16"`, or the numbers where no published size has them."""
    width, depth, patch_size = (architecture[n] for n in ("width", "depth", "patch_size"))
    for name, variant in VARIANTS.items():
        if (variant.width, variant.depth) == (width, depth):
            is_square = patch_size[0] == patch_size[1]
            patch = patch_size[0] if is_square else "{}x{}".format(*patch_size)
            return f"a {size_of(name)}/{patch}"
    return f"a ViT of width {width}, depth {depth} and patches of {patch_size} pixels"
