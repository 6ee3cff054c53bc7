"""What the fields of a recipe may be: `checked` gives a dataclass field the check of its values."""

import dataclasses
import math

from keras_vit.checks import check_choice, positive_int
from keras_vit.data.transform import Transform
from keras_vit.models.bit import BIT_VARIANTS
from keras_vit.text import nearest, unknown
from keras_vit.variants import VARIANTS, get_variant

OF_A_VIT = ("dropout", "stochastic_depth", "remat", "representation_size", "pool", "position")
SYNONYMS = {  # what a setting is called elsewhere
    "lr": "learning_rate",
    "base_lr": "learning_rate",
    "wd": "weight_decay",
    "decay": "weight_decay",
    "batch": "batch_size",
    "warmup": "warmup_steps",
    "resolution": "image_size",
    "grad_clip": "clip_norm",
    "classes": "num_classes",
    "drop_path": "stochastic_depth",
    "randaugment": "train",
    "dtype": "precision",
}
FOLLOWS = {  # a property -> what it follows from
    "epochs": "steps; use scale(epochs=...)",
    "passes": "steps; use scale(epochs=...)",
    "micro_batch_size": "batch_size and accumulate",
    "is_bit": "variant",
}


def checked(check, default=dataclasses.MISSING):
    """A dataclass field whose values go through `check(value, name)`, which returns or raises."""
    return dataclasses.field(default=default, metadata={"check": check})


def check_fields(recipe):
    """Brings every field into its type, or raises a ValueError that names it."""
    for field in dataclasses.fields(recipe):
        value = field.metadata["check"](getattr(recipe, field.name), field.name)
        object.__setattr__(recipe, field.name, value)


def optional(check):
    """The check for None or what `check` takes."""
    return lambda value, name: None if value is None else check(value, name)


def choice(*choices):
    """The check for one of some values."""

    def check(value, name):
        check_choice(name, value, choices)
        return value

    return check


def tuple_of(check, example):
    """The check for a tuple or list whose values all pass `check`."""

    def checked_tuple(values, name):
        if not isinstance(values, (tuple, list)):
            raise ValueError(
                f"{name} must be a tuple, such as {example!r}. Received: {name}={values!r}."
            )
        return tuple(check(value, f"{name}[{i}]") for i, value in enumerate(values))

    return checked_tuple


def text(value, name):
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text. Received: {name}={value!r}.")
    return value


def some_text(value, name):
    if not text(value, name).strip():
        raise ValueError(f"{name} must not be empty. Received: {name}={value!r}.")
    return value


def whole(value, name):
    """A whole number of at least 0."""
    if value == 0 and not isinstance(value, bool):
        return 0
    try:
        return positive_int(value, name)
    except ValueError:
        raise ValueError(
            f"{name} must be a whole number of at least 0. Received: {name}={value!r}."
        ) from None


def number(value, name):
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{name} must be a number. Received: {name}={value!r}.")
    return float(value)


def not_negative(value, name):
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ValueError(f"{name} must be a number of at least 0. Received: {name}={value!r}.")
    return float(value)


def transform(value, name):
    if not isinstance(value, Transform):
        raise ValueError(
            f"{name} must be a keras_vit.data.Transform, such as Transform(224, 'squash'). "
            f"Received: {name}={value!r}."
        )
    return value


def model_arguments(architecture, name):
    """Pairs of an argument of the model and its value."""
    items = architecture.items() if isinstance(architecture, dict) else architecture
    try:
        pairs = tuple((key, tuple(v) if isinstance(v, list) else v) for key, v in items)
        hash(pairs)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} must be a dict of arguments of the model, such as {{'depth': 6}}. "
            f"Received: {name}={architecture!r}."
        ) from None
    for key, value in pairs:
        if key in ("image_size", "num_classes", "dtype"):
            field = "precision" if key == "dtype" else key
            raise ValueError(
                f"{key} follows from the recipe itself: replace({field}=...). "
                f"Received: {name}={{{key!r}: {value!r}}}."
            )
    return pairs


