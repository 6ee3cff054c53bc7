"""What Keras calls in a run, and what the callbacks of the run see."""

import keras
import numpy as np


class Events(keras.callbacks.CallbackList):
    """The callbacks of a `Run`, which trains by one `model.fit` for each epoch.

    Keras would begin and end the training in each `fit`, count the batches of an epoch that is
    continued from 0, and end an epoch before its validation. The callbacks see one training: it
    begins and ends once, the batch numbers go on, and an epoch ends after its validation.
    `epoch_logs` holds the metrics of the last epoch, without its validation.
    """

    def __init__(self, run, callbacks, bar):
        self.run, self.epoch_logs = run, None
        self.first = self.count = 0  # the number of the first batch of a `fit`, and how many it has
        length = {"epochs": run.progress.epochs, "steps": run.progress.per_epoch}
        options = {"model": run.model, "verbose": 1, **length}
        super().__init__(callbacks, add_history=True, add_progbar=bar, **options)

    # ---- called by the run

    def begin_training(self):
        super().on_train_begin()

    def end_epoch(self, logs):
        super().on_epoch_end(self.run.progress.epoch, logs)

    def end_training(self):
        super().on_train_end()

    # ---- called by Keras, in this order

    def on_train_begin(self, logs=None):
        """Nothing, as `fit` comes once for each epoch: see `begin_training`."""

    def on_epoch_begin(self, epoch, logs=None):
        self.first, (_, self.count) = self.run.progress.batch, self.run.progress.next_epoch
        self.run.restore_metrics()
        super().on_epoch_begin(epoch, logs)

    def on_train_batch_begin(self, batch, logs=None):
        if keras.backend.backend() == "torch":  # whose layers share one generator
            import torch

            progress, process = self.run.progress, self.run.devices.process
            seeds = np.random.SeedSequence((progress.seed, progress.batch, process))
            torch.manual_seed(int(seeds.generate_state(1)[0]))
        super().on_train_batch_begin(self._in_epoch(batch), logs)

    def on_train_batch_end(self, batch, logs=None):
        batch = min(batch, self.count - 1)  # Keras counts `steps_per_execution`, also past the end
        self.run.count_batch(self.first + batch + 1, logs or {})
        super().on_train_batch_end(self._in_epoch(batch), logs)
        if not self.run.progress.ends_epoch:  # otherwise it is saved after the validation
            self.run.save_or_stop()

    def on_epoch_end(self, epoch, logs=None):
        """The validation is still to come: see `end_epoch`."""
        self.epoch_logs = {name: float(value) for name, value in (logs or {}).items()}

    def on_train_end(self, logs=None):
        """Nothing: see `end_training`."""

    def on_test_batch_end(self, batch, logs=None):
        super().on_test_batch_end(batch, logs)
        if self.run.signals.asked and self.run.devices.processes == 1:
            self.model.stop_evaluating = True

    def _in_epoch(self, batch):
        """The number of a batch in its epoch, by its number in a `fit`."""
        return batch + self.first % self.run.progress.per_epoch
