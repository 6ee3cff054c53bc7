"""The callbacks of a run, which trains by one `model.fit` for each epoch."""

import keras


class Events(keras.callbacks.CallbackList):
    """Callbacks that see one training, whatever `fit` of an epoch or of a part of it calls.

    Keras would begin and end the training in each `fit`, count the batches of an epoch that is
    continued from 0, and end an epoch before its validation. The callbacks see one training: it
    begins and ends once, the batch numbers go on, and an epoch ends after its validation.
    `epoch_logs` holds the metrics of the last epoch, without its validation. `progress` tells the
    place of the next batch.
    """

    def __init__(self, callbacks, model, progress):
        self.progress, self.epoch_logs = progress, None
        self.first = self.last = 0  # the numbers in its epoch of the batches of a `fit`
        length = {"epochs": progress.epochs, "steps": progress.per_epoch}
        super().__init__(callbacks, add_history=True, model=model, verbose=1, **length)

    # ---- called by the run

    def begin_training(self):
        super().on_train_begin()

    def end_epoch(self, logs):
        super().on_epoch_end(self.progress.epoch, logs)

    def end_training(self):
        super().on_train_end()

    # ---- called by Keras, in this order

    def on_train_begin(self, logs=None):
        """Nothing, as `fit` comes once for each epoch: see `begin_training`."""

    def on_epoch_begin(self, epoch, logs=None):
        self.first = self.progress.batch % self.progress.per_epoch
        self.last = self.first + self.progress.next_epoch[1] - 1
        super().on_epoch_begin(epoch, logs)

    def on_train_batch_begin(self, batch, logs=None):
        super().on_train_batch_begin(self.first + batch, logs)

    def on_train_batch_end(self, batch, logs=None):
        # Keras counts `steps_per_execution`, also past the end.
        super().on_train_batch_end(min(self.first + batch, self.last), logs)

    def on_epoch_end(self, epoch, logs=None):
        """The validation is still to come: see `end_epoch`."""
        self.epoch_logs = {name: float(value) for name, value in (logs or {}).items()}

    def on_train_end(self, logs=None):
        """Nothing: see `end_training`."""
