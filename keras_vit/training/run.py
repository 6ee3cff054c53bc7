"""One run of `training.fit`: its data, its epochs, its checkpoints, and what stops it."""

import gc
import itertools
import math
import signal
import sys
import time
import traceback

import keras
import numpy as np

from keras_vit import distribution
from keras_vit.models.trainer import look
from keras_vit.text import visible
from keras_vit.training import checkpoint, ema, feed, same_run
from keras_vit.training.best import BestWeights
from keras_vit.training.log import RunLog
from keras_vit.training.same_run import versions
from keras_vit.training.stop import Interrupted, RunEnded, Signals, diverged

_SAVED = ("batch", "seed", "rows", "epoch_logs", "finished")  # besides the variables
_TALK_EVERY = 10  # batches, where there are several processes


class Run(keras.callbacks.CallbackList):
    """One run: a `model.fit` for each epoch, with callbacks that see one training.

    Keras calls `on_train_begin` and `on_train_end` in each `fit`, counts the batches of an epoch
    that is continued from 0, and ends an epoch before its validation. Here the two come once, the
    batch numbers go on, and an epoch ends after its validation.

    The arguments are those of `fit`, but for `total`, batches of the whole run, and `every`: the
    updates and the seconds between two checkpoints, one of them infinite.
    """

    def __init__(self, model, data, output, total, every, keep, log_every, callbacks, curves):
        self.devices, self.signals = distribution.current(), Signals()
        self.devices.prepare(model)
        self.data, self.shared, self.output = data, self.devices.share(data), output
        self.total, self.per_epoch = total, data.steps_per_epoch
        self.batch_size = getattr(data, "batch_size", None)
        optimizer = checkpoint.inner_optimizer(model)
        self.accumulate = optimizer.gradient_accumulation_steps or 1  # batches of an update
        self.every, self.saved = every, (0, time.monotonic())
        folder = output / "checkpoints"
        self.checkpoints = checkpoint.Checkpoints(folder, keep, self.devices.writes)
        # What a checkpoint holds besides the variables:
        self.batch = 0  # batches done
        self.seed = None  # on PyTorch the noise of a batch is a function of this and its number
        self.rows = []  # the epochs so far
        self.epoch_logs = None  # the metrics of an epoch that is not validated yet
        self.finished = False
        terminal = self.devices.writes and sys.stdout is not None and sys.stdout.isatty()
        self.log = RunLog(self, log_every, not terminal, curves)
        # The best weights come last: others may change the weights at the end, too.
        callbacks = sorted(callbacks, key=lambda callback: isinstance(callback, BestWeights))
        self.keeping = [callback for callback in callbacks if hasattr(callback, "get_state")]
        super().__init__(
            [*self.devices.callbacks(), *callbacks, self.log],
            add_history=True,
            add_progbar=terminal,
            model=model,
            verbose=1,
            epochs=self.epochs,
            steps=self.per_epoch,
        )

    @property
    def epoch(self):
        """The epoch of the last batch, counted from 0."""
        return max(self.batch - 1, 0) // self.per_epoch

    @property
    def epochs(self):
        """Epochs of the whole run; the last one may be incomplete."""
        return -(-self.total // self.per_epoch)

    @property
    def updates(self):
        """Updates done."""
        return self.batch // self.accumulate

    @property
    def ends_epoch(self):
        """Whether the last batch was the last one of its epoch, or of the run."""
        return self.batch == self.total or self.batch % self.per_epoch == 0

    def say(self, text):
        """Prints a line at once, so that a killed run has said all that it did."""
        if self.devices.writes:
            print(visible(text, keep="\n"), flush=True)

    def train(self, validation, validation_freq, settings):
        """Trains what is left; returns the history of the whole run, column -> values."""
        self.read = [each for each in (self.data, validation) if hasattr(each, "get_state")]
        memories = self._begin(settings)
        if not self.finished:
            super().on_train_begin()
            for callback, memory in zip(self.keeping, memories):
                callback.set_state(memory)
            try:
                with self.signals:
                    self._train_epochs(validation, validation_freq)
            except BaseException as error:
                traceback.clear_frames(error.__traceback__)  # they hold Keras's iterator
                explained = self.devices.explain(error)
                if explained is error:
                    raise
                raise explained from error
            finally:
                gc.collect()  # TensorFlow's threads call Python, and must not when it has ended
        return self._by_column()

    def _by_column(self):
        columns = dict.fromkeys(name for row in self.rows for name in row)
        return {name: [row.get(name) for row in self.rows] for name in columns}

    def _begin(self, settings):
        """Opens the data and builds the state, or restores it; returns what callbacks remember."""
        ended = same_run.record_of_ended(self.output)
        path, meta, arrays = self.checkpoints.latest() or ended or (None, {}, {})
        self.batch = meta.get("batch", 0)
        rest = feed.batches(self.model, self.shared, self.batch, self.total)
        first = next(rest, None)
        self.rest = itertools.chain([first], rest)
        self.example = first or next(feed.batches(self.model, self.shared, 0, 1))
        look(self.model, "train", keras.utils.unpack_x_y_sample_weight(self.example)[0])
        with self.devices.scope():
            checkpoint.build_state(self.model, self.example)
        self.settings = same_run.describe(
            self.model,
            steps=self.total // self.accumulate,
            steps_per_epoch=self.per_epoch,
            batch_size=self.batch_size,
            data=getattr(self.data, "settings", None) or {},
            settings=settings or {},
        )
        if path:
            same_run.check_same_run(self.output, meta["settings"], self.settings)
            vars(self).update({name: meta[name] for name in _SAVED})
            for each, state in zip(self.read, meta.get("data", ())):
                each.set_state(state)
            if not arrays:
                raise RunEnded(self.output, self._by_column())
            checkpoint.assign_state(self.model, arrays)
            self.log.length, self.saved = meta["log"], (self.updates, time.monotonic())
            total, then, now = self.total // self.accumulate, meta["versions"], versions()
            what = "this run has ended," if self.finished else "continuing"
            self.say(f"{path}: {what} after update {self.updates} of {total}.")
            if then != now:
                self.say(f"It is of {then}, not {now}. The last bits may differ.")
        self.metrics = {name: v for name, v in arrays.items() if name.startswith("metrics/")}
        if self.seed is None and keras.backend.backend() == "torch":
            import torch

            self.seed = int(torch.randint(2**31, ()))
        self.devices.agree("run", {"batch": self.batch, **self.settings, **versions()})
        return meta.get("callbacks", ())

    # ---- epochs

    def _train_epochs(self, validation, validation_freq):
        while not self.finished:
            if self.epoch_logs is None:  # otherwise the epoch was stopped within its validation
                epoch, done = divmod(self.batch, self.per_epoch)
                count = min(self.per_epoch - done, self.total - self.batch)
                self.model.fit(
                    self._take(count),
                    initial_epoch=epoch,
                    epochs=epoch + 1,
                    steps_per_epoch=count,
                    callbacks=self,
                    shuffle=False,
                    verbose=0,
                )
                self.finished = self.model.stop_training or self.batch == self.total
            logs = dict(self.epoch_logs)
            if validation is not None and (self.epoch + 1) % validation_freq == 0:
                logs |= self._validate(validation)
            super().on_epoch_end(self.epoch, logs)
            self.epoch_logs = None
            self.finished |= self.model.stop_training or self.batch == self.total
            if not self.finished:
                self._save_or_stop()
        super().on_train_end()
        for best in self.keeping:
            if isinstance(best, BestWeights):
                self.log.note("best", {"epoch": best.epoch, **best.figures})
                self.say(best.summary(self.epoch))
        self.save()

    def _take(self, count):
        """The next batches, for `model.fit`."""
        start, rest = self.batch, itertools.islice(self.rest, count)

        def begin():
            # On several devices TensorFlow reads a batch to see what comes, and begins again.
            if keras.backend.backend() == "tensorflow" and self.devices.replicas > 1:
                return feed.batches(self.model, self.shared, start, start + count)
            return rest

        return self.devices.feed(feed.for_keras(begin, self.example))

    def _validate(self, validation):
        """The metrics of an evaluation, `val_...`; a signal that comes in it stops the run."""
        options = {"callbacks": self, "verbose": 0}
        if isinstance(validation, (tuple, list)):
            options["batch_size"] = self.batch_size
        try:
            logs = self.devices.evaluate(self.model, validation, **options)
        finally:
            ema.return_weights(self.model)
        if self.model.stop_evaluating:
            self._stop()
        return {f"val_{name}": float(value) for name, value in logs.items()}

    # ---- what Keras calls

    def on_train_begin(self, logs=None):
        """Nothing: `train` calls the callbacks, once."""

    on_train_end = on_train_begin

    def on_epoch_begin(self, epoch, logs=None):
        self._start = self.batch
        if self._start % self.per_epoch:  # `fit` has just reset the metrics
            for name, value in self.metrics.items():
                checkpoint.state_variables(self.model)[name].assign(value)
        self.metrics = {}
        super().on_epoch_begin(epoch, logs)

    def on_epoch_end(self, epoch, logs=None):
        self.epoch_logs = {name: float(value) for name, value in (logs or {}).items()}

    def on_train_batch_begin(self, batch, logs=None):
        if keras.backend.backend() == "torch":  # whose layers share one generator
            import torch

            own = np.random.SeedSequence((self.seed, self.batch, self.devices.process))
            torch.manual_seed(int(own.generate_state(1)[0]))
        super().on_train_batch_begin(batch + self._start % self.per_epoch, logs)

    def on_train_batch_end(self, batch, logs=None):
        self.batch = self._start + batch + 1
        for name, value in (logs or {}).items():
            if name.endswith("loss") and not math.isfinite(value):
                raise diverged(self, f"{name} is {value}")
        super().on_train_batch_end(batch + self._start % self.per_epoch, logs)
        if not self.ends_epoch:  # otherwise it is saved after the validation
            self._save_or_stop()

    def on_test_batch_end(self, batch, logs=None):
        super().on_test_batch_end(batch, logs)
        if self.signals.asked and self.devices.processes == 1:
            self.model.stop_evaluating = True

    # ---- saving

    def _save_or_stop(self):
        """Saves where that is due, and stops where a signal asked for it, in all processes alike.

        One that left the others would keep them waiting for ever. As asking one another takes time,
        they do so at the end of an epoch and every few batches.
        """
        updates, seconds = self.every
        due = self.updates // updates > self.saved[0] // updates
        late, asked = time.monotonic() - self.saved[1] >= seconds, self.signals.asked is not None
        if self.devices.processes > 1:
            if self.batch % _TALK_EVERY and not self.ends_epoch:
                late = asked = False
            else:
                due, late, asked = self.devices.any_of(due, late, asked)
        if asked:
            self._stop()
        if due or late:
            self.save()

    def _stop(self):
        self.finished = False
        text = f"Stopped and saved: {self.save()}. The same command continues the run."
        self.say("\n" * (not (self.log.shown or self.ends_epoch)) + text)  # after Keras's bar
        raise Interrupted(128 + (self.signals.asked or signal.SIGTERM))  # of another process

    def save(self):
        """Writes a checkpoint of the present moment, and returns its path."""
        meta = {name: getattr(self, name) for name in _SAVED}
        meta |= {"settings": self.settings, "versions": versions(), "log": self.log.length}
        meta |= {"callbacks": [callback.get_state() for callback in self.keeping]}
        meta |= {"data": [data.get_state() for data in self.read]}
        try:
            arrays = checkpoint.read_state(self.model)
            path = self.checkpoints.save(self.batch, arrays, meta)
        except FloatingPointError as error:
            raise diverged(self, str(error)) from None
        self.saved = self.updates, time.monotonic()
        return path
