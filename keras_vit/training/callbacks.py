"""How callbacks see a run of `training.fit`, and what stops it."""

import contextlib
import dataclasses
import os
import signal
import sys
import threading

import keras


@dataclasses.dataclass
class Progress:
    """Where a run is.

    Attributes:
        total, per_epoch: batches of the whole run and of an epoch.
        accumulate: batches of an update.
        batch_size: images of a batch, or None.
        batch: batches done.
    """

    total: int
    per_epoch: int
    accumulate: int = 1
    batch_size: int | None = None
    batch: int = 0

    @property
    def epoch(self):
        """The epoch of the last batch, counted from 0."""
        return max(self.batch - 1, 0) // self.per_epoch

    @property
    def epochs(self):
        """Epochs of the whole run; the last one may be incomplete."""
        return -(-self.total // self.per_epoch)

    @property
    def updates(self):
        """Updates done."""
        return self.batch // self.accumulate

    @property
    def total_updates(self):
        """Updates of the whole run."""
        return self.total // self.accumulate

    @property
    def ends_epoch(self):
        """Whether the last batch was the last one of its epoch, or of the run."""
        return self.batch == self.total or self.batch % self.per_epoch == 0


class RunCallbacks(keras.callbacks.CallbackList):
    """Lets callbacks see one training where `model.fit` is called for each epoch.

    Keras calls `on_train_begin` and `on_train_end` in each `fit`, counts the batches of an epoch
    that is continued from 0, and ends an epoch before its validation. Here the two come once, from
    `begin` and `end`, the batch numbers go on, and the epoch ends by `end_epoch`.

    Args:
        run: a `Run`, which is told before and after the callbacks of each batch.
        callbacks: the callbacks.
        **options: as for `keras.callbacks.CallbackList`.

    Attributes:
        epoch_logs: the metrics of the epoch that `fit` has ended.
    """

    def __init__(self, run, callbacks, **options):
        super().__init__(callbacks, **options)
        self._run, self._progress, self._offset = run, run.progress, 0
        self.epoch_logs = None

    begin = keras.callbacks.CallbackList.on_train_begin
    end_epoch = keras.callbacks.CallbackList.on_epoch_end
    end = keras.callbacks.CallbackList.on_train_end

    def on_train_begin(self, logs=None):
        pass

    def on_train_end(self, logs=None):
        pass

    def on_epoch_begin(self, epoch, logs=None):
        self._offset = self._progress.batch - epoch * self._progress.per_epoch
        self._run.begin_epoch()
        super().on_epoch_begin(epoch, logs)

    def on_epoch_end(self, epoch, logs=None):
        self.epoch_logs = {name: float(value) for name, value in (logs or {}).items()}

    def on_train_batch_begin(self, batch, logs=None):
        self._run.begin_batch()
        super().on_train_batch_begin(batch + self._offset, logs)

    def on_train_batch_end(self, batch, logs=None):
        batch += self._offset
        epoch = self._progress.batch // self._progress.per_epoch
        self._progress.batch = epoch * self._progress.per_epoch + batch + 1
        self._run.check_losses(logs or {})
        super().on_train_batch_end(batch, logs)
        self._run.end_batch()

    def on_test_batch_end(self, batch, logs=None):
        super().on_test_batch_end(batch, logs)
        self._run.end_test_batch()


class DivergenceError(ValueError):
    """The loss or the weights are no longer finite."""


class Interrupted(SystemExit):
    """A run was stopped by a signal, and saved.

    Left alone it ends the process with the code that shells expect: 130 after Ctrl-C, 143 after
    SIGTERM.
    """


class Signals:
    """While it is entered, remembers the first SIGINT or SIGTERM instead of obeying it.

    Left to itself, Python raises KeyboardInterrupt wherever it happens to be, and where that is a
    hook of a backend (JAX's garbage collection, for one) the exception is swallowed and training
    goes on. A second signal does what it did before. Outside the main thread, where Python lets
    nobody handle signals, nothing changes.

    Attributes:
        asked: the number of the signal that came, or None.
    """

    def __init__(self):
        self.asked, self._before = None, {}

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, *_):
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _remember(self, number, frame):
        self.asked = number
        self.__exit__()
        text = (
            f"{signal.Signals(number).name}: stopping after this batch and saving; a second one "
            "stops at once, without.\n"
        )
        # Past Python's buffer: a signal that comes within a `print` must not print. A notebook's
        # output is no file; there the run says at its end what it did.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            os.write(sys.stdout.fileno(), text.encode())
