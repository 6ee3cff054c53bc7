"""What Keras calls of a pipeline, in `fit`, `evaluate` and `predict`."""

import keras


class KerasSide(keras.utils.PyDataset):
    """Batches by number, and the epochs that Keras counts; the base of `Pipeline`.

    A subclass has `__len__`, `training`, `start`, the step at which it begins, and `from_step`.
    """

    passes = 0  # epochs that Keras has been through
    num_batches = property(lambda self: len(self))

    def __getitem__(self, index):
        """The batch of that number in the epoch that Keras is in."""
        if not 0 <= index < len(self):
            raise IndexError(f"Batch {index} is outside 0..{len(self) - 1}.")
        step = self.start + self.passes * len(self) + int(index)
        return next(iter(self.from_step(step, 1)))

    def on_epoch_end(self):
        """Called by Keras after each epoch, and once it has built a model from a first batch."""
        self.passes += self.training
