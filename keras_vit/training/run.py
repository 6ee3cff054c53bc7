"""One run of `training.fit`: it begins or goes on, trains epoch by epoch, saves and stops."""

import dataclasses
import functools
import itertools
import math
import pathlib
import signal
import sys
import warnings
from typing import Any

import keras

from keras_vit import distribution
from keras_vit.distribution.processes import agree, any_of
from keras_vit.models.backbone import owner_of_images
from keras_vit.models.trainer import look
from keras_vit.text import visible
from keras_vit.training import checkpoint, ema, feed, same_run
from keras_vit.training.best import BestWeights
from keras_vit.training.events import Events
from keras_vit.training.log import RunLog
from keras_vit.training.progress import Progress
from keras_vit.training.stop import Interrupted, RunEnded, Signals, clean_end, diverged

_COMPARE_EVERY = 10  # batches: several processes stop after the same one; comparing takes time
# Callbacks of Keras that decide by the epochs that they have seen, and do not keep these.
_DECIDING = (keras.callbacks.EarlyStopping, keras.callbacks.ReduceLROnPlateau)


@dataclasses.dataclass(eq=False)
class Run:
    """A training that may be stopped at any moment, and goes on as if nothing had been.

    A checkpoint holds the variables of the compiled model (`checkpoint.state_variables`), the
    `Progress`, and what data and callbacks remember. Nothing but this class changes the
    `Progress`. `total` counts the batches of the whole run; other arguments are those of `fit`.
    """

    model: keras.Model
    data: Any
    output: pathlib.Path
    total: int
    validation: Any
    validation_freq: int
    save_every: checkpoint.SaveEvery
    keep: int
    log_every: int
    callbacks: list[keras.callbacks.Callback]
    settings: dict[str, Any]
    curves: bool

    def __post_init__(self):
        self.devices, self.signals = distribution.current(), Signals()
        self.devices.check_model(self.model)
        self.local_data = self.devices.local_shard(self.data)
        self.batch_size = getattr(self.data, "batch_size", None)
        accumulate = checkpoint.inner_optimizer(self.model).gradient_accumulation_steps or 1
        self.progress = Progress(self.total, self.data.steps_per_epoch, accumulate)
        folder, writes = self.output / "checkpoints", self.devices.writes
        self.checkpoints = checkpoint.Checkpoints(folder, self.keep, writes)
        self.terminal = writes and sys.stdout is not None and sys.stdout.isatty()
        self.log = RunLog(self, shown=not self.terminal)
        # The best weights come last: others may change the weights at the end, too.
        self.callbacks.sort(key=lambda callback: isinstance(callback, BestWeights))
        self.remembering = [each for each in self.callbacks if hasattr(each, "get_state")]
        self.reading = [x for x in (self.data, self.validation) if hasattr(x, "get_state")]
        self.metrics_to_restore = []  # (variable, value), of an epoch that was stopped

    def train(self):
        """Trains what is left; returns the history of the whole run, column -> values."""
        memories = self.begin()
        progress = self.progress
        if progress.ended:
            return progress.history()
        self.events = Events(self.all_callbacks(), self.model, progress)
        with clean_end(self.devices), self.signals:
            self.events.begin_training()
            for callback, memory in zip(self.remembering, memories):
                callback.set_state(memory)
            while not progress.ended:
                if progress.epoch_logs is None:  # else the run was stopped in the validation
                    self.train_epoch()
                self.end_epoch()
                if not progress.finished:
                    self.save_or_stop()
            self.events.end_training()
            self.tell_best()
            self.save()
        return progress.history()

    def train_epoch(self):
        """Trains to the end of the epoch, from wherever in it the last checkpoint was."""
        epoch, count = self.progress.next_epoch
        options = {"initial_epoch": epoch, "epochs": epoch + 1, "steps_per_epoch": count}
        options |= {"callbacks": self.events, "shuffle": False, "verbose": 0}
        place = self.progress.batch, self.progress.batch + count
        again = functools.partial(feed.batches, self.model, self.local_data, *place)
        batches = itertools.islice(self.batches, count)
        self.model.fit(feed.for_keras(batches, self.example, self.devices, again), **options)
        self.progress.epoch_logs = self.events.epoch_logs
        self.progress.finished = self.is_over()

    def is_over(self):
        """Whether all batches are done, or a callback has ended the training."""
        return self.model.stop_training or self.progress.batch == self.progress.total

    def end_epoch(self):
        """Validates, and ends the epoch for the callbacks and in the history."""
        self.events.end_epoch(self.progress.epoch_logs | self.validate())
        self.progress.rows.append(self.log.row)
        self.log.write_history()
        self.progress.epoch_logs = None
        self.progress.finished |= self.is_over()

    def validate(self):
        """The metrics of an evaluation, `val_...`, where the epoch has one.

        A signal that comes in it stops the run, which then begins with this validation.
        """
        if self.validation is None or (self.progress.epoch + 1) % self.validation_freq:
            return {}
        options = {"callbacks": self.events, "verbose": 0}
        if isinstance(self.validation, (tuple, list)):
            options["batch_size"] = self.batch_size
        try:
            logs = self.devices.evaluate(self.model, self.validation, **options)
        finally:
            ema.return_weights(self.model)
        if self.model.stop_evaluating:
            self.stop()
        return {f"val_{name}": float(value) for name, value in logs.items()}

    # ---- what happens around each update

    def all_callbacks(self):
        """The callbacks in the order in which Keras calls them."""
        first = keras.callbacks.LambdaCallback(
            on_epoch_begin=self.restore_metrics,
            on_train_batch_begin=lambda batch, logs: self.progress.seed_batch(self.devices.process),
            on_train_batch_end=self.count_batch,
        )
        last = keras.callbacks.LambdaCallback(
            on_train_batch_end=self.save_in_epoch, on_test_batch_end=self.stop_validation
        )
        bar = [keras.callbacks.ProgbarLogger()] if self.terminal else []
        return [first, *self.devices.callbacks(), *self.callbacks, self.log, *bar, last]

    def restore_metrics(self, epoch, logs=None):
        """Assigns the metrics of an epoch that was stopped, which `fit` has just reset."""
        for variable, value in self.metrics_to_restore:
            variable.assign(value)
        self.metrics_to_restore = []

    def count_batch(self, batch, logs):
        """Notes that the batches up to one of the epoch are done, if their losses are finite."""
        epoch, _ = self.progress.next_epoch
        self.progress.batch = epoch * self.progress.per_epoch + batch + 1
        for name, value in logs.items():
            if name.endswith("loss") and not math.isfinite(value):
                raise diverged(self, f"{name} is {value}")

    def save_in_epoch(self, batch, logs=None):
        if not self.progress.ends_epoch:  # otherwise it is saved after the validation
            self.save_or_stop()

    def stop_validation(self, batch, logs=None):
        if self.signals.asked and self.devices.processes == 1:
            self.model.stop_evaluating = True

    # ---- saving and stopping

    def save_or_stop(self):
        """Saves where that is due, and stops where a signal asked for it, in all processes."""
        late, asked = self.save_every.due_by_clock(), self.signals.asked is not None
        if self.devices.processes > 1:
            compare = self.progress.ends_epoch or self.progress.batch % _COMPARE_EVERY == 0
            late, asked = any_of(self.devices, late, asked) if compare else (False, False)
        if asked:
            self.stop()
        if late or self.save_every.due_by_updates(self.progress.updates):
            self.save()

    def stop(self):
        """Saves, and raises what ends the process."""
        text = f"Stopped and saved: {self.save()}. The same command continues the run."
        behind_bar = self.terminal and not self.progress.ends_epoch
        self.say(f"\n{text}" if behind_bar else text)
        # Without a signal of its own, this process stops for another one's.
        raise Interrupted(128 + (self.signals.asked or signal.SIGTERM))

    def save(self):
        """Writes a checkpoint of the present moment, and returns its path."""
        meta = {
            **self.progress.to_meta(),
            "settings": self.settings,
            "versions": same_run.versions(),
            "log": self.log.length,
            "callbacks": [callback.get_state() for callback in self.remembering],
            "data": [data.get_state() for data in self.reading],
        }
        arrays = checkpoint.read_state(self.model)
        try:
            path = self.checkpoints.save(self.progress.batch, arrays, meta)
        except FloatingPointError as error:
            raise diverged(self, str(error)) from None
        self.save_every.saved(self.progress.updates)
        return path

    # ---- beginning and going on

    def begin(self):
        """Builds the model's state, or restores it; returns what the callbacks remember."""
        path, meta, arrays = self.checkpoints.latest() or (None, {}, {})
        if path is None:
            meta = same_run.record_of_ended(self.output) or {}
        self.progress = progress = self.progress.restored(meta)
        self.open_data(meta.get("data", ()))
        self.build()
        self.settings = same_run.describe(  # a run that goes on must have these in common with it
            self.model,
            settings=self.settings,
            steps=progress.total_updates,
            steps_per_epoch=progress.per_epoch,
            batch_size=self.batch_size,
            data=getattr(self.data, "settings", None) or {},
            validation=getattr(self.validation, "settings", None) or {},
        )
        memories = meta.get("callbacks", ())
        if meta:
            same_run.check_same_run(self.output, meta["settings"], self.settings)
            if not path:
                raise RunEnded(self.output, progress.history())
            if len(memories) != len(self.remembering) and not progress.ended:
                raise ValueError(
                    f"{self.output} holds a run with other callbacks that remember something, such "
                    f"as BestWeights. Received: {len(self.remembering)}, where it has "
                    f"{len(memories)}; give the callbacks of that run, or another output folder."
                )
            self.restore(path, meta, arrays)
            others = [each for each in self.callbacks if each not in self.remembering]
            anew = [type(each).__name__ for each in others if isinstance(each, _DECIDING)]
            if anew and not progress.ended:
                warnings.warn(
                    f"The run goes on, but {anew} of Keras count their epochs anew; BestWeights "
                    "keeps what it has seen.",
                    stacklevel=4,
                )
        progress.draw_seed()
        agree(self.devices, "run", {"batch": progress.batch} | self.settings | same_run.versions())
        return memories

    def open_data(self, states):
        """Gives the data what they remember, and reads `example`, the next batch to train."""
        for each, state in zip(self.reading, states):
            each.set_state(state)
        # Where no batch is left to train, the first one builds the model.
        start = self.progress.batch if self.progress.batch < self.progress.total else 0
        batches = feed.batches(self.model, self.local_data, start, self.progress.total)
        self.example = next(batches)
        self.batches = itertools.chain([self.example], batches)  # the first is read once

    def build(self):
        """Makes the variables of model, optimizer and metrics, which are to fit all labels."""
        images = keras.utils.unpack_x_y_sample_weight(self.example)[0]
        look(self.model, "train", images, owner_of_images(self.model))
        with self.devices.scope():
            checkpoint.build_state(self.model, self.example)
        if hasattr(self.validation, "from_step"):  # its labels now, and not after an epoch
            feed.check_labels(self.model, next(iter(self.validation.from_step(0))))

    def restore(self, path, meta, arrays):
        """Takes the state of the model and the files from a checkpoint, and says where it is."""
        checkpoint.assign_state(self.model, arrays)
        if self.progress.batch % self.progress.per_epoch:
            variables = checkpoint.state_variables(self.model)
            metrics = [name for name in arrays if name.startswith("metrics/")]
            self.metrics_to_restore = [(variables[name], arrays[name]) for name in metrics]
        self.log.length = meta["log"]
        self.save_every.saved(self.progress.updates)
        begins = "this run has ended," if self.progress.ended else "continuing"
        updates = f"{self.progress.updates} of {self.progress.total_updates}"
        self.say(f"{path}: {begins} after update {updates}.")
        if (then := meta["versions"]) != (now := same_run.versions()):
            self.say(f"It is of {then}, not {now}. The last bits may differ.")

    # ---- telling

    def say(self, text):
        """Prints a line at once, so that a killed run has said all that it did."""
        if self.devices.writes:
            print(visible(text, keep="\n"), flush=True)

    def tell_best(self):
        """Writes and prints which epoch the weights are of, where a callback chose one."""
        for best in self.remembering:
            if isinstance(best, BestWeights):
                self.log.note("best", {"epoch": best.epoch, **best.figures})
                self.say(best.summary(self.progress.epoch, self.progress.epochs))
