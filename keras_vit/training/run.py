"""One run of `training.fit`: its epochs, its checkpoints, and what stops it."""

import gc
import importlib
import itertools
import math
import signal
import sys
import traceback

import keras
import numpy as np

from keras_vit import distribution
from keras_vit.training import ema
from keras_vit.training.callbacks import DivergenceError, Interrupted, RunCallbacks, Signals
from keras_vit.training.checkpoint import Checkpoints, TrainingState, describe, sync
from keras_vit.training.log import RunLog
from keras_vit.training.losses import check_labels

_TALK_EVERY = 10  # batches, where there are several processes


class Run:
    """One run, from its checkpoint if there is one: a `model.fit` for each epoch, and what follows.

    The arguments are those of `fit`, and the run's `Progress` and `SaveInterval`.
    """

    def __init__(self, model, data, output, progress, interval, keep):
        self.model, self.data, self.output, self.progress = model, data, output, progress
        self.interval, self.signals, self.devices = interval, Signals(), distribution.current()
        self.devices.prepare(model)
        self.shared = self.devices.share(data)
        self.checkpoints = Checkpoints(output / "checkpoints", keep, self.devices.writes)
        # What a checkpoint holds besides the variables:
        self.seed = None  # on PyTorch the noise of a batch is a function of this and its number
        self.rows = []  # the epochs so far
        self.epoch_logs = None  # the metrics of an epoch that is not validated yet
        self.finished = False

    def train(self, validation, validation_freq, log_every, callbacks, curves, settings):
        """Trains what is left. Returns the history, a dict from column to values."""
        progress, model = self.progress, self.model
        path, meta, arrays = self.checkpoints.latest() or (None, {}, {})
        progress.batch = meta.get("batch", 0)
        self._open_data()
        with self.devices.scope():
            self.state = TrainingState(model, self.example)
        self.settings = describe(model, self.data, progress, settings)
        if path:
            self._restore(path, meta, arrays)
        self.metrics = {k: v for k, v in arrays.items() if k.startswith("metrics/")}
        if self.seed is None and keras.backend.backend() == "torch":
            import torch

            self.seed = int(torch.randint(2**31, ()))
        self.devices.agree("run", {"batch": progress.batch, **self.settings, **versions()})

        self.keeping = [callback for callback in callbacks if hasattr(callback, "get_state")]
        terminal = self.devices.writes and sys.stdout is not None and sys.stdout.isatty()
        self.log = RunLog(self, log_every, not terminal, curves, meta.get("log", 0))
        self.callbacks = RunCallbacks(
            self,
            [*self.devices.callbacks(), *callbacks, self.log],
            add_history=True,
            add_progbar=terminal,
            model=model,
            verbose=1,
            epochs=progress.epochs,
            steps=progress.per_epoch,
        )
        if not self.finished:
            self.callbacks.begin()
            for callback, memory in zip(self.keeping, meta.get("callbacks", ())):
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
        columns = dict.fromkeys(name for row in self.rows for name in row)
        return {name: [row.get(name) for row in self.rows] for name in columns}

    def _restore(self, path, meta, arrays):
        before, now = meta["settings"], self.settings
        names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        if names:
            told = [f"{name}: {before.get(name)!r} there, {now.get(name)!r} here" for name in names]
            raise ValueError(
                f"{self.output} holds a run with other settings, which cannot be continued with "
                "these. Received:\n  " + "\n  ".join(told) + "\nUse the settings of that run, or "
                "another output folder."
            )
        self.state.restore(arrays)
        for name in ("seed", "rows", "epoch_logs", "finished"):
            setattr(self, name, meta[name])
        progress = self.progress
        self.interval.saved(progress.updates)
        self.say(f"{path}: continuing after update {progress.updates} of {progress.total_updates}.")
        if meta["versions"] != versions():
            self.say(f"It is of {meta['versions']}, not {versions()}. The last bits may differ.")

    # ---- data

    def _open_data(self):
        """Begins to read, and keeps the first batch, by which the model is built."""
        rest = self._batches(self.progress.batch, self.progress.total)
        first = next(rest, None)
        self.rest = itertools.chain([first], rest)
        self.example = first or next(self._batches(0, 1))

    def _batches(self, start, stop):
        """The batches from `start` to `stop`, also of data that end with each epoch."""
        batch = start
        while batch < stop:
            before = batch
            for each in self.shared.from_step(batch):
                each = tuple(each) if isinstance(each, list) else each
                check_labels(self.model, each)
                yield each
                batch += 1
                if batch == stop:
                    return
            if batch == before:
                raise ValueError(
                    f"The data gave no batch from batch {batch} on, of a run that goes to {stop}; "
                    "`from_step(step)` must give those from there to the end of the epoch, or on."
                )

    def _take(self, count):
        """The next batches, for `model.fit`."""
        batches, start = itertools.islice(self.rest, count), self.progress.batch
        if keras.backend.backend() != "tensorflow":
            return (batch for batch in batches)  # Keras knows generators
        import tensorflow as tf

        def begin():
            # With several devices Keras reads a batch to see what comes, and then begins again.
            return self._batches(start, start + count) if self.devices.replicas > 1 else batches

        def spec(x):
            x = np.asarray(x)
            return tf.TensorSpec((None, *x.shape[1:]), x.dtype)

        signature = keras.tree.map_structure(spec, self.example)
        return tf.data.Dataset.from_generator(begin, output_signature=signature).prefetch(2)

    # ---- epochs

    def _train_epochs(self, validation, validation_freq):
        progress, model = self.progress, self.model
        while not self.finished:
            if self.epoch_logs is None:  # otherwise the epoch was stopped within its validation
                epoch, done = divmod(progress.batch, progress.per_epoch)
                count = min(progress.per_epoch - done, progress.total - progress.batch)
                model.fit(
                    self.devices.feed(self._take(count)),
                    initial_epoch=epoch,
                    epochs=epoch + 1,
                    steps_per_epoch=count,
                    callbacks=self.callbacks,
                    shuffle=False,
                    verbose=0,
                )
                self.epoch_logs = self.callbacks.epoch_logs
                self.finished = model.stop_training or progress.batch == progress.total
            logs = dict(self.epoch_logs)
            if validation is not None and (progress.epoch + 1) % validation_freq == 0:
                logs |= self._validate(validation)
            self.callbacks.end_epoch(progress.epoch, logs)
            self.epoch_logs = None
            self.finished |= model.stop_training or progress.batch == progress.total
            if not self.finished:
                self._save_or_stop()
        self.callbacks.end()
        self.save()

    def _validate(self, validation):
        """The metrics of an evaluation, `val_...`; a signal that comes in it stops the run."""
        options = {"callbacks": self.callbacks, "verbose": 0}
        if isinstance(validation, (tuple, list)):
            options["batch_size"] = self.progress.batch_size
        try:
            logs = self.devices.evaluate(self.model, validation, **options)
        finally:
            ema.return_weights(self.model)
        if self.model.stop_evaluating:
            self._stop()
        return {f"val_{name}": float(value) for name, value in logs.items()}

    # ---- called by `RunCallbacks`

    def begin_epoch(self):
        """Sets the metrics of an epoch that goes on, which `model.fit` has just reset."""
        if self.progress.batch % self.progress.per_epoch:
            for name, value in self.metrics.items():
                self.state.variables[name].assign(value)
        self.metrics = {}

    def begin_batch(self):
        """Makes the noise a function of run and batch: PyTorch's layers share one generator."""
        if keras.backend.backend() == "torch":
            import torch

            here = self.seed, self.progress.batch, self.devices.process
            own = np.random.SeedSequence(here)
            torch.manual_seed(int(own.generate_state(1)[0]))

    def check_losses(self, logs):
        """Raises a DivergenceError for a loss that is not finite."""
        for name, value in logs.items():
            if name.endswith("loss") and not math.isfinite(value):
                raise self._diverged(f"{name} is {value}")

    def end_batch(self):
        if not self.progress.ends_epoch:  # otherwise it is saved after the validation
            self._save_or_stop()

    def end_test_batch(self):
        if self.signals.asked and self.devices.processes == 1:
            self.model.stop_evaluating = True

    # ---- saving

    def _save_or_stop(self):
        """Saves where that is due, and stops where a signal asked for it, in all processes alike.

        One that left the others would keep them waiting for ever. As asking one another takes time,
        they do so at the end of an epoch and every few batches.
        """
        due, asked = self.interval.due(self.progress.updates), self.signals.asked is not None
        if self.devices.processes > 1:
            if self.progress.batch % _TALK_EVERY and not self.progress.ends_epoch:
                due, asked = bool(self.interval.steps) and due, False
            else:
                due, asked = self.devices.any_of(due, asked)
        if asked:
            self._stop()
        if due:
            self.save()

    def _stop(self):
        self.finished = False
        path = self.save()
        self.say(f"Stopped and saved: {path}. The same command continues the run.")
        raise Interrupted(128 + (self.signals.asked or signal.SIGTERM))  # of another process

    def save(self):
        """Writes a checkpoint of the present moment, and returns its path.

        Raises:
            DivergenceError: a weight is not finite.
        """
        meta = {name: getattr(self, name) for name in ("seed", "rows", "epoch_logs", "finished")}
        meta |= {"batch": self.progress.batch, "settings": self.settings, "versions": versions()}
        meta |= {"callbacks": [callback.get_state() for callback in self.keeping]}
        meta |= {"log": self.log.length()}
        try:
            path = self.checkpoints.save(self.progress.batch, self.state.save(), meta)
        except FloatingPointError as error:
            raise self._diverged(str(error)) from None
        self.interval.saved(self.progress.updates)
        return path

    def _diverged(self, what):
        """The error for what is not finite; the batch is saved."""
        sync(self.model)
        progress, path = self.progress, self.output / "nan_batch.npz"
        batch = keras.tree.flatten(next(iter(self.data.from_step(progress.batch - 1))))
        np.savez(path, *[keras.ops.convert_to_numpy(part) for part in batch])
        rate = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
        return DivergenceError(
            f"At update {progress.updates} (epoch {progress.epoch + 1}), with learning rate "
            f"{rate:.3g}, {what}, so training stopped. The batch is in {path}. The last good "
            f"weights are in {self.output / 'checkpoints'}. Lower the learning rate, lengthen its "
            "warm-up, clip the gradients, or compute in float32, in another output folder."
        )

    def say(self, text):
        """Prints a line at once, so that a killed run has said all that it did."""
        if self.devices.writes:
            print(text, flush=True)


def versions():
    """The packages on which the last bits depend."""
    module = importlib.import_module(keras.backend.backend())
    return {"keras": keras.__version__, module.__name__: module.__version__}
