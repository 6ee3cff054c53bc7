"""Callbacks for `model.fit`."""

import os
import pathlib

import keras


class Checkpoint(keras.callbacks.Callback):
    """Saves model and optimizer before the first epoch and after each, whole or not at all.

    The file is written beside its place and moved there when complete, so that a run that is
    killed at any moment leaves the last finished epoch. `keras.saving.load_model` reads it; with
    the optimizer, on the backend that wrote it (`compile=False` on another).

    Args:
        path: the `.keras` file to write.
    """

    def __init__(self, path):
        super().__init__()
        self.path = pathlib.Path(path)

    def on_train_begin(self, logs=None):
        self._save()

    def on_epoch_end(self, epoch, logs=None):
        self._save()

    def _save(self):
        partial = self.path.with_name(f"{self.path.stem}.partial.keras")
        self.model.save(partial)
        os.replace(partial, self.path)
