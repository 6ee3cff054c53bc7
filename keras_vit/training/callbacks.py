"""Callbacks for `model.fit`."""

import csv
import math
import os
import pathlib
import signal

import keras


class Checkpoint(keras.callbacks.Callback):
    """Saves model and optimizer before the first epoch and after each, whole or not at all.

    The file is written beside its place and moved there when complete, so that a run that is
    killed at any moment leaves the last finished epoch. An epoch whose loss is not finite is not
    saved: the last good one stays. `keras.saving.load_model` reads the file; with the optimizer,
    on the backend that wrote it (`compile=False` on another).

    Args:
        path: the `.keras` file to write.
    """

    def __init__(self, path):
        super().__init__()
        self.path = pathlib.Path(path)

    def on_train_begin(self, logs=None):
        self._save()

    def on_epoch_end(self, epoch, logs=None):
        if math.isfinite((logs or {}).get("loss", 0.0)):
            self._save()

    def _save(self):
        partial = self.path.with_name(f"{self.path.stem}.partial.keras")
        self.model.save(partial)
        os.replace(partial, self.path)


class HistoryCSV(keras.callbacks.CSVLogger):
    """Writes the metrics of every epoch to a CSV file, across interruptions.

    Args:
        path: the file to write.
        first_epoch: the epoch that comes first, counted from 0. Of an earlier part of the run in
            the file, the epochs before it are kept and the others dropped.
    """

    def __init__(self, path, first_epoch=0):
        self.path = pathlib.Path(path)
        rows = self.path.read_text().splitlines() if first_epoch and self.path.is_file() else []
        self.path.write_text("".join(f"{row}\n" for row in rows[: first_epoch + 1]))
        super().__init__(str(path), append=True)

    def read(self):
        """A dict from column to its values, one per epoch."""
        with self.path.open() as file:
            rows = list(csv.DictReader(file))
        return {name: [float(row[name]) for row in rows] for name in rows[0]} if rows else {}


class StopOnInterrupt(keras.callbacks.Callback):
    """Ends `fit` with a KeyboardInterrupt at the end of the batch in which Ctrl-C came.

    Left to itself, Python raises the exception wherever it happens to be, and where that is a
    hook of a backend (JAX's garbage collection, for one) the exception is swallowed and training
    goes on. A second Ctrl-C is left to Python. Put it last, so that an epoch that has ended is
    saved first.
    """

    def on_train_begin(self, logs=None):
        self._asked, self._before = False, signal.getsignal(signal.SIGINT)
        if self._before is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._remember)

    def _remember(self, number, frame):
        self._asked = True
        signal.signal(signal.SIGINT, self._before)

    def _stop_if_asked(self):
        if self._asked:
            raise KeyboardInterrupt

    def on_train_batch_end(self, batch, logs=None):
        self._stop_if_asked()

    def on_epoch_end(self, epoch, logs=None):
        self._stop_if_asked()

    def on_train_end(self, logs=None):
        signal.signal(signal.SIGINT, self._before)
