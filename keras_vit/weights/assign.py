"""Strict assignment: every variable and every array is accounted for, or nothing happens."""

import dataclasses

import numpy as np

from keras_vit.checks import marked
from keras_vit.text import shortened, visible
from keras_vit.variants import VARIANTS, size_of
from keras_vit.weights.safety import CheckpointError, warn

PRE_LOGITS = ("pre_logits/kernel", "pre_logits/bias")
HEAD = ("head/kernel", "head/bias")
DISTILLATION_HEAD = ("head_distillation/kernel", "head_distillation/bias")
FITTING = "keras_vit.from_checkpoint builds the model that fits a file."


def assign(model, checkpoint, fresh_head=False, advice=FITTING):
    """Gives a model the arrays of a `CanonicalCheckpoint`, all or none, and returns a `LoadReport`.

    The model keeps the report and the preprocessing, and with a head its class names. `advice` is
    what the error for a misfit says to do; `fresh_head` is as in `load_weights`.

    Raises:
        CheckpointError: the two do not fit, or an array is not finite; the model is unchanged.
    """
    variables = {v.path: v for v in model.weights if "seed_generator" not in v.path}
    left_out = last_layers_left_out(checkpoint.arrays, variables, fresh_head=fresh_head)
    values = fitting_values(
        model, checkpoint, variables=variables, left_out=left_out, advice=advice
    )
    # Everything fits: from here on the model changes.
    for path, value in values.items():
        variables[path].assign(value)
    model.preprocessing, model.weights_from = checkpoint.preprocessing, checkpoint.name or None
    if HEAD[0] in values:
        model.class_names, model.label_set = checkpoint.class_names, checkpoint.label_set
        model.reading = checkpoint.reading or model.reading
    model.load_report = report_of(model, checkpoint, variables=variables, left_out=left_out)
    return model.load_report


def fitting_values(model, checkpoint, variables, left_out=(), advice=FITTING):
    """Path of a variable -> its new value, in its precision; changes nothing.

    `variables` are those of the model by path; `left_out` are names of either side that may be left
    over. It raises as `assign` does.
    """
    arrays = {name: a for name, a in checkpoint.arrays.items() if name not in left_out}
    variables = {path: variable for path, variable in variables.items() if path not in left_out}
    shapes = {path: tuple(variables[path].shape) for path in variables if path in arrays}
    misshapen = [
        f"{path}: {arrays[path].shape} in the file, {shape} in the model"
        for path, shape in shapes.items()
        if arrays[path].shape != shape
    ]
    missing = [path for path in variables if path not in arrays]
    unused = [checkpoint.names_in_file[name] for name in arrays if name not in variables]
    if misshapen or missing or unused:
        raise CheckpointError(
            f"The checkpoint {checkpoint.path!r} does not fit the model {model.name!r}; "
            f"nothing was loaded. {_likely_cause(model, checkpoint)}{advice}\n"
            f"  In the model only: {shortened(missing, 6)}\n"
            f"  In the file only: {shortened(unused, 6)}\n"
            f"  Of another shape: {shortened(misshapen, 6)}"
        )
    values = {path: _in_precision(arrays[path], variables[path]) for path in variables}
    _check_numbers(values, checkpoint)
    return values


def _check_numbers(values, checkpoint):
    """Raises a CheckpointError for values that are no weights, and warns of zeros."""
    stored = checkpoint.names_in_file
    if whole := [stored[path] for path, v in values.items() if v.dtype.kind in "iub"]:
        raise CheckpointError(
            f"The checkpoint {checkpoint.path!r} has whole numbers as weights in "
            f"{shortened(whole)}; nothing was loaded. It was quantised, and what its numbers stand "
            "for is not in them: take the weights as they were before."
        )
    is_finite = {path: v.dtype.kind == "f" and np.isfinite(v).all() for path, v in values.items()}
    if not_finite := [stored[path] for path in values if not is_finite[path]]:
        raise CheckpointError(
            f"The checkpoint {checkpoint.path!r} has NaN or infinite values in "
            f"{shortened(not_finite)}, as they are or in the precision of the model; nothing was "
            "loaded. The training that wrote it diverged, or the file is damaged."
        )
    empty = [n for n, v in values.items() if n.endswith(("kernel", "gamma")) and not v.any()]
    if empty := [stored[name] for name in empty if name not in (*HEAD, *DISTILLATION_HEAD)]:
        warn(
            f"The checkpoint {checkpoint.path!r} has zeros alone in {shortened(empty)}, as a "
            "download that was interrupted leaves them; fetch it again, unless they are meant."
        )


