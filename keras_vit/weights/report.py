"""What became of a checkpoint, or why it does not fit a model."""

import dataclasses

from keras_vit.checks import marked
from keras_vit.text import visible
from keras_vit.variants import VARIANTS, size_of
from keras_vit.weights.files import CheckpointError
from keras_vit.weights.tables import shortened


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


def report_of(plan, model, canonical):
    """The `LoadReport` of a `Plan` that was carried out."""
    in_file, in_model = canonical.evidence, model.variant
    fields = [n for n in marked(type(in_model), "compared") if n in in_file]
    values = {**in_file, "preprocessing": str(canonical.preprocessing)}
    source = canonical.source
    return LoadReport(
        loaded=tuple(plan.values),
        initial=plan.initial,
        ignored=(*(canonical.origin[name] for name in plan.dropped), *canonical.ignored),
        resized=canonical.resized,
        head=plan.head,
        assumed=tuple((n, values.get(n), why) for n, why in in_file.assumed.items()),
        differs=tuple(
            (n, in_file[n], getattr(in_model, n))
            for n in fields
            if in_file[n] != getattr(in_model, n)
        ),
        family=canonical.family,
        path=source.path,
        prefix=source.prefix,
        others=source.others,
    )


def misfit(plan, model, canonical, advice):
    """The error for a `Plan` that leaves variables or arrays over; `advice` as in `assign`."""
    unused = [canonical.origin[name] for name in plan.unused]
    misshapen = [
        f"{path}: {in_file} in the file, {in_model} in the model"
        for path, (in_file, in_model) in plan.misshapen.items()
    ]
    return CheckpointError(
        f"The checkpoint {canonical.source.path!r} does not fit the model {model.name!r}; "
        f"nothing was loaded. {_likely_cause(model, canonical)}{advice}\n"
        f"  In the model only: {shortened(plan.missing, 6)}\n"
        f"  In the file only: {shortened(unused, 6)}\n"
        f"  Of another shape: {shortened(misshapen, 6)}"
    )


def _likely_cause(model, canonical):
    """Which two architectures do not fit, in the terms of the paper."""
    in_file, in_model = canonical.evidence, {**vars(model.variant), "channels": model.channels}
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
            return f"a {size_of(name)}/{'x'.join(map(str, dict.fromkeys(patch_size)))}"
    return f"a ViT of width {width}, depth {depth} and patches of {patch_size} pixels"
