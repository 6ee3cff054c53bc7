"""Whether the fields of a recipe are what they must be, each by itself and all together."""

import math

from keras_vit.checks import check_choice, positive_float, positive_int, rate
from keras_vit.data.transform import Transform
from keras_vit.models.bit_variants import BIT_VARIANTS
from keras_vit.recipes.names import unknown
from keras_vit.variants import POOLS, POSITIONS, VARIANTS, get_variant

LOSSES = ("softmax", "sigmoid")
OPTIMIZERS = ("adam", "sgdm")
SCHEDULES = ("cosine", "linear", "rsqrt", "stairs", "constant")
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16", "float64")
OF_A_VIT = ("dropout", "stochastic_depth", "remat", "representation_size", "pool", "position")


def check_fields(recipe):
    """Brings every field into its type, or raises a ValueError that names it."""
    for check, fields in _CHECKS:
        for field in fields.split():
            object.__setattr__(recipe, field, check(getattr(recipe, field), field))
    check_variant(recipe.variant, recipe.architecture)
    _check_together(recipe)


def check_variant(variant, architecture=()):
    """Raises a ValueError with the nearest names where a model has none of the known ones."""
    if variant is None or variant in list(BIT_VARIANTS) or "blocks" in dict(architecture):
        return
    try:
        get_variant(_text(variant, "variant"))
    except ValueError:
        raise unknown("variant", variant, [*VARIANTS, *BIT_VARIANTS]) from None


def _check_together(r):
    if not r.warmup_steps < r.steps:
        raise ValueError(
            "The warm-up must be shorter than the run. Received: "
            f"warmup_steps={r.warmup_steps}, steps={r.steps}; lower warmup_steps too, or "
            "use scale(steps=...), which does."
        )
    if list(r.boundaries) != sorted(r.boundaries) or max(r.boundaries, default=0) > r.steps:
        raise ValueError(
            "boundaries must rise and lie within the run. Received: "
            f"boundaries={r.boundaries}, steps={r.steps}; scale(steps=...) changes both."
        )
    if r.cooldown_steps > r.steps:
        raise ValueError(
            "The cooldown must not be longer than the run. Received: "
            f"cooldown_steps={r.cooldown_steps}, steps={r.steps}; scale(steps=...) changes both."
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
            f"A BiT ResNet takes none of {', '.join(OF_A_VIT)}. Received: variant={r.variant!r}, "
            f"{', '.join(unfit)}."
        )


def _optional(check):
    return lambda value, name: None if value is None else check(value, name)


def _choice(choices):
    def check(value, name):
        check_choice(name, value, choices)
        return value

    return check


def _tuple_of(check, example):
    def checked(values, name):
        if not isinstance(values, (tuple, list)):
            raise ValueError(
                f"{name} must be a tuple, such as {example!r}. Received: {name}={values!r}."
            )
        return tuple(check(value, f"{name}[{i}]") for i, value in enumerate(values))

    return checked


def _text(value, name):
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text. Received: {name}={value!r}.")
    return value


def _some_text(value, name):
    if not _text(value, name).strip():
        raise ValueError(f"{name} must not be empty. Received: {name}={value!r}.")
    return value


def _whole(value, name):
    """A whole number of at least 0."""
    if value == 0 and not isinstance(value, bool):
        return 0
    try:
        return positive_int(value, name)
    except ValueError:
        raise ValueError(
            f"{name} must be a whole number of at least 0. Received: {name}={value!r}."
        ) from None


def _number(value, name):
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{name} must be a number. Received: {name}={value!r}.")
    return float(value)


def _not_negative(value, name):
    try:
        if _number(value, name) >= 0:
            return float(value)
    except ValueError:
        pass
    raise ValueError(f"{name} must be a number of at least 0. Received: {name}={value!r}.")


def _transform(value, name):
    if not isinstance(value, Transform):
        raise ValueError(
            f"{name} must be a keras_vit.data.Transform, such as Transform(224, 'squash'). "
            f"Received: {name}={value!r}."
        )
    return value


def _pairs(architecture, name):
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


_CHECKS = (
    (_some_text, "name source dataset train_split"),
    (_text, "test_split"),
    (_optional(_some_text), "validation_split"),
    (_tuple_of(_text, ("what is not written there",)), "notes"),
    (_pairs, "architecture"),
    (_transform, "train eval"),
    (positive_int, "batch_size steps accumulate timescale"),
    (_optional(positive_int), "examples num_classes representation_size"),
    (_whole, "warmup_steps cooldown_steps seed"),
    (positive_float, "learning_rate epsilon"),
    (_optional(positive_float), "clip_norm layer_decay ema"),
    (_tuple_of(positive_float, (0.001, 0.003)), "learning_rates"),
    (_tuple_of(_whole, (3000, 6000)), "boundaries"),
    (_tuple_of(_some_text, ("kernel",)), "decayed"),
    (_not_negative, "mixup cutmix weight_decay end_learning_rate"),
    (rate, "label_smoothing dropout stochastic_depth momentum beta1 beta2"),
    (_number, "head_bias"),
    (_choice(LOSSES), "loss"),
    (_choice(OPTIMIZERS), "optimizer"),
    (_choice(SCHEDULES), "schedule"),
    (_choice(PRECISIONS), "precision"),
    (_choice(POOLS), "pool"),
    (_choice((*POSITIONS, None)), "position"),
    (_choice((False, True)), "remat"),
)
