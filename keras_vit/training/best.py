"""The best weights on validation: a run ends with them, and may end early."""

import contextlib
import math
import warnings
from typing import Any

import keras
import numpy as np

from keras_vit.checks import check_choice, positive_int
from keras_vit.training.checkpoint import changing, inner_optimizer, sync, value_of
from keras_vit.training.ema import averaged_weights

_STATE = ("epoch", "figures", "wait", "weights")
_LOW, _HIGH = ("loss", "error"), ("accuracy", "precision", "recall", "auc", "r2_score", "r2", "iou")


class BestWeights(keras.callbacks.Callback):
    """Ends a training with the weights of the epoch that was best on validation.

    Of epochs with the same figure the one with the lower `val_loss` is better: a few images give
    few accuracies, and the first epoch that reaches the highest one is seldom the best. Where the
    evaluation sees averaged weights (`EvaluateAverages`, which stands before this callback), the
    averages of that epoch are kept.

    A run of `keras_vit.training.fit` that was stopped or killed ends with the same weights, which
    `keras.callbacks.EarlyStopping` forgets when a process ends.

    Args:
        monitor: column of the history that decides, such as `"val_accuracy"`.
        patience: epochs without a better one after which training ends; `None` for no early end.
        mode: `"max"` where a high figure is better, `"min"` where a low one is; `"auto"` takes it
            from the name of the figure.

    Raises:
        ValueError: `patience` is not positive, or a name that does not tell which figures are
            better; at the end of an epoch with validation, no such figure.
    """

    def __init__(
        self, monitor: str = "val_accuracy", patience: int | None = None, mode: str = "auto"
    ):
        super().__init__()
        check_choice("mode", mode, ("auto", "min", "max"))
        self.monitor, self.mode = monitor, _mode_of(monitor, mode)
        self.patience = None if patience is None else positive_int(patience, "patience")
        self.on_train_begin()

    def on_train_begin(self, logs=None):
        self.epoch = None  # the best one so far, from 0
        self.figures: Any = {}  # of that epoch: the one that decides, and the loss
        self.wait = 0  # epochs since
        self.weights: Any = None
        self._averaged = False

    def get_state(self):
        """What a checkpoint of `keras_vit.training.fit` keeps."""
        return {name: getattr(self, name) for name in _STATE}

    def set_state(self, state):
        """Goes on with what `get_state` has returned."""
        for name in _STATE:
            setattr(self, name, state[name])

    def on_test_batch_begin(self, batch, logs=None):
        optimizer = inner_optimizer(self.model)
        self._averaged = getattr(optimizer, "replaced_weights", None) is not None

    def on_epoch_end(self, epoch, logs=None):
        logs = logs or {}
        if self.monitor not in logs:
            if measured := [name for name in logs if name.startswith("val_")]:
                raise ValueError(
                    f"The validation has no figure {self.monitor!r} to find the best epoch by. "
                    f"Received: {', '.join(measured)}; choose one of them as `monitor`."
                )
            return  # an epoch without validation
        figures = {n: float(logs[n]) for n in (self.monitor, "val_loss") if n in logs}
        new, best = (_rank(each, self.monitor, self.mode) for each in (figures, self.figures))
        if new > best:
            self.epoch, self.figures, self.wait = epoch, figures, 0
            with averaged_weights(self.model) if self._averaged else contextlib.nullcontext():
                sync(self.model)
                self.weights = [np.array(value_of(v)) for v in self._variables()]
            return
        self.wait += 1
        if self.patience is not None and self.wait >= self.patience:
            self.model.stop_training = True

    def on_train_end(self, logs=None):
        if self.weights is not None:
            for variable, value in zip(self._variables(), self.weights, strict=True):
                variable.assign(value)
            self.weights = None  # the model has them
        elif self.epoch is None:
            warnings.warn(self.summary(0, 0), stacklevel=2)

    def _variables(self):
        return changing(self.model, self.model.weights)

    def summary(self, epoch, epochs):
        """Which epoch the weights are of, for people, after training until this one of `epochs`."""
        if self.epoch is None:
            return f"No epoch has a {self.monitor}: the weights are those of the last one."
        early = self.patience is not None and self.wait >= self.patience and epoch + 1 < epochs
        stopped = f"Stopped early, after {self.wait} epochs without a better one. " if early else ""
        return (
            f"{stopped}The weights are those of epoch {self.epoch + 1} of {epoch + 1}, the best on "
            f"validation: {self.monitor} {self.figures[self.monitor]:.4g}."
        )


def _rank(figures, monitor, mode):
    """A pair that is greater for better figures: by `monitor`, then by a low loss; NaN is worst."""
    value, loss = figures.get(monitor), figures.get("val_loss", 0.0)
    if value is None or not math.isfinite(value):
        return -math.inf, -math.inf
    return value if mode == "max" else -value, -loss if math.isfinite(loss) else -math.inf


def best_epoch(history: dict[str, list[Any]], monitor: str, mode: str = "auto") -> int | None:
    """The epoch, from 0, whose weights `BestWeights` keeps, or `None` where none has the figure.

    Args:
        history: what `keras_vit.training.fit` returns.
        monitor, mode: as in `BestWeights`.
    """
    mode = _mode_of(monitor, mode)
    rows = [dict(zip(history, row)) for row in zip(*history.values())]
    ranks = {None: _rank({}, monitor, mode)}  # of equal ones the first is the best
    ranks |= {row["epoch"]: _rank(row, monitor, mode) for row in rows}
    return max(ranks, key=ranks.get)


def _mode_of(monitor, mode):
    """`"max"` or `"min"`; for `"auto"` by the name of the figure."""
    if mode != "auto":
        return mode
    for mode, ends in (("min", _LOW), ("max", _HIGH)):
        if str(monitor).lower().endswith(ends):
            return mode
    raise ValueError(
        "The name of a figure must tell whether high or low ones are better, or mode='max' or "
        f"mode='min' say it. Received: monitor={monitor!r}, mode='auto'."
    )