def check_together(r):
    """Raises a ValueError where values that are right by themselves contradict each other."""
    if r.variant is not None and "blocks" not in dict(r.architecture):
        check_variant(r.variant)
    if not r.warmup_steps < r.steps:
        raise ValueError(
            "The warm-up must be shorter than the run. Received: "
            f"warmup_steps={r.warmup_steps}, steps={r.steps}; lower warmup_steps too, or "
            "use scale(steps=...), which does."
        )
    boundaries = list(r.boundaries)
    if boundaries != sorted(boundaries) or max(boundaries, default=0) > r.steps:
        raise ValueError(
            "boundaries must rise and lie within the run. Received: "
            f"boundaries={r.boundaries}, steps={r.steps}; scale(steps=...) changes both."
        )
    if r.cooldown_steps > r.steps:
        raise ValueError(
            "The cooldown must not be longer than the run. Received: cooldown_steps="
            f"{r.cooldown_steps}, steps={r.steps}; scale(steps=...) changes both."
        )
    if r.batch_size % r.accumulate:
        raise ValueError(
            "accumulate must divide the batch. Received: "
            f"accumulate={r.accumulate}, batch_size={r.batch_size}."
        )
    if (r.ema or 0) >= 1 or (r.layer_decay or 0) > 1:
        raise ValueError(
            "ema must be below 1, such as 0.9999, and layer_decay at most 1, such as 0.75. "
            f"Received: ema={r.ema}, layer_decay={r.layer_decay}."
        )
    if r.train.image_size != r.eval.image_size:
        raise ValueError(
            "One model sees the images of training and of evaluation, so both have one size. "
            f"Received: train {r.train.image_size}, eval {r.eval.image_size}; "
            "replace(image_size=...) changes both."
        )
    unfit = [f"{name}={getattr(r, name)!r}" for name in OF_A_VIT if getattr(r, name)]
    if r.is_bit and unfit:
        raise ValueError(
            f"A BiT ResNet takes none of {', '.join(OF_A_VIT)}. Received: "
            f"variant={r.variant!r}, {', '.join(unfit)}."
        )


def check_variant(variant):
    """Raises a ValueError with the nearest names where no published model has this one."""
    if variant in list(BIT_VARIANTS):
        return
    try:
        get_variant(text(variant, "variant"))
    except ValueError:
        raise unknown("variant", variant, [*VARIANTS, *BIT_VARIANTS]) from None


def check_changes(changes, recipe):
    """Raises a ValueError for a change of what is no field, with the field that may be meant."""
    known = [*(field.name for field in dataclasses.fields(recipe)), "image_size"]
    for name, value in changes.items():
        if name in FOLLOWS:
            raise ValueError(f"{name} follows from {FOLLOWS[name]}. Received: {name}={value!r}.")
        if name not in known:
            near = [SYNONYMS[name]] if name in SYNONYMS else nearest(name, known)
            raise ValueError(
                f"A recipe has no {name!r}. Received: {name}={value!r}; the nearest fields are "
                f"{near}."
            )


def check_names(fields, cls, what):
    """Raises a ValueError that names the keys of a dict that are no fields, or are missing."""
    if not isinstance(fields, dict):
        raise ValueError(
            f"The fields of {what} come as a dict, as to_dict() gives them. Received: {fields!r}."
        )
    known = {field.name: field.default is dataclasses.MISSING for field in dataclasses.fields(cls)}
    for name in fields:
        if name not in known:
            raise ValueError(
                f"There is no {name!r} in {what}; the nearest fields are {nearest(name, known)}. "
                "Was it saved by another version?"
            )
    missing = [name for name, is_needed in known.items() if is_needed and name not in fields]
    if missing:
        raise ValueError(f"Fields of {what} are missing: {missing}. Received: {sorted(fields)}.")
