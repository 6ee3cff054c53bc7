"""Learning-rate sweeps: the recipe's list, one winner by validation (section 4.1, Table 4)."""

import dataclasses
import json
import math
import pathlib

import keras

from keras_vit.checks import positive_float, positive_int
from keras_vit.workarounds import set_random_seed


@dataclasses.dataclass(frozen=True)
class Trial:
    """What became of one learning rate.

    Attributes:
        learning_rate: the rate.
        score: the monitored value on the validation set after the training; `None` where the loss
            ceased to be finite.
        loss: the loss of the last epoch of training, or `None`.
        epochs: epochs trained.
    """

    learning_rate: float
    score: float | None
    loss: float | None
    epochs: int

    @property
    def diverged(self):
        """Whether the loss ceased to be finite."""
        return self.score is None


@dataclasses.dataclass(frozen=True)
class SweepResult:
    """The trials of a sweep and their winner; printing it shows a table.

    Attributes:
        recipe: name of the recipe.
        monitor: name of the score.
        trials: a `Trial` per learning rate, from the lowest.
    """

    recipe: str
    monitor: str
    trials: tuple[Trial, ...]

    @property
    def best(self):
        """The trial with the best score; of equal ones, that with the lowest learning rate.

        Raises:
            ValueError: all have diverged.
        """
        finished = [trial for trial in self.trials if not trial.diverged]
        if not finished:
            rates = [trial.learning_rate for trial in self.trials]
            raise ValueError(
                f"The loss was not finite at any learning rate. Received: {rates}; try lower ones."
            )
        sign = 1 if _lower_is_better(self.monitor) else -1
        return min(finished, key=lambda trial: (sign * trial.score, trial.learning_rate))

    @property
    def learning_rate(self):
        """The winning learning rate."""
        return self.best.learning_rate

    def __str__(self):
        best = None if all(trial.diverged for trial in self.trials) else self.best
        rows = [f"{'learning rate':>13} {self.monitor:>10} {'loss':>10} {'epochs':>6}"]
        for trial in self.trials:
            numbers = f"{'diverged':>10} {'':>10}"
            if not trial.diverged:
                numbers = f"{trial.score:>10.4f} {trial.loss:>10.4f}"
            chosen = "  <- chosen" if trial is best else ""
            rows.append(f"{trial.learning_rate:>13g} {numbers} {trial.epochs:>6}{chosen}")
        return "\n".join(rows)


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
    ceases to be finite counts as diverged, and the others go on.

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
        path: a .json file for the trials, written after each.
        verbose: whether to print the table after each run.
        **fit_options: more arguments of `model.fit`.

    Returns:
        A `SweepResult`.

    Raises:
        ValueError: no or wrong learning rates, an unknown metric, or data for one pass only.
    """
    rates = recipe.learning_rates if learning_rates is None else learning_rates
    rates = sorted({positive_float(rate, "learning_rate") for rate in rates})
    if not rates:
        raise ValueError(
            "A sweep needs learning rates. Received: none, and the recipe lists none; give "
            "learning_rates."
        )
    for name, data in (("train", train), ("validation", validation)):
        if hasattr(data, "__next__"):
            raise ValueError(
                f"{name} must be (images, labels) or a dataset that every run can go through "
                f"anew. Received: an iterator, {type(data).__name__}."
            )
    options = {"verbose": 0, **_duration(recipe, train, fit_options)}
    initial, trials = None, []
    for rate in rates:
        set_random_seed(getattr(recipe, "seed", 0) or 0)
        model = make_model()
        initial = model.get_weights() if initial is None else initial
        model.set_weights(initial)
        recipe.replace(learning_rate=rate).compile(model)
        trials.append(_run(model, rate, train, validation, monitor, early_stop, options))
        result = SweepResult(recipe.name, monitor, tuple(trials))
        if path is not None:
            pathlib.Path(path).write_text(json.dumps(dataclasses.asdict(result), indent=1))
        if verbose:
            print(result, flush=True)
    return result


def _run(model, rate, train, validation, monitor, early_stop, options):
    callbacks = [*options.get("callbacks", ()), keras.callbacks.TerminateOnNaN()]
    options = {**options, "callbacks": callbacks}
    if early_stop is not None:
        options["validation_data"] = validation
        early_stopping = keras.callbacks.EarlyStopping(
            f"val_{monitor}",
            patience=positive_int(early_stop, "early_stop"),
            mode="min" if _lower_is_better(monitor) else "max",
            restore_best_weights=True,
        )
        callbacks.append(early_stopping)
    history = model.fit(*_as_arguments(train), **options)
    loss, epochs = history.history["loss"][-1], len(history.epoch)
    if not math.isfinite(loss):
        return Trial(rate, None, None, epochs)
    scores = model.evaluate(*_as_arguments(validation), verbose=0, return_dict=True)
    if monitor not in scores:
        raise ValueError(
            f"The model has no such metric. Received: monitor={monitor!r}; it has {sorted(scores)}."
        )
    if not (math.isfinite(scores["loss"]) and math.isfinite(scores[monitor])):
        return Trial(rate, None, None, epochs)
    return Trial(rate, float(scores[monitor]), float(loss), epochs)


def _lower_is_better(monitor):
    return monitor.endswith("loss") or "error" in monitor


def _duration(recipe, train, options):
    """The options of `fit` with the recipe's batch size and length where they name none."""
    options, arrays = dict(options), isinstance(train, (tuple, list))
    if arrays:
        options.setdefault("batch_size", getattr(recipe, "micro_batch_size", recipe.batch_size))
    if "epochs" in options:
        return options
    if getattr(recipe, "epochs", None):
        return {**options, "epochs": recipe.epochs}
    batches = recipe.steps * getattr(recipe, "accumulate", 1)
    per_epoch = options.get("steps_per_epoch")
    if arrays:
        per_epoch = math.ceil(len(train[0]) / options["batch_size"])
    elif per_epoch is None and hasattr(train, "__len__"):
        per_epoch = len(train)
    if per_epoch is None:  # data without end
        return {**options, "epochs": 1, "steps_per_epoch": batches}
    return {**options, "epochs": math.ceil(batches / per_epoch)}


def _as_arguments(data):
    return data if isinstance(data, (tuple, list)) else (data,)
