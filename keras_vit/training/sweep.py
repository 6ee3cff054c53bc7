"""Learning-rate sweeps: the recipe's list, one winner by validation (section 4.1, Table 4)."""

import math
import time

import keras

from keras_vit.checks import positive_float, positive_int
from keras_vit.seeding import set_random_seed
from keras_vit.training.sweep_record import Record, SweepResult, Trial, header, lower_is_better


def sweep(
    make_model,
    recipe,
    train,
    validation,
    learning_rates=None,
    monitor="accuracy",
    early_stop=None,
    path=None,
    verbose=True,
    **fit_options,
):
    """Trains a model at each learning rate and picks the one that does best on validation data.

    Every run begins with the same weights and the same random state. A rate at which the loss
    ceases to be finite counts as diverged, and the others go on. With a `path`, every finished
    run is in the file at once, and a sweep that was interrupted goes on with what is missing.

    The winner is meant for a training on all the data:
    `recipe.replace(learning_rate=sweep(...).learning_rate)`.

    Args:
        make_model: function without arguments that builds the model, uncompiled.
        recipe: has `name`, `learning_rates`, `seed`, `replace(learning_rate=...)` and
            `compile(model)`; `epochs` or `steps` and `batch_size` where `fit_options` lack them.
        train: (images, labels), or a dataset that can be gone through several times.
        validation: the same, apart from `train` and from the test set.
        learning_rates: to try; those of the recipe if not given.
        monitor: the metric that decides, by its name in `model.evaluate`. Higher is better,
            but for a loss.
        early_stop: end a run after this many epochs without a better score, and take the weights
            of its best epoch (`keras.callbacks.EarlyStopping`); `None` for the full length. A
            schedule that decays to zero at the end of the run never gets there if it is stopped.
        path: a .json file for the results; the initial weights lie beside it, as .initial.npz.
        verbose: whether to print each run and the table.
        **fit_options: more arguments of `model.fit`.

    Returns:
        A `SweepResult`.

    Raises:
        ValueError: no or wrong learning rates, an unknown metric, data for one pass only, or a
            file with a sweep of other settings.
    """
    rates = _check_rates(recipe.learning_rates if learning_rates is None else learning_rates)
    options = {"verbose": 0, **_duration(recipe, train, fit_options)}
    for name, data in (("train", train), ("validation", validation)):
        _check_repeatable(name, data)
    record = Record(path, _settings(recipe, monitor, early_stop, options))
    if verbose:
        print(f"{recipe.name}: learning rates {rates}\n{header(monitor)}", flush=True)
    initial = None
    for rate in rates:
        if rate in record.trials:
            continue
        set_random_seed(getattr(recipe, "seed", 0) or 0)
        model = make_model()
        initial = record.initial_weights(model) if initial is None else initial
        model.set_weights(initial)
        recipe.replace(learning_rate=rate).compile(model)
        record.add(_run(model, rate, train, validation, monitor, early_stop, options))
        if verbose:
            print(record.trials[rate], flush=True)
    trials = tuple(record.trials[rate] for rate in rates)
    result = SweepResult(recipe.name, monitor, trials)
    if verbose:
        print(result, flush=True)
    return result


def _run(model, rate, train, validation, monitor, early_stop, options):
    callbacks = [*options.get("callbacks", ()), keras.callbacks.TerminateOnNaN()]
    options, start = {**options, "callbacks": callbacks}, time.perf_counter()
    if early_stop is not None:
        options["validation_data"] = validation
        callbacks.append(_early_stopping(monitor, early_stop))
    history = model.fit(*_as_arguments(train), **options)
    loss, epochs = history.history["loss"][-1], len(history.epoch)
    scores = {"loss": loss}
    if math.isfinite(loss):
        scores = model.evaluate(*_as_arguments(validation), verbose=0, return_dict=True)
        if monitor not in scores:
            raise ValueError(
                f"The model has no such metric. Received: monitor={monitor!r}; it has "
                f"{sorted(scores)}."
            )
    diverged = not all(math.isfinite(scores.get(name, 0.0)) for name in ("loss", monitor))
    numbers = (None, None) if diverged else (float(scores[monitor]), float(loss))
    return Trial(rate, diverged, *numbers, epochs, round(time.perf_counter() - start, 2))


def _early_stopping(monitor, patience):
    return keras.callbacks.EarlyStopping(
        f"val_{monitor}",
        patience=positive_int(patience, "early_stop"),
        mode="min" if lower_is_better(monitor) else "max",
        restore_best_weights=True,
    )


def _settings(recipe, monitor, early_stop, options):
    """What must be equal for the trials of two calls to be comparable."""
    values = {k: repr(v) for k, v in options.items() if k not in ("callbacks", "verbose")}
    return {"recipe": repr(recipe), "monitor": monitor, "early_stop": early_stop, "fit": values}


def _check_rates(rates):
    rates = sorted({positive_float(rate, "learning_rate") for rate in rates})
    if not rates:
        raise ValueError(
            "A sweep needs learning rates. Received: none, and the recipe lists none; give "
            "learning_rates."
        )
    return rates


def _check_repeatable(name, data):
    if hasattr(data, "__next__"):
        raise ValueError(
            f"{name} must be (images, labels) or a dataset that every run can go through anew. "
            f"Received: an iterator, {type(data).__name__}."
        )


def _duration(recipe, train, options):
    """The options of `fit` with the recipe's batch size and length where they name none."""
    options = dict(options)
    if isinstance(train, (tuple, list)):
        micro_batch_size = getattr(recipe, "micro_batch_size", recipe.batch_size)
        options.setdefault("batch_size", micro_batch_size)
    if "epochs" in options:
        return options
    if getattr(recipe, "epochs", None):
        return {**options, "epochs": recipe.epochs}
    steps = recipe.steps * getattr(recipe, "accumulate", 1)
    per_epoch = options.get("steps_per_epoch") or _batches(train, options.get("batch_size"))
    if per_epoch is None:  # data without end
        return {**options, "epochs": 1, "steps_per_epoch": steps}
    return {**options, "epochs": math.ceil(steps / per_epoch)}


def _batches(train, batch_size):
    if isinstance(train, (tuple, list)):
        return math.ceil(len(train[0]) / batch_size)
    try:
        return len(train)
    except TypeError:
        return None


def _as_arguments(data):
    return data if isinstance(data, (tuple, list)) else (data,)
