"""Batches in their own order under `fit`, `evaluate` and `predict`, which shuffle the numbers."""

import operator
import threading

import keras


class Passes(keras.utils.PyDataset):
    """A `PyDataset` whose batches Keras receives in order, pass after pass.

    Keras permutes the batch numbers with Python's global generator (`fit`'s `shuffle=True` is the
    default), fetches a batch or two to build the model before it begins, and says neither which
    epoch it is in nor where the last one stopped. Here the k-th request since a pass began gets
    the k-th batch of the pass, whatever its number, and the requests for building do not count.

    With `steps_per_epoch` an epoch of Keras ends within a pass, which the next epoch goes on with.
    TensorFlow reads ahead then, so that a later `fit` would leave out what was read and not used:
    tell it where to begin. Loading stays in one thread of Keras: with more, it rotates the batches.

    A subclass implements `batch(step)`, `after(served)` and `num_batches`.
    """

    def __init__(self, start):
        super().__init__()
        self._start = start  # the step of the first batch of the pass
        self._served = None  # batches of the pass requested so far
        self._building = self._within_epoch = False
        self._lock = threading.Lock()  # TensorFlow requests batches from a thread of its own

    def batch(self, step):
        """The batch of a step."""
        raise NotImplementedError

    def after(self, served):
        """The step at which the pass begins that follows one of which `served` were requested."""
        raise NotImplementedError

    def __getitem__(self, index):
        index = operator.index(index)
        if not 0 <= index < self.num_batches:
            raise IndexError(f"Batch {index} is outside 0..{self.num_batches - 1}.")
        with self._lock:
            if self._served is not None:
                if self._served == self.num_batches:  # the next pass, within an epoch of Keras
                    self._leave_pass()
                    self._served = 0
                index = self._served
                self._served += 1
            step = self._start + index
        return self.batch(step)

    # Wrapping a dataset reads `workers`, once; then comes on_epoch_end, after the model has been
    # built from a few batches. That end is not the end of a pass.

    @property
    def workers(self):
        """Always 1: the number of threads that Keras may load batches with."""
        with self._lock:
            if self._served is not None:  # the last `fit` was stopped within it
                self._leave_pass()
            self._building = True
        return 1

    def on_epoch_begin(self):
        """Called by Keras before the batches of an epoch."""
        with self._lock:
            self._within_epoch = True
            if self._served is None:
                self._served = 0

    def on_epoch_end(self):
        """Called by Keras after the batches of an epoch; without Keras, call it after a pass."""
        with self._lock:
            if self._building:
                self._building, self._served = False, None
            elif not self._within_epoch or self._served in (None, self.num_batches):
                self._leave_pass()
            self._within_epoch = False

    def _leave_pass(self):
        served, self._served = self._served, None
        self._start = self.after(self.num_batches if served is None else served)
