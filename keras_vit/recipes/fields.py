"""The fields of a recipe: what they may be, how they change together, and how they are shown."""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

import keras

from keras_vit import training
from keras_vit.checks import check_choice, must_be, positive_int
from keras_vit.data import keras_layers
from keras_vit.data.crops import RESIZES
from keras_vit.data.transform import Transform
from keras_vit.models.backbone import network_of_images
from keras_vit.models.bit import BIT_VARIANTS
from keras_vit.preprocessing import Preprocessing, preprocessing_of
from keras_vit.recipes.heads import LOSSES, Recipe, check_heads, of_heads
from keras_vit.text import brief, unknown
from keras_vit.variants import VARIANTS, get_variant

MOST_UPDATES = 2**31 - 1
OF_A_VIT = ("dropout", "stochastic_depth", "remat", "representation_size", "pool", "position")


def checked(check, default=dataclasses.MISSING):
    """A dataclass field whose values go through `check(value, name)`, which returns or raises."""
    return dataclasses.field(default=default, metadata={"check": check})


text = must_be("text", lambda value: isinstance(value, str), str)
number = must_be("a number", math.isfinite, float)
not_negative = must_be("a number of at least 0", lambda value: 0 <= value < math.inf, float)
transform = must_be("a keras_vit.data.Transform", lambda value: isinstance(value, Transform))
countable = must_be(f"at most {MOST_UPDATES:,}", lambda value: value <= MOST_UPDATES)
no_weights = must_be(
    "a dict {head: weight} of a model with several heads", lambda value: not value, tuple
)
pairs = must_be(
    "a dict of arguments of the model, such as {'depth': 6}",
    lambda value: dict(value) is not None,
    lambda value: tuple((k, keras.tree.lists_to_tuples(v)) for k, v in dict(value).items()),
)
best = must_be(
    "True, False or a figure of the validation, such as 'val_loss'",
    lambda value: value in (False, True) or str(value).startswith("val_"),
    lambda value: value if isinstance(value, str) else bool(value),
    bools=True,
)


def updates(value, name):
    """The check for a number of updates that the counters of Keras's optimizers can hold."""
    return countable(positive_int(value, name), name)


def optional(check):
    """The check for None or what `check` takes."""
    return lambda value, name: None if value is None else check(value, name)


def choice(*choices):
    """The check for one of some values."""
    return lambda value, name: check_choice(name, value, choices) or value


def tuple_of(check):
    """The check for a tuple or list whose values all pass `check`."""
    is_tuple = must_be("a tuple", lambda values: isinstance(values, (tuple, list)))
    return lambda values, name: tuple(
        check(value, f"{name}[{i}]") for i, value in enumerate(is_tuple(values, name))
    )


def check_known(noun, name, among, argument=None):
    """Raises a ValueError that lists the nearest names where `name` is none of those `among`."""
    if name not in list(among):
        raise unknown(noun, name, list(among), argument)