def last_layers_left_out(arrays, variables, fresh_head):
    """Names of arrays and variables of the last layers that do not go together.

    As in the authors' `load_pretrained`: pre-logits of an equal size are kept, others dropped. A
    head means nothing without the pre-logits that it was trained on.
    """

    def shapes(side, layer):
        return [tuple(side[name].shape) for name in layer if name in side]

    def is_half(layer):  # damage: its other half is then missing or unused
        return 1 in (len(shapes(arrays, layer)), len(shapes(variables, layer)))

    layers = ()
    if shapes(arrays, PRE_LOGITS) != shapes(variables, PRE_LOGITS):
        layers = (PRE_LOGITS, HEAD, DISTILLATION_HEAD)
    elif fresh_head or shapes(arrays, HEAD) != shapes(variables, HEAD):
        layers = (HEAD, DISTILLATION_HEAD)
    names = [name for layer in layers if not is_half(layer) for name in layer]
    return [name for name in names if name in arrays or name in variables]


def report_of(model, checkpoint, variables, left_out):
    """The `LoadReport` of a model that has the arrays of a checkpoint, but for those left out."""
    arrays, arguments = checkpoint.arrays, checkpoint.arguments
    settings = {**arguments, "preprocessing": str(checkpoint.preprocessing)}
    compared = {n: getattr(model.variant, n) for n in marked(type(model.variant), "compared")}
    left_in_file = (checkpoint.names_in_file[name] for name in left_out if name in arrays)
    return LoadReport(
        loaded=tuple(path for path in variables if path not in left_out),
        initial=tuple(path for path in left_out if path in variables),
        ignored=(*left_in_file, *checkpoint.ignored),
        resized=checkpoint.resized,
        head=_fate_of_head(arrays, variables, left_out=left_out),
        assumed=tuple((n, settings.get(n), why) for n, why in arguments.assumed.items()),
        differs=tuple(
            (name, arguments[name], value)
            for name, value in compared.items()
            if name in arguments and arguments[name] != value
        ),
        family=checkpoint.family,
        path=checkpoint.path,
        prefix=checkpoint.prefix,
        others=checkpoint.others,
    )


def _fate_of_head(arrays, variables, left_out):
    """`LoadReport.head`."""
    kernel = HEAD[0]
    if kernel not in left_out:
        return ""
    text = f"{arrays[kernel].shape[-1]} classes" if kernel in arrays else "none"
    if kernel not in variables:
        return f"{text} in the file, dropped: the model has none"
    text += f" in the file, {variables[kernel].shape[-1]} classes in the model, which keeps its own"
    other = "; the pre-logits layers are not equal, and a head belongs to its own"
    return f"{text} (zero when fresh){other if {*PRE_LOGITS} & {*left_out} else ''}"


def _in_precision(array, variable):
    """The array in the precision of the variable, where a large number may become infinite."""
    if array.dtype.kind != "f" or variable.dtype not in ("float16", "float32"):
        return array
    with np.errstate(over="ignore"):
        return array.astype(variable.dtype, copy=False)


def _likely_cause(model, checkpoint):
    """Which two architectures do not fit, in the terms of the paper."""
    in_file, in_model = checkpoint.arguments, {**vars(model.variant), "channels": model.channels}
    if checkpoint.model == "VisionTransformer" and _size_of(in_file) != _size_of(in_model):
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
            return f"a {size_of(name)}/{'x'.join(map(str, dict.fromkeys(patch_size)))}"
    return f"a ViT of width {width}, depth {depth} and patches of {patch_size} pixels"


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """What became of a checkpoint: every variable and every array of it is accounted for.

    Attributes:
        loaded: canonical names of the variables that took their value from the file.
        initial: variables left at their initial value: a fresh head, if anything.
        ignored: arrays of the file that the model has no use for: its head, a text tower.
        resized: (variable, size before, size after, method): shapes, or grids of positions.
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
