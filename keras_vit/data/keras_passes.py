"""Batches in their own order under `fit`, `evaluate` and `predict`, which shuffle the numbers."""

import operator

import keras


class Passes(keras.utils.PyDataset):
    """A `PyDataset` whose batches Keras receives in order, pass after pass.

    Keras permutes the batch numbers with Python's global generator (`fit`'s `shuffle=True` is the
    default), fetches a batch or two to build the model before it begins, and says neither which
    epoch it is in nor where the last one stopped. Here the k-th request since `on_epoch_begin` gets
    the k-th batch of the pass, whatever its number, and the requests for building do not count.

    A subclass sets `_start`, the step at which the next pass begins, and implements
    `batch(step)`, `after(step)` and `num_batches`. Loading stays in one thread of Keras: with
    more, it rotates the batches.
    """

    def __init__(self, start):
        super().__init__()
        self._start = start
        self._served = None
        self._closing_is_no_pass = False

    def batch(self, step):
        """The batch of a step."""
        raise NotImplementedError

    def __getitem__(self, index):
        index = operator.index(index)
        if not 0 <= index < self.num_batches:
            raise IndexError(f"Batch {index} is outside 0..{self.num_batches - 1}.")
        if self._served is not None:
            index = self._served
            self._served += 1
        return self.batch(self._start + index)

    # Wrapping a dataset reads `workers`, once; then comes on_epoch_end, after the model has been
    # built from a few batches. That end is not the end of a pass.

    @property
    def workers(self):
        """Always 1: the number of threads that Keras may load batches with."""
        if self._served is None:
            self._closing_is_no_pass = True
        return 1

    def on_epoch_begin(self):
        """Called by Keras before the batches of a pass."""
        self._served = 0

    def on_epoch_end(self):
        """Called by Keras after the batches of a pass."""
        served, self._served = self._served, None
        if self._closing_is_no_pass:
            self._closing_is_no_pass = False
        else:
            self._start = self.after(self.num_batches if served is None else served)
