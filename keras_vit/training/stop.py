"""What stops a run of `training.fit`: a signal, values that are not finite, another run."""

import contextlib
import gc
import os
import signal
import sys
import threading
import traceback
from typing import Any

import filelock
import keras
import numpy as np

from keras_vit.distribution.lost_process import error_to_raise
from keras_vit.training import checkpoint
from keras_vit.writing import replacing


class DivergenceError(ValueError):
    """The loss or the weights are no longer finite."""


class Interrupted(SystemExit):
    """A run was stopped by a signal, and saved; its code is 130 after Ctrl-C, 143 after SIGTERM."""


class RunEnded(ValueError):
    """The output has a run with these settings that has ended, and no checkpoint of it any more.

    Attributes:
        history: what `keras_vit.training.fit` returned.
    """

    def __init__(self, output: str | os.PathLike[str], history: dict[str, list[Any]]):
        self.history = history
        super().__init__(
            f"{output} has this run already, which has ended; nothing is left to train. Load the "
            "model that was saved, or choose another output folder."
        )


class Signals:
    """While it is entered, `asked` becomes the number of the first SIGINT or SIGTERM.

    Left to itself, Python raises KeyboardInterrupt wherever it happens to be, and where that is a
    hook of a backend (JAX's garbage collection, for one) the exception is swallowed and training
    goes on. A second signal does what it did before. Outside the main thread, where Python lets
    nobody handle signals, nothing changes.
    """

    def __init__(self):
        self.asked, self._before = None, {}

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, error=None, *_):
        if error not in (None, Interrupted) and sys.stdout is not None and sys.stdout.isatty():
            print(flush=True)  # what went wrong is not told behind a progress bar
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _remember(self, number, frame):
        self.asked = number
        self.__exit__()
        name = signal.Signals(number).name
        text = f"{name}: stopping after this batch and saving; a second one stops at once, without."
        # Past Python's buffer: a signal that comes within a `print` must not print. A notebook's
        # output is no file; there the run says at its end what it did.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            place = sys.stdout.fileno()
            if os.isatty(place):
                text = f"\n{text}"  # not behind `^C` and a progress bar
            os.write(place, f"{text}\n".encode())


def only_run_in(folder):
    """A context in which no other process can be for the same folder.

    The lock is the operating system's and ends with the process, however that ends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return filelock.FileLock(folder / ".lock").acquire(timeout=1)
    except filelock.Timeout:
        raise ValueError(
            f"Another run is writing to this folder. Received: output={str(folder)!r}; wait for "
            "its end, or choose another folder."
        ) from None


@contextlib.contextmanager
def clean_end(devices):
    """A context that a run trains in: whatever ends it, nothing of Keras's iterators stays.

    An error that another process caused becomes one that says so.
    """
    try:
        yield
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)  # they hold Keras's iterator
        if (to_raise := error_to_raise(error, devices)) is not error:
            raise to_raise from error
        raise
    finally:
        if keras.backend.backend() == "tensorflow":
            gc.collect()  # its threads call Python, and must not when Python has ended


def diverged(run, what):
    """The error for what is not finite in a `Run`; the batch is saved."""
    checkpoint.sync(run.model)
    path, progress = run.output / "nan_batch.npz", run.progress
    batch = keras.tree.flatten(next(iter(run.data.from_step(progress.batch - 1))))
    with replacing(path) as stream:
        np.savez(stream, *[keras.ops.convert_to_numpy(part) for part in batch])
    rate = float(keras.ops.convert_to_numpy(run.model.optimizer.learning_rate))
    return DivergenceError(
        f"At update {progress.updates} (epoch {progress.epoch + 1}), with learning rate "
        f"{rate:.3g}, {what}, so training stopped. The batch is in {path}. The last good weights "
        f"are in {run.output / 'checkpoints'}. Lower the learning rate, lengthen its warm-up, clip "
        "the gradients, or compute in float32, in another output folder."
    )
