"""Where a run is, and the callbacks of Keras in one training of several parts."""

import time

import keras


class Progress:
    """Counts the updates of a run and the time they take.

    Attributes:
        step: updates done.
        total: updates of the whole run.
        per_epoch: updates of an epoch.
        seconds, timed: seconds that `timed` updates of this process took, with their data but
            without compilation, validation and saving.
    """

    def __init__(self, total, per_epoch, batch_size=None):
        self.total, self.per_epoch, self.batch_size = total, per_epoch, batch_size
        self.step = self.timed = 0
        self.seconds = 0.0
        self._mark, self._compiled = None, False

    @property
    def epoch(self):
        """The epoch of the last update, counted from 0."""
        return max(self.step - 1, 0) // self.per_epoch

    @property
    def ends_epoch(self):
        """Whether the last update was the last one of its epoch, or of the run."""
        return self.step == self.total or self.step % self.per_epoch == 0

    def start_clock(self):
        """Leaves out of the time what came before this moment."""
        self._mark = time.perf_counter()

    def advance(self, step):
        """Takes note of an update that has ended."""
        now = time.perf_counter()
        if self._compiled and self._mark is not None:
            self.seconds += now - self._mark
            self.timed += step - self.step
        self._compiled, self._mark, self.step = True, now, step

    def seconds_left(self):
        """An estimate for the updates that are left, or None before there is any."""
        if not self.timed:
            return None
        return (self.total - self.step) * self.seconds / self.timed


class OneTraining(keras.callbacks.CallbackList):
    """Lets callbacks see one training where `model.fit` is called several times.

    Keras calls `on_train_begin` and `on_train_end` in each `fit`, and counts the batches of an
    epoch that is continued from 0. Here the two come once, from `begin` and `end`, and the batch
    numbers go on.

    Args:
        progress: the run's `Progress`, which is advanced before any callback is called.
        callbacks: the callbacks.
        options: as for `keras.callbacks.CallbackList`.
    """

    def __init__(self, progress, callbacks, **options):
        super().__init__(callbacks, **options)
        self._progress, self._segment = progress, None
        self._epoch = self._offset = 0

    def begin(self):
        super().on_train_begin()

    def end(self, logs):
        super().on_train_end(logs)

    def continue_at(self, segment):
        """Takes note of the `Segment` that the next `fit` trains."""
        self._segment = segment

    def on_train_begin(self, logs=None):
        pass

    def on_train_end(self, logs=None):
        pass

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch
        self._offset = self._segment.offset if epoch == self._segment.epoch else 0
        super().on_epoch_begin(epoch, logs)
        self._progress.start_clock()

    def on_train_batch_begin(self, batch, logs=None):
        super().on_train_batch_begin(batch + self._offset, logs)

    def on_train_batch_end(self, batch, logs=None):
        batch += self._offset
        self._progress.advance(self._epoch * self._progress.per_epoch + batch + 1)
        super().on_train_batch_end(batch, logs)
