"""Learning-rate sweeps: the recipe's list, one winner by validation (section 4.1, Table 4)."""

import dataclasses
import json
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import keras

from keras_vit.checks import positive_float, positive_int, require, warn_of_parts
from keras_vit.text import table
from keras_vit.workarounds import set_random_seed
from keras_vit.writing import output_place, write_text


@dataclasses.dataclass(frozen=True)
class SweepResult:
    """The trials of a sweep, and the best of them; printing it shows a table.

    Attributes:
        learning_rate: the rate with the best score, of equal ones the lowest; `None` where no
            rate had a finite loss: try lower ones.
        monitor: name of the score.
        trials: a dict per rate, from the lowest: `"learning_rate"`, `"score"` on the validation
            data and training `"loss"` (both `None` where the loss was not finite), `"epochs"`.
    """

    learning_rate: float | None
    monitor: str
    trials: list[dict]

    def __str__(self):
        rows = [["diverged" if x is None else f"{x:.6g}" for x in t.values()] for t in self.trials]
        return table(rows, ("learning rate", self.monitor, "loss", "epochs"), left=0)


def sweep(
    make_model: Callable[[], keras.Model],
    recipe: Any,
    train: Any,
    validation: Any,
    learning_rates: Sequence[float] | None = None,
    monitor: str = "accuracy",
    early_stop: int | None = None,
    path: str | os.PathLike[str] | None = None,
    **fit_options: Any,
) -> SweepResult:
    """Trains a model at each learning rate and tells which does best on validation data.

    Every run begins with the same weights and the same random state, and has the recipe's
    callbacks: its patch sizes, averages and best epoch count here, too. A rate at which the loss
    ceases to be finite counts as diverged, and the others go on. The winner is meant for a
    training on all the data: `recipe.replace(learning_rate=sweep(...).learning_rate)`.

    Args:
        make_model: function without arguments that builds the model, uncompiled.
        recipe: a `keras_vit.recipes.Recipe`.
        train, validation: (images, labels), or a dataset with a length that can be gone through
            several times; both apart from the test set.
        learning_rates: to try; those of the recipe if not given.
        monitor: the metric that decides, by its name in `model.evaluate`. Higher is better,
            but for a loss or an error.
        early_stop: end a run after this many epochs without a better score, and take the weights
            of its best epoch (`BestWeights`); `None` for what the recipe says.
        path: a .json file for the result, written after each run.
        **fit_options: of `model.fit`; by default the recipe decides `batch_size` and `epochs`.

    Raises:
        ValueError: no or wrong learning rates, an unknown metric, or data for one pass only.
    """
    if path is not None:
        output_place(path)
    rates = recipe.learning_rates if learning_rates is None else learning_rates
    rates = sorted({positive_float(rate, "learning_rate") for rate in rates})
    fits = rates and not hasattr(train, "__next__") and not hasattr(validation, "__next__")
    received = rates, type(train).__name__, type(validation).__name__
    rule = "A sweep needs learning rates, and data that every run can go through anew"
    require(fits, rule, received=received)
    arrays = isinstance(train, (tuple, list))
    options = {"verbose": 0, "batch_size": recipe.micro_batch_size if arrays else None}
    options |= fit_options
    if "epochs" not in options:
        per_epoch = math.ceil(len(train[0]) / options["batch_size"]) if arrays else len(train)
        options["epochs"] = math.ceil(recipe.steps * recipe.accumulate / per_epoch)
    sign = -1 if monitor.endswith(("loss", "error")) else 1
    if early_stop is not None:
        patience = positive_int(early_stop, "early_stop")
        recipe = recipe.replace(early_stopping=patience, keep_best=f"val_{monitor}")
    if recipe.keep_best or recipe.early_stopping:
        options["validation_data"] = validation
    else:  # which `fit` looks at otherwise
        warn_of_parts(train, validation)
    given = [*options.pop("callbacks", ()), keras.callbacks.TerminateOnNaN()]
    initial, trials = None, []
    for rate in rates:
        set_random_seed(recipe.seed)
        model = make_model()
        initial = initial or model.get_weights()
        model.set_weights(initial)
        recipe.replace(learning_rate=rate).compile(model)
        callbacks = [*recipe.callbacks(), *given]
        history = model.fit(*(train if arrays else (train,)), callbacks=callbacks, **options)
        data = validation if isinstance(validation, (tuple, list)) else (validation,)
        scores = model.evaluate(*data, verbose=0, return_dict=True)
        if monitor not in scores:
            raise ValueError(
                f"monitor must be a metric. Received: {monitor=}; the model has {sorted(scores)}."
            )
        loss, score = history.history["loss"][-1], scores[monitor]
        if not all(map(math.isfinite, (loss, score, scores["loss"]))):
            loss = score = None
        epochs = len(history.epoch)
        trials.append({"learning_rate": rate, "score": score, "loss": loss, "epochs": epochs})
        scored = [trial for trial in trials if trial["score"] is not None]
        best = max(scored, key=lambda trial: sign * trial["score"], default={})
        result = SweepResult(best.get("learning_rate"), monitor, trials)
        if path is not None:
            write_text(path, json.dumps(dataclasses.asdict(result), indent=1))
    return result