def check_fields(r):
    """Brings every field of a recipe into its type, or raises a ValueError that names it."""
    for field in dataclasses.fields(r):
        value = field.metadata["check"](getattr(r, field.name), field.name)
        object.__setattr__(r, field.name, value)
    check_heads(r)
    arguments, boundaries = dict(r.architecture), list(r.boundaries)
    if elsewhere := sorted({"image_size", "num_classes", "dtype"} & arguments.keys()):
        raise ValueError(
            "architecture must not have image_size, num_classes or dtype; use "
            f"replace(image_size=..., num_classes=..., precision=...). Received: {elsewhere}."
        )
    if r.variant not in (None, *BIT_VARIANTS) and "blocks" not in arguments:
        try:
            get_variant(r.variant)
        except ValueError:
            raise unknown("variant", r.variant, [*VARIANTS, *BIT_VARIANTS]) from None
    alone = not of_heads(r)  # heads are checked one by one
    rising = boundaries == sorted(boundaries) and max(boundaries, default=0) <= r.steps
    contradictions = {
        "warmup_steps must be below steps; scale(...) changes both": r.warmup_steps >= r.steps,
        "cooldown_steps must be at most steps; scale(...) changes both": r.cooldown_steps > r.steps,
        "boundaries must rise and end at steps or before; scale(...) changes both": not rising,
        "accumulate must divide batch_size": r.batch_size % r.accumulate,
        "ema must be below 1, such as 0.9999": (r.ema or 0) >= 1,
        "layer_decay must be at most 1, such as 0.75": (r.layer_decay or 0) > 1,
        "train and eval must have one size; replace(image_size=...) changes both": (
            r.train.image_size != r.eval.image_size
        ),
        "train and eval must normalise alike, by value_range or by mean and std": (
            r.train.preprocessing.differs(r.eval.preprocessing)
        ),
        f"A variant of BiT has none of {', '.join(OF_A_VIT)}": (
            r.is_bit and any(getattr(r, name) for name in (*OF_A_VIT, "patch_sizes"))
        ),
        "problem and loss must fit: 'multi_label' has the loss 'sigmoid' and 'regression' the loss "
        "'squared'; for_problem(...) changes both": (
            alone and r.loss != "own" and r.loss not in LOSSES[r.problem]
        ),
        "class_weights need the problem 'single_label', as an image of several classes has several "
        "weights and a number has none, and a loss that is not 'own'": (
            alone and r.class_weights and (r.problem != "single_label" or r.loss == "own")
        ),
        "label_smoothing needs the loss 'softmax' or 'sigmoid', as others know no classes": (
            alone and r.label_smoothing and r.loss not in ("softmax", "sigmoid")
        ),
        "class_weights must be one for each of num_classes": (
            alone and r.class_weights and r.num_classes not in (None, len(r.class_weights))
        ),
        "patch_sizes must divide the images of train": any(
            side % patch for side in r.image_size for patch in r.patch_sizes
        ),
    }
    for expected, is_wrong in contradictions.items():
        if is_wrong:
            named = [word for word in re.findall(r"\w+", expected) if word in vars(r)]
            received = ", ".join(f"{name}={getattr(r, name)!r}" for name in named)
            raise ValueError(f"{expected}. Received: {received}.")


def make_schedule(recipe: Recipe) -> Any:
    """The learning rate: a `LearningRateSchedule`, or a number if it is constant."""
    run = (recipe.learning_rate, recipe.steps, recipe.warmup_steps)
    if recipe.schedule == "linear":
        return training.WarmupLinear(*run, end=recipe.end_learning_rate)
    if recipe.schedule == "rsqrt":
        return training.WarmupRsqrt(*run, recipe.timescale, recipe.cooldown_steps)
    if recipe.schedule in ("stairs", "constant"):  # stairs without a step
        return training.WarmupStairs(*run, boundaries=recipe.boundaries)
    return training.WarmupCosine(*run)


def make_loss(recipe: Recipe) -> Any:
    """A `SoftmaxLoss` or `SigmoidLoss`, for one-hot or integer labels; `None` for `"own"`.

    Of a regression it is Keras's `MeanSquaredError`; of several heads a dict {head: loss}.
    """
    if heads := of_heads(recipe):
        return {head: make_loss(each) for head, each in heads.items()}
    if recipe.loss == "own":
        return None
    dtype = "float64" if recipe.precision == "float64" else "float32"
    if recipe.loss == "squared":
        return keras.losses.MeanSquaredError(dtype=dtype)
    loss = training.SigmoidLoss if recipe.loss == "sigmoid" else training.SoftmaxLoss
    weights = recipe.class_weights or None
    return loss(recipe.label_smoothing, dtype=dtype, class_weights=weights)


def metrics(recipe: Recipe) -> list[Any] | dict[str, list[Any]]:
    """A list of metrics for one-hot or integer labels: accuracy, with many classes top-5.

    Of several labels at once the mean over the classes of the average precision, which Keras
    finds from 200 thresholds (`keras_vit.evaluation.evaluate` finds the exact one); of a
    regression the mean absolute error and R2; of several heads a dict {head: metrics}.
    """
    if heads := of_heads(recipe):
        return {head: metrics(each) for head, each in heads.items()}
    if recipe.loss == "own":
        return []
    if recipe.problem == "multi_label":
        name = "mean_average_precision"
        return [keras.metrics.AUC(curve="PR", multi_label=True, from_logits=True, name=name)]
    if recipe.problem == "regression":
        return [keras.metrics.MeanAbsoluteError(), keras.metrics.R2Score(name="r2")]
    top_5 = [training.Accuracy(top=5)] if (recipe.num_classes or 0) >= 100 else []
    return [training.Accuracy(name="accuracy"), *top_5]


