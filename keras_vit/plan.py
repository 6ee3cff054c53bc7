"""What a job tells before it trains: its plan, its cost, the best of several learning rates."""

import dataclasses
import math

import keras

from keras_vit import training
from keras_vit.data import units
from keras_vit.data.load import open_source
from keras_vit.data.sources import part_of
from keras_vit.heads import map_heads
from keras_vit.recipes.fields import epochs
from keras_vit.text import visible
from keras_vit.training.cost import count, measured
from keras_vit.weights.fetch import unfetched


def header(job, model, train, test):
    """What a run is about to do, as text of a few lines."""
    recipe, count = job.recipe, model.count_params()
    report = getattr(model, "load_report", None)
    trained = sum(math.prod(variable.shape) for variable in model.trainable_weights)
    shape = " x ".join(map(str, train.image_shape))
    numbers = map_heads(_outputs, train.problem, train.num_classes)
    if isinstance(numbers, dict):
        numbers = ", ".join(f"{head}: {text}" for head, text in numbers.items())
    split = train.source.split_by
    missing = ", ".join(f"{count:,} without {head}" for head, count in train.missing.items())
    lines = {
        "recipe": f"{recipe.name}: {recipe.steps:,} updates of {recipe.batch_size:,} images, "
        f"epochs: {epochs(recipe)}; "
        f"{recipe.optimizer}, learning rate {recipe.learning_rate:.6g}",
        "data": f"{train.name}: {train.num_examples:,} images to train on"
        f"{missing and f' ({missing})'}, {test.num_examples:,} to test on"
        f"{f' (split by {split})' if split else ''}, {numbers}; {shape}",
        "model": f"{model.name}: {count:,} parameters, {trained:,} of them trained, "
        f"in {recipe.precision}",
        "weights": _loaded(report) if report else "none: it begins at random",
        **({"teacher": job.teacher} if job.teacher else {}),
        "output": f"{job.output}, by {keras.backend.backend()}; `keras-vit train --show` with "
        "these flags prints the whole recipe",
    }
    return "\n".join(f"{name:<8} {visible(text)}" for name, text in lines.items())


def _outputs(problem, count):
    if problem == "regression":
        return f"{count:,} value{'s' if count > 1 else ''}"
    return f"{count:,} classes"


def planned(job):
    """(job, model): the job as it would run, and its model; published weights are not fetched.

    Where these are not on this machine the model has their architecture and fresh weights.
    """
    record = job.weights and unfetched(job.weights)
    architecture = job
    if record:
        variant = job.model or record.variant.removeprefix("BiT-")
        architecture = dataclasses.replace(job, weights=None, model=variant)
    model = architecture.build(job.load_train(batch_size=1))
    if record and record.preprocessing:
        model.preprocessing = record.preprocessing
    return job.for_weights(model), model


def cost(job, model):
    """What the run of a job and a model from `planned` costs, by a few batches: a `Cost`."""
    train = job.load_train()
    model.preprocessing = train.preprocessing
    counted = count(model, job.recipe, train.steps_per_epoch // job.recipe.accumulate)
    return measured(counted, job.compile(model), job.load_train)


def sweep(job, learning_rates=None, validation=None, **options):
    """Trains at several learning rates and tells which does best: a `SweepResult`.

    Args:
        learning_rates: to try; by default those of the recipe or, where it has one alone, a
            third of it, itself and three times it.
        validation: the images to choose by; by default the part validation, or else the last
            tenth of `"train"`, on which no run trains then.
        **options: of `training.sweep`.

    Raises:
        ValueError: another split than `"train"`, without `validation`.
    """
    recipe, split = job.recipe, job.split or job.recipe.train_split or "train"
    if validation is None:
        source = open_source(job.dataset or recipe.dataset, job.data_dir, job.labels, job.problem)
        if "validation" in map(part_of, source.parts):
            validation = "validation"
        elif split == "train":
            split, validation = "train[:90%]", "train[90%:]"
        else:
            raise ValueError(
                "Learning rates are chosen by images that are not trained on. Received: "
                f"split={split!r}, and no validation; name a split for it"
            )
    rate, train = recipe.learning_rate, job.load(split, training=True)
    chosen = job.for_weights(job.build(train))
    recipe, train = chosen.recipe, train if chosen is job else chosen.load(split, training=True)
    passes = options.setdefault("epochs", max(1, round(recipe.passes)))
    recipe = recipe.scale(steps=max(1, passes * len(train) // recipe.accumulate))
    label_units = units.units_of(train)
    rates = learning_rates or recipe.learning_rates or (rate / 3, rate, 3 * rate)
    monitor = "loss" if recipe.problem == "regression" else recipe.monitor.removeprefix("val_")
    options |= {"learning_rates": rates, "monitor": monitor}
    train = units.in_units(train, label_units)
    validation = units.in_units(chosen.load(validation, training=False), label_units)

    def make_model():
        model = chosen.build(train)
        units.turn_head(model, label_units, back=True)
        return chosen.with_teacher(model)

    return training.sweep(make_model, recipe, train=train, validation=validation, **options)


def _loaded(report):
    """A `LoadReport` in one line, without what was assumed."""
    parts = [
        f"{len(report.loaded)} variables loaded",
        report.head and f"head: {report.head}",
        report.resized and f"{len(report.resized)} resized",
        *(f"{name}={present!r} instead of {wanted!r}" for name, wanted, present in report.differs),
    ]
    return f"{report.path} ({report.family}): {'; '.join(filter(None, parts))}"
