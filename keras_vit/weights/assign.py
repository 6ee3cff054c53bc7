"""Strict assignment: every variable and every array is accounted for, or nothing happens."""

import dataclasses

import numpy as np

from keras_vit.weights.files import CheckpointError
from keras_vit.weights.report import misfit, report_of
from keras_vit.weights.tables import shortened

PRE_LOGITS = ("pre_logits/kernel", "pre_logits/bias")
HEAD = ("head/kernel", "head/bias")
DISTILLATION_HEAD = ("head_distillation/kernel", "head_distillation/bias")
FITTING = "keras_vit.from_checkpoint builds the model that fits a file."


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


def assign(model, canonical, fresh_head=False, advice=FITTING):
    """Gives a model the arrays of a checkpoint, all or none, and returns a `LoadReport`.

    The model keeps the report, and what came with the weights: preprocessing belongs to all of
    them; the names of classes, to the head that they came with.

    Args:
        model: a `VisionTransformer` or a `BiT`.
        canonical: the checkpoint, in the sizes of the model.
        fresh_head: whether the model keeps its own head even where that of the file fits.
        advice: what the error for a misfit says to do.

    Raises:
        CheckpointError: the two do not fit, or an array is not finite; the model is unchanged.
    """
    variables = {v.path: v for v in model.weights if "seed_generator" not in v.path}
    plan = fitting_plan(model, canonical, variables=variables, fresh_head=fresh_head, advice=advice)
    for path, value in plan.values.items():
        variables[path].assign(value)
    model.preprocessing, model.weights_from = canonical.preprocessing, canonical.source.name or None
    if HEAD[0] in plan.values:
        model.class_names, model.label_set = canonical.class_names, canonical.source.label_set
        model.reading = canonical.reading or model.reading
    model.load_report = report_of(plan, model, canonical=canonical)
    return model.load_report


def fitting_plan(model, canonical, variables, fresh_head=False, advice=FITTING):
    """A `Plan` that fits; `variables` are those of the model by their paths.

    Raises:
        CheckpointError: as in `assign`.
    """
    plan = make_plan(canonical.arrays, variables, fresh_head=fresh_head)
    if not plan.fits:
        raise misfit(plan, model, canonical=canonical, advice=advice)
    strange = [
        canonical.origin[path]
        for path, value in plan.values.items()
        if value.dtype.kind not in "fiub" or not np.isfinite(value).all()
    ]
    if strange:
        raise CheckpointError(
            f"The checkpoint {canonical.source.path!r} has NaN or infinite values in "
            f"{shortened(strange)}, as they are or in the precision of the model; nothing was "
            "loaded. The training that wrote it diverged, or the file is damaged."
        )
    return plan


def make_plan(arrays, variables, fresh_head=False):
    """The `Plan` for arrays by canonical name and variables by path."""
    left_out = _last_layers_left_out(arrays, variables, fresh_head)
    wanted = [path for path in variables if path not in left_out]
    offered = [name for name in arrays if name not in left_out]
    shared = [path for path in wanted if path in arrays]
    shapes = {path: (arrays[path].shape, tuple(variables[path].shape)) for path in shared}
    return Plan(
        values={path: _in_precision(arrays[path], variables[path]) for path in shared},
        initial=tuple(name for name in left_out if name in variables),
        dropped=tuple(name for name in left_out if name in arrays),
        missing=tuple(path for path in wanted if path not in arrays),
        unused=tuple(name for name in offered if name not in variables),
        misshapen={path: both for path, both in shapes.items() if both[0] != both[1]},
        head=_fate_of_head(arrays, variables, left_out),
    )


def _last_layers_left_out(arrays, variables, fresh_head):
    """Names of arrays and variables of the last layers that do not go together.

    As in the authors' `load_pretrained`: pre-logits of an equal size are kept, others dropped. A
    head means nothing without the pre-logits that it was trained on.
    """
    sides = (arrays, variables)
    shapes = [{name: tuple(array.shape) for name, array in side.items()} for side in sides]

    def equal(layer):
        return all(name in arrays and shapes[0][name] == shapes[1].get(name) for name in layer)

    def is_half(layer):  # damage: its other half is then missing or unused
        return any(sum(name in side for name in layer) == 1 for side in sides)

    layers = ()
    if any(name in side for name in PRE_LOGITS for side in sides) and not equal(PRE_LOGITS):
        layers = (PRE_LOGITS, HEAD, DISTILLATION_HEAD)
    elif fresh_head or not equal(HEAD):
        layers = (HEAD, DISTILLATION_HEAD)
    names = [name for layer in layers if not is_half(layer) for name in layer]
    return [name for name in names if name in arrays or name in variables]


def _fate_of_head(arrays, variables, left_out):
    """`Plan.head`."""
    kernel = HEAD[0]
    if kernel not in left_out:
        return ""
    text = f"{arrays[kernel].shape[-1]} classes" if kernel in arrays else "none"
    if kernel not in variables:
        return f"{text} in the file, dropped: the model has none"
    text += f" in the file, {variables[kernel].shape[-1]} classes in the model, which keeps its own"
    text += " (zero when fresh)"
    if any(name in left_out for name in PRE_LOGITS):
        text += "; the pre-logits layers are not equal, and a head belongs to its own"
    return text


def _in_precision(array, variable):
    """The array in the precision of the variable, where a large number may become infinite."""
    if array.dtype.kind != "f" or variable.dtype not in ("float16", "float32"):
        return array
    with np.errstate(over="ignore"):
        return array.astype(variable.dtype, copy=False)