def monitor(recipe: Recipe) -> str:
    """The figure of the validation that tells the best epoch.

    It is the one that `keep_best` names, or else the first metric; of several heads, or of a loss
    of the model's, the loss.
    """
    if isinstance(recipe.keep_best, str):
        return recipe.keep_best
    if recipe.loss == "own" or of_heads(recipe):
        return "val_loss"
    names = {"multi_label": "mean_average_precision", "regression": "mean_absolute_error"}
    return f"val_{names.get(recipe.problem, 'accuracy')}"


def for_weights(recipe: Recipe, model: Any) -> Recipe:
    """The recipe with images as the weights of a model want them.

    Mean and standard deviation, interpolation and library of both transforms, and the crop of the
    evaluation, become those of `model.preprocessing`; the size becomes that of the model, unless it
    takes any. A random crop, flip and augmentations of training stay.

    Args:
        model: a model with a `preprocessing`, or with one inside that has it; or a
            `keras_vit.Preprocessing`, which leaves the size as it is.

    Raises:
        TypeError: nothing says what the weights want.
    """
    owner = model
    if isinstance(model, keras.Model) and not hasattr(model, "preprocessing"):
        owner = network_of_images(model) or model
    preprocessing = preprocessing_of(owner, model)
    if not isinstance(preprocessing, Preprocessing):
        raise TypeError(
            "model must have a preprocessing, as the models of keras_vit do; set "
            f"model.preprocessing, or pass a keras_vit.Preprocessing. Received: {brief(model)}."
        )
    shapes = [tuple(x.shape[1:3]) for x in getattr(model, "inputs", None) or ()]
    if len(shapes) == 1 and None not in shapes[0] and shapes[0] != recipe.image_size:
        recipe = recipe.replace(image_size=shapes[0])
    train = recipe.train.with_preprocessing(preprocessing, crop=recipe.train.crop in RESIZES)
    evaluation = recipe.eval.with_preprocessing(preprocessing)
    return dataclasses.replace(recipe, train=train, eval=evaluation)


def settings(recipe: Recipe) -> list[tuple[str, str]]:
    """The settings that matter as a list of (field, value), both strings."""
    unused = {"momentum"} if recipe.optimizer == "adam" else {"beta1", "beta2", "epsilon"}
    unused |= set() if recipe.schedule == "rsqrt" else {"timescale"}
    unused |= set() if recipe.weight_decay else {"decayed"}
    unused |= {"problem"} if recipe.problem == "single_label" else set()
    rows = []
    for field in dataclasses.fields(recipe):
        value = getattr(recipe, field.name)
        value = keras_layers.described(value) if field.name == "augment_layers" else value
        if (value or field.name == "seed") and field.name not in unused | {"notes"}:
            rows.append((field.name, _shown(value)))
        if field.name == "steps" and recipe.passes:
            rows.append(("epochs", epochs(recipe)))
    return [*rows, *(("note", note) for note in recipe.notes)]


def epochs(recipe):
    """Passes as text: a whole number if no number of updates comes nearer to it.

    So is a whole number of a pipeline's epochs, which leave out the images that fill no batch.
    """
    if not recipe.passes:
        return ""
    nearest = max(1, round(recipe.passes))
    if recipe.steps == max(1, round(nearest * recipe.examples / recipe.batch_size)):
        return str(nearest)
    epochs, left = divmod(recipe.steps, max(recipe.examples // recipe.batch_size, 1))
    return str(epochs) if not left and epochs < 1.2 * recipe.passes else f"{recipe.passes:.4g}"


def _shown(value):
    """A setting as text: numbers in six digits, and the fields of a transform that are set."""
    if isinstance(value, Transform):
        fields = [f for f in dataclasses.fields(value) if getattr(value, f.name) != f.default]
        shown = [f"{f.name}={_shown(getattr(value, f.name))}" for f in fields]
        return f"Transform({', '.join(shown)})"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_shown(each)}" for key, each in value.items())
    if isinstance(value, tuple):
        return f"({', '.join(map(_shown, value))})"
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if type(value) is int else str(value)
