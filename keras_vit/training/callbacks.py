"""How callbacks see a run of `training.fit`, and what stops it."""

import contextlib
import math
import os
import signal
import sys
import threading

import keras
import numpy as np

from keras_vit.training.checkpoint import sync


class Progress:
    """Where a run is.

    Attributes:
        batch: batches done.
        total, per_epoch: batches of the whole run and of an epoch.
        accumulate: batches of an update.
        batch_size: images of a batch, or None.
    """

    def __init__(self, total, per_epoch, accumulate=1, batch_size=None):
        self.total, self.per_epoch, self.accumulate = total, per_epoch, accumulate
        self.batch_size, self.batch = batch_size, 0

    @property
    def epoch(self):
        """The epoch of the last batch, counted from 0."""
        return max(self.batch - 1, 0) // self.per_epoch

    @property
    def epochs(self):
        """Epochs of the whole run, the last one begun."""
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

    @property
    def end_of_epoch(self):
        """The batches that will be done at the end of the present epoch, or of the run."""
        return min((self.batch // self.per_epoch + 1) * self.per_epoch, self.total)


class EpochCallbacks(keras.callbacks.CallbackList):
    """Lets callbacks see one training where `model.fit` is called for each epoch.

    Keras calls `on_train_begin` and `on_train_end` in each `fit`, counts the batches of an epoch
    that is continued from 0, and ends an epoch before its validation. Here the two come once, from
    `begin` and `end`, the batch numbers go on, and the epoch ends by `end_epoch`.

    Args:
        progress: the run's `Progress`, which is advanced before any callback is called.
        callbacks: the callbacks.
        **options: as for `keras.callbacks.CallbackList`.

    Attributes:
        epoch_logs: the metrics of the epoch that `fit` has ended.
        interrupted: whether a signal has ended `fit` before that.
    """

    def __init__(self, progress, callbacks, **options):
        super().__init__(callbacks, **options)
        self._progress, self._offset, self.epoch_logs = progress, 0, None
        self.interrupted = False

    def begin(self):
        super().on_train_begin()

    def end_epoch(self, epoch, logs):
        super().on_epoch_end(epoch, logs)

    def end(self):
        super().on_train_end()

    def on_train_begin(self, logs=None):
        pass

    def on_train_end(self, logs=None):
        pass

    def on_epoch_begin(self, epoch, logs=None):
        self._offset = self._progress.batch - epoch * self._progress.per_epoch
        super().on_epoch_begin(epoch, logs)

    def on_epoch_end(self, epoch, logs=None):
        self.epoch_logs = {name: float(value) for name, value in (logs or {}).items()}

    def on_train_batch_begin(self, batch, logs=None):
        super().on_train_batch_begin(batch + self._offset, logs)

    def on_train_batch_end(self, batch, logs=None):
        batch += self._offset
        epoch = self._progress.batch // self._progress.per_epoch
        self._progress.batch = epoch * self._progress.per_epoch + batch + 1
        super().on_train_batch_end(batch, logs)


class DivergenceError(ValueError):
    """The loss, the gradients or the weights are no longer finite.

    Attributes:
        step: updates done, the one that failed included.
    """

    def __init__(self, message, step):
        super().__init__(message)
        self.step = step


class StopOnDivergence(keras.callbacks.Callback):
    """Stops training at the first update whose loss or gradients are not finite.

    `keras.callbacks.TerminateOnNaN` stops as well, but as if the training had ended well.

    Args:
        progress: the run's `Progress`.
        pipeline: where the batches come from.
        output: the folder, for `nan_batch.npz`.

    Attributes:
        error: a `DivergenceError` for `fit` to raise, or None.
    """

    def __init__(self, progress, pipeline, output):
        super().__init__()
        self.progress, self.pipeline, self.output = progress, pipeline, output
        self.error = None

    def on_train_batch_end(self, batch, logs=None):
        for name, value in (logs or {}).items():
            if name.endswith("loss") and not math.isfinite(value):
                self.error = self.describe(f"{name} is {value}")
                self.model.stop_training = True

    def describe(self, what):
        """The error for what is not finite; the batch is saved."""
        sync(self.model)
        progress, path = self.progress, self.output / "nan_batch.npz"
        batch = keras.tree.flatten(next(iter(self.pipeline.from_step(progress.batch - 1))))
        np.savez(path, *[keras.ops.convert_to_numpy(part) for part in batch])
        rate = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
        return DivergenceError(
            f"At update {progress.updates} (epoch {progress.epoch + 1}), with learning rate "
            f"{rate:.3g}, {what}, so training stopped. The batch is in {path}. The last good "
            f"weights are in {self.output / 'checkpoints'}. Lower the learning rate, lengthen its "
            "warm-up, clip the gradients, or compute in float32, in another output folder.",
            progress.updates,
        )


class AtEachBatch(keras.callbacks.Callback):
    """Sets the noise of each batch, saves when that is due, and stops where that was asked.

    Args:
        run: the `Run`.
        metrics: of the checkpoint that the run goes on from, or None.
    """

    def __init__(self, run, metrics=None):
        super().__init__()
        self.run, self.metrics = run, metrics

    @staticmethod
    def draw_seed():
        """A number that the noise of a whole run follows from."""
        if keras.backend.backend() != "torch":
            return 0
        import torch

        return int(torch.randint(2**31, ()))

    def on_epoch_begin(self, epoch, logs=None):
        if self.metrics and self.run.progress.batch % self.run.progress.per_epoch:
            self.run.state.assign(self.metrics)  # which `fit` has just reset
        self.metrics = None

    def on_train_batch_begin(self, batch, logs=None):
        """Layers without a seed draw from PyTorch's generator: a function of run and batch."""
        if keras.backend.backend() == "torch":
            import torch

            here = self.run.seed, self.run.progress.batch, self.run.devices.process
            own = np.random.SeedSequence(here)
            torch.manual_seed(int(own.generate_state(1)[0]))

    def on_train_batch_end(self, batch, logs=None):
        if self.run.progress.ends_epoch:
            return  # saved after validation
        due, asked = self.run.due_and_asked()
        if asked:
            self.run.callbacks.interrupted = self.model.stop_training = True
        elif due:
            self.run.save()

    def on_test_batch_end(self, batch, logs=None):
        if self.run.signals.asked and self.run.devices.processes == 1:
            self.model.stop_evaluating = True


class Interrupted(SystemExit):
    """A run was stopped by a signal, and saved.

    Left alone it ends the process with the code that shells expect: 130 after Ctrl-C, 143 after
    SIGTERM.

    Attributes:
        signal: the number of the signal.
    """

    def __init__(self, number):
        super().__init__(128 + number)
        self.signal = number


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
        for each, handler in self._before.items():
            signal.signal(each, handler)
        text = (
            f"{signal.Signals(number).name}: stopping after this batch and saving; a second one "
            "stops at once, without.\n"
        )
        # Past Python's buffer: a signal that comes within a `print` must not print. A notebook's
        # output is no file; there the run says at its end what it did.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            os.write(sys.stdout.fileno(), text.encode())
