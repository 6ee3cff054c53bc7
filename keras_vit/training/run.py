"""One run of `training.fit`: it is prepared, from a checkpoint if there is one, and trained."""

import atexit
import contextlib
import gc
import hashlib
import importlib
import itertools
import json
import pathlib
import signal
import sys
import tempfile

import keras

from keras_vit import distribution
from keras_vit.training import settings as run_settings
from keras_vit.training import state
from keras_vit.training.checkpoints import Checkpoints
from keras_vit.training.divergence import StopOnDivergence
from keras_vit.training.gradient_norm import track_gradient_norm
from keras_vit.training.keeper import Keeper, SaveInterval
from keras_vit.training.logs import Logs
from keras_vit.training.progress import OneTraining, Progress
from keras_vit.training.signals import Interrupted, Signals, Stop
from keras_vit.training.streams import Feed, feeds


def say(text):
    """Prints a line at once, so that a killed run has said all that it did."""
    print(text, flush=True)


class Run:
    """A training that can be stopped and continued.

    Args:
        model: a compiled model.
        pipeline: see `training.fit`.
        output: the folder, a `pathlib.Path`.
        total: updates of the whole run.
        save_every: see `SaveInterval`.
        keep: checkpoints that stay.
        settings: the caller's part of what tells this run from others.

    Raises:
        ValueError: the folder holds a run with other settings.
        CheckpointError: it has checkpoints, and all are damaged.
    """

    def __init__(self, model, pipeline, output, total, save_every, keep, settings):
        self.devices = distribution.current()
        self._shared = self.devices.share(pipeline)
        self.model, self.pipeline, self.output = model, pipeline, output
        self.interval = SaveInterval(save_every)
        writes = self.devices.writes
        self.say = say if writes else lambda text: None
        self.checkpoints = Checkpoints(output / "checkpoints", keep, self.say, writes)
        self.found = self.checkpoints.latest()
        batch_size = getattr(pipeline, "batch_size", None)
        self.progress = Progress(total, pipeline.steps_per_epoch, batch_size)
        self.progress.step = self.found[1]["step"] if self.found else 0
        self.finished = False
        self.devices.check_model(model)
        with self.devices.scope():
            self._build()
        self.settings = run_settings.describe(model, pipeline, total, settings)
        if self.found:
            run_settings.check(self.found[1]["settings"], self.settings, output)
        told = json.dumps([self.settings, _versions()], sort_keys=True)
        digest = hashlib.sha256(told.encode()).hexdigest()[:12]
        self.devices.agree(
            "run", f"from update {self.progress.step} on, {_versions()}, settings {digest}"
        )

    def prepare(self, callbacks, log_every, curves, tensorboard):
        """Makes the callbacks, and sets everything to the checkpoint."""
        progress, rows = self.progress, []
        if self.found:
            path, meta, arrays = self.found
            state.check(self.model, meta["variables"])
            rows, self.finished = meta["rows"], meta["finished"]
            self.say(f"{path}: continuing after update {progress.step} of {progress.total}.")
            _compare_versions(meta["versions"], self.say)
        output = self.output
        if not self.devices.writes:  # the same is done, for what needs all processes, and dropped
            self._dropped = tempfile.TemporaryDirectory()
            output, curves, tensorboard = pathlib.Path(self._dropped.name), False, False
        diverged = StopOnDivergence(progress, self.pipeline, output)
        self.logs = Logs(progress, diverged, output, log_every, rows, curves, tensorboard, self.say)
        self.signals = Signals()
        self.keeper = Keeper(
            progress,
            self.checkpoints,
            self.interval,
            self.signals,
            diverged,
            self._describe,
            self.devices,
        )
        self._remembering = [each for each in callbacks if hasattr(each, "get_state")]
        self._remembered = self.found[1].get("callbacks", []) if self.found else []
        self.callbacks = OneTraining(
            progress,
            [diverged, *callbacks, self.logs, self.keeper],
            add_history=True,
            model=self.model,
            epochs=-(-progress.total // progress.per_epoch),
            steps=progress.per_epoch,
        )
        if self.found:
            self.keeper.resume(arrays, meta["epoch_open"])
            self.found = None  # the arrays are not needed twice

    def train(self, validation, options):
        """Trains what is left. Returns the history, a dict from column to values."""
        if not self.finished:
            with self.signals:
                try:
                    with _averages_apart(self.model.optimizer):
                        self._fit(validation, options)
                    self._finish()
                except Stop:
                    raise self._interrupted() from None
                except BaseException as error:
                    _free_before_exit()
                    explained = self.devices.explain(error)
                    if explained is not error:
                        raise explained from error
                    raise
        rows = self.logs.rows
        columns = dict.fromkeys(name for row in rows for name in row)
        return {name: [row.get(name) for row in rows] for name in columns}

    def _build(self):
        """Builds the model, its optimizer and its metrics, to have all variables."""
        if not hasattr(run_settings.optimizer_of(self.model), "gradient_norm"):
            track_gradient_norm(self.model.optimizer)
            self.model.train_function = None  # one compiled before would leave the norm out
        self.devices.prepare(self.model)
        step = self.progress.step
        self._feeds = feeds(self._shared, step, self.progress.total)
        first = next(self._feeds, None)
        if first:
            self._feeds = itertools.chain([first], self._feeds)
        example = first[1].example if first else Feed(self._shared, step - 1, step).example
        # What `fit` does by itself on JAX and torch; TensorFlow would wait for the first batch.
        self.model._symbolic_build(data_batch=example)

    def _fit(self, validation, options):
        validation = self.devices.share_evaluation(validation)
        self.callbacks.begin()
        for callback, memory in zip(self._remembering, self._remembered):
            callback.set_state(memory)
        if self.progress.step and self.progress.ends_epoch and self.keeper.epoch_open:
            self._close_epoch(validation, options)
        for segment, feed in self._feeds:
            self.callbacks.continue_at(segment)
            self.model.fit(
                self.devices.feed(feed.data),
                initial_epoch=segment.epoch,
                epochs=segment.epochs,
                steps_per_epoch=segment.steps,
                validation_data=validation,
                callbacks=self.callbacks,
                shuffle=False,
                verbose=0,
                **options,
            )
            if self.model.stop_training:
                break

    def _close_epoch(self, validation, options):
        """What `model.fit` does after the last batch, for an epoch that was stopped there."""
        epoch = self.progress.epoch
        self.keeper.on_epoch_begin(epoch)
        self.keeper.metrics = state.metric_values(self.model)
        logs = self.model.get_metrics_result()
        frequency = options.get("validation_freq", 1)
        due = epoch + 1 in frequency if isinstance(frequency, list) else not (epoch + 1) % frequency
        if validation is not None and due:
            x, y, weights = keras.utils.unpack_x_y_sample_weight(validation)
            validated = self.model.evaluate(
                x,
                y,
                sample_weight=weights,
                batch_size=options.get("validation_batch_size"),
                steps=options.get("validation_steps"),
                callbacks=self.callbacks,
                return_dict=True,
                verbose=0,
            )
            logs |= {f"val_{name}": value for name, value in validated.items()}
        self.callbacks.on_epoch_end(epoch, logs)

    def _finish(self):
        """What `model.fit` does at its end, and the last checkpoint."""
        self.model.optimizer.finalize_variable_values(self.model.trainable_weights)
        self.callbacks.end({})
        self.keeper.save(finished=True)
        self.logs.draw(now=True)

    def _interrupted(self):
        path = self.keeper.save()
        _free_before_exit()
        self.say(f"Stopped and saved: {path}. The same command continues the run.")
        return Interrupted(self.signals.asked or signal.SIGTERM)  # which another process was sent

    def _describe(self):
        return {
            "step": self.progress.step,
            "settings": self.settings,
            "rows": self.logs.rows,
            "variables": state.describe(self.model),
            "callbacks": [callback.get_state() for callback in self._remembering],
            "versions": _versions(),
        }


@contextlib.contextmanager
def _averages_apart(optimizer):
    """Lets `fit` end without putting the average in the place of the weights.

    Keras does so at the end of every `fit` if `use_ema` is set (on JAX after an exception too);
    here that is only the end of a part of the run.
    """
    optimizer.__dict__["finalize_variable_values"] = lambda variables: None
    try:
        yield
    finally:
        del optimizer.__dict__["finalize_variable_values"]


def _free_before_exit():
    """Lets a process whose `fit` failed come to its end on TensorFlow.

    The frames of an exception hold Keras's iterator over the batches. If Python ends with it,
    TensorFlow waits for a last call of the generator, for which there is no Python any more:
    about one process in six then hung.
    """

    def free():
        sys.last_value = sys.last_traceback = None
        gc.collect()

    if keras.backend.backend() == "tensorflow":
        atexit.register(free)


def _versions():
    module = importlib.import_module(keras.backend.backend())
    return {"keras": keras.__version__, module.__name__: module.__version__}


def _compare_versions(before, say):
    changed = {k: (v, _versions().get(k)) for k, v in before.items() if v != _versions().get(k)}
    if changed:
        told = ", ".join(f"{name} {old} there, {new} here" for name, (old, new) in changed.items())
        say(f"The checkpoint is of other versions: {told}. The last bits may differ.")
