"""Saves a run, and lets it go on as if it had never stopped."""

import time

import keras

from keras_vit.training import state
from keras_vit.training.signals import Stop

_UPDATES_BETWEEN_TALKS = 10


class Keeper(keras.callbacks.Callback):
    """Saves checkpoints during `model.fit`, and stops it after the batch in which a signal came.

    The random generators of the process are set, before the first batch of an epoch, to where
    they were after the last one: what validation, other callbacks or a new start draw in between
    does not reach the training.

    Args:
        progress: the run's `Progress`.
        checkpoints: the run's `Checkpoints`.
        interval: when to save, a `SaveInterval`.
        signals: the `Signals` to obey.
        diverged: the run's `StopOnDivergence`.
        meta: a function that returns the description of the run, for the checkpoint.
        devices: the `keras_vit.distribution.Devices` of the run.
    """

    def __init__(self, progress, checkpoints, interval, signals, diverged, meta, devices):
        super().__init__()
        self.progress, self.checkpoints, self.interval = progress, checkpoints, interval
        self.signals, self.diverged, self.meta = signals, diverged, meta
        self.devices = devices
        self.generators = state.capture_generators()
        self.metrics = None  # values after the last batch of an epoch
        self.epoch_open = True  # whether the end of the present epoch is still to come
        self._metrics_to_restore = None
        self._begin_epoch = False

    def resume(self, arrays, epoch_open):
        """Sets everything to a checkpoint; the metrics too if it is from within an epoch."""
        state.restore(self.model, arrays)
        self.generators = state.saved_generators(arrays)
        self.epoch_open = epoch_open
        if epoch_open:
            self._metrics_to_restore = arrays
        self.interval.saved(self.progress.step)

    def on_epoch_begin(self, epoch, logs=None):
        if self._metrics_to_restore is not None:  # `fit` has just set them to zero
            state.restore(self.model, self._metrics_to_restore, groups=["metrics"])
            self._metrics_to_restore = None
        self._begin_epoch = self.epoch_open = True

    def on_train_batch_begin(self, batch, logs=None):
        if self._begin_epoch:
            state.restore_generators(self.generators)
            self._begin_epoch = False

    def on_train_batch_end(self, batch, logs=None):
        due, asked = self._due_and_asked()
        if self.progress.ends_epoch:
            state.sync(self.model)
            self.metrics = state.metric_values(self.model)
            self.generators = state.capture_generators()
        elif due and not asked:
            self.save()
        _stop_if(asked)

    def on_test_batch_end(self, batch, logs=None):
        if self.signals.asked is not None and self.devices.processes == 1:
            # Now: when `fit` is left, others may have set the weights (to averages, say) for the
            # evaluation and back again, and JAX's copy of the former must not come over the latter.
            state.sync(self.model)
            raise Stop

    def on_epoch_end(self, epoch, logs=None):
        self.epoch_open = False
        ends_run = self.model.stop_training or self.progress.step == self.progress.total
        due, asked = self._due_and_asked()
        if due and not ends_run and not asked:
            self.save()
        _stop_if(asked)

    def save(self, finished=False):
        """Writes a checkpoint of the present moment.

        Args:
            finished: whether no update is to come.

        Raises:
            DivergenceError: a weight is not finite.
        """
        state.sync(self.model)
        broken = state.first_not_finite(self.model)
        if broken:
            self.diverged.stop(f"the weight {broken} is not finite")
        ended = self.progress.ends_epoch and self.metrics is not None
        arrays = state.capture(
            self.model,
            metrics=self.metrics if ended else None,
            generators=self.generators if ended else None,
        )
        meta = {**self.meta(), "epoch_open": self.epoch_open, "finished": finished}
        path = self.checkpoints.save(self.progress.step, arrays, meta)
        self.interval.saved(self.progress.step)
        self.progress.start_clock()
        return path

    def _due_and_asked(self):
        """Whether to save and whether to stop, the same in all processes.

        One that left the others would keep them waiting for ever. As asking one another takes time,
        they do so at the end of an epoch and every few updates.
        """
        step = self.progress.step
        due, asked = self.interval.due(step), self.signals.asked is not None
        if self.devices.processes == 1:
            return due, asked
        if step % _UPDATES_BETWEEN_TALKS and not self.progress.ends_epoch:
            return bool(self.interval.steps) and due, False
        return self.devices.any_of(due, asked)


def _stop_if(asked):
    if asked:
        raise Stop


class SaveInterval:
    """When the next checkpoint is due.

    Args:
        every: updates between two checkpoints, or seconds as text such as "600s".

    Raises:
        ValueError: neither of them.
    """

    def __init__(self, every):
        self.steps = self.seconds = None
        if isinstance(every, str) and every.endswith("s") and _is_positive(every[:-1]):
            self.seconds = float(every[:-1])
        elif isinstance(every, int) and not isinstance(every, bool) and every >= 1:
            self.steps = every
        else:
            raise ValueError(
                "save_every must be a number of updates such as 500, or of seconds such as "
                f'"600s". Received: {every!r}'
            )
        self.saved(0)

    def saved(self, step):
        """Takes note of a checkpoint."""
        self._step, self._time = step, time.monotonic()

    def due(self, step):
        """Whether it is time for one."""
        if self.steps:
            return step // self.steps > self._step // self.steps
        return time.monotonic() - self._time >= self.seconds


def _is_positive(text):
    try:
        return float(text) > 0
    except ValueError:
        return False
