"""`model.fit` for runs that may be stopped at any moment and go on as if nothing had been."""

import contextlib
import gc
import pathlib
import signal
import sys
import traceback

from keras_vit import distribution
from keras_vit.checks import positive_int
from keras_vit.training import ema
from keras_vit.training.batches import Batches
from keras_vit.training.callbacks import (
    AtEachBatch,
    EpochCallbacks,
    Interrupted,
    Progress,
    Signals,
    StopOnDivergence,
)
from keras_vit.training.checkpoint import (
    Checkpoints,
    SaveInterval,
    TrainingState,
    inner_optimizer,
    only_run_in,
)
from keras_vit.training.log import HistoryPicture, RunLog
from keras_vit.training.settings import check_same, describe, versions

_TALK_EVERY = 10  # batches, where there are several processes


def fit(
    model,
    data,
    output,
    *,
    epochs=None,
    steps=None,
    validation=None,
    validation_freq=1,
    save_every="600s",
    keep=2,
    log_every=50,
    callbacks=(),
    settings=None,
    curves=True,
):
    """Trains a compiled model, or continues the same run where it was stopped.

    `model.fit` does the training, an epoch at a time. If `output` has a checkpoint of a run with
    the same settings, the weights, the optimizer, the metrics, the random numbers and the place in
    the data are as they were, in the middle of an epoch too: on a CPU, the final weights equal
    those of a run that nobody stopped bit for bit.

    Ctrl-C and SIGTERM let the present batch end and save. After `kill -9`, an exception, or on a
    full disk, the last checkpoint is what the run goes on from; a damaged one is passed over.

    Args:
        model: a compiled `keras.Model`. Keras's own `use_ema` is refused, as it replaces the
            weights at the end of each `model.fit`; the optimizers of `keras_vit.training` do not.
        data: what has `steps_per_epoch`, the batches of an epoch, and `from_step(step)`, the
            batches from one on, to the end of the epoch or without end; also `batch_size`, where
            it has one.
        output: folder for `checkpoints/`, `log.jsonl`, `history.csv` and `history.png`. It
            belongs to one run at a time.
        epochs: passes through the data; or
        steps: updates in all; the last epoch may be incomplete. With an optimizer that
            accumulates the gradients of n batches, an update takes n of them.
        validation: data for `model.evaluate`, or (images, labels), every `validation_freq` epochs.
        save_every: updates between two checkpoints, or seconds as text such as "600s".
        keep, log_every: how many checkpoints stay; updates between two lines of the log.
        callbacks: more callbacks, which see one training, whatever was stopped in between. What
            one remembers is saved with the run if it has methods `get_state()`, which returns what
            JSON can hold, and `set_state(state)`, called after its `on_train_begin`.
        settings: a dict of what else makes this run what it is, such as the recipe.
        curves: whether to draw `history.png`, which needs matplotlib.

    Returns:
        A dict from column to its values, one per epoch, of the whole run.

    Raises:
        TypeError: `data` is not what is described here.
        ValueError: arguments out of range, labels that the model has no class for, or an `output`
            that another run has, or that holds a run with other settings.
        DivergenceError: the loss or the weights are no longer finite.
        CheckpointError: a checkpoint cannot be written, or all are damaged.
        Interrupted: a signal stopped the run. It is a SystemExit with code 130 or 143.
    """
    if not (hasattr(data, "from_step") and hasattr(data, "steps_per_epoch")):
        raise TypeError(
            "The data must have `steps_per_epoch` and `from_step(step)`, the batches from one on, "
            f"as a pipeline of keras_vit.data has them. Received: {type(data).__name__}."
        )
    if (epochs is None) == (steps is None):
        raise ValueError(f"Give epochs or steps. Received: epochs={epochs!r}, steps={steps!r}.")
    optimizer = inner_optimizer(model)
    if optimizer.use_ema:
        raise ValueError(
            "Keras's use_ema replaces the weights at the end of each model.fit. Received: "
            f"{type(optimizer).__name__}(use_ema=True); take keras_vit.training.AdamW(use_ema=True)"
            " or another optimizer from there, whose averages stay apart."
        )
    accumulate = optimizer.gradient_accumulation_steps or 1
    if epochs is None:
        total = positive_int(steps, "steps") * accumulate
    else:
        total = positive_int(epochs, "epochs") * data.steps_per_epoch
    progress = Progress(total, data.steps_per_epoch, accumulate, getattr(data, "batch_size", None))
    interval, keep = SaveInterval(save_every), positive_int(keep, "keep")
    validation_freq = positive_int(validation_freq, "validation_freq")
    log_every, output = positive_int(log_every, "log_every"), pathlib.Path(output)
    with only_run_in(output) if distribution.current().writes else contextlib.nullcontext():
        run = Run(model, data, output, progress, interval, keep)
        return run.train(validation, validation_freq, log_every, list(callbacks), curves, settings)


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
        self.diverged = StopOnDivergence(progress, data, output)
        # What a checkpoint holds besides the variables:
        self.seed = None  # the noise of a batch is a function of this and of its number
        self.rows = []  # the epochs so far
        self.epoch_logs = None  # the metrics of an epoch that is not validated yet
        self.finished = False

    def train(self, validation, validation_freq, log_every, callbacks, curves, settings):
        """Trains what is left. Returns the history, a dict from column to values."""
        progress, model = self.progress, self.model
        found = self.checkpoints.latest()
        progress.batch = found[1]["batch"] if found else 0
        batches = Batches(self.shared, progress, model, self.devices.replicas > 1)
        with self.devices.scope():
            self.state = TrainingState(model, batches.example)
        self.settings = describe(model, self.data, progress, settings)
        memories, metrics = self._restore(found) if found else ([], None)
        self.seed = AtEachBatch.draw_seed() if self.seed is None else self.seed
        self.devices.agree("run", {"batch": progress.batch, **self.settings, **versions()})

        self.keeping = [callback for callback in callbacks if hasattr(callback, "get_state")]
        terminal = self.devices.writes and sys.stdout is not None and sys.stdout.isatty()
        at_each_batch = AtEachBatch(self, metrics)
        self.callbacks = EpochCallbacks(
            progress,
            [
                *self.devices.callbacks(),
                self.diverged,
                *callbacks,
                *self._logs(log_every, curves, terminal),
                at_each_batch,
            ],
            add_history=True,
            add_progbar=terminal,
            model=model,
            verbose=1,
            epochs=progress.epochs,
            steps=progress.per_epoch,
        )
        if not self.finished:
            self.callbacks.begin()
            for callback, memory in zip(self.keeping, memories):
                callback.set_state(memory)
            try:
                with self.signals:
                    self._train_epochs(batches, validation, validation_freq)
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

    def _restore(self, found):
        """Sets everything to a checkpoint; returns the callbacks' memories, and the metrics."""
        path, meta, arrays = found
        check_same(meta["settings"], self.settings, self.output)
        self.state.restore(arrays)
        for name in ("seed", "rows", "epoch_logs", "finished"):
            setattr(self, name, meta[name])
        progress = self.progress
        self.interval.saved(progress.updates)
        self.say(f"{path}: continuing after update {progress.updates} of {progress.total_updates}.")
        if meta["versions"] != versions():
            self.say(
                f"It is of {meta['versions']}; here are {versions()}. The last bits may differ."
            )
        return meta["callbacks"], {k: v for k, v in arrays.items() if k.startswith("metrics/")}

    def _logs(self, log_every, curves, terminal):
        say = (lambda text: None) if terminal else self.say  # there Keras's bar shows the same
        writes = self.devices.writes  # the others measure the same, for what needs all processes
        folder = self.output if writes else None
        log = RunLog(self.progress, folder, log_every, self.rows, say)
        picture = HistoryPicture(self.rows, self.output / "history.png", self.say)
        return [log, picture] if curves and writes else [log]

    def _train_epochs(self, batches, validation, validation_freq):
        progress, model = self.progress, self.model
        while not self.finished:
            if self.epoch_logs is None:  # otherwise the epoch was stopped within its validation
                epoch = progress.batch // progress.per_epoch
                count = progress.end_of_epoch - progress.batch
                model.fit(
                    self.devices.feed(batches.take(count)),
                    initial_epoch=epoch,
                    epochs=epoch + 1,
                    steps_per_epoch=count,
                    callbacks=self.callbacks,
                    shuffle=False,
                    verbose=0,
                )
                if self.diverged.error:
                    raise self.diverged.error
                if self.callbacks.interrupted:
                    raise self._interrupted()
                self.epoch_logs = self.callbacks.epoch_logs
                self.finished = model.stop_training or progress.batch == progress.total
            logs = dict(self.epoch_logs)
            if validation is not None and (progress.epoch + 1) % validation_freq == 0:
                logs |= self._validate(validation)
            self.callbacks.end_epoch(progress.epoch, logs)
            self.epoch_logs = None
            self.finished |= model.stop_training or progress.batch == progress.total
            due, asked = self.due_and_asked()
            if asked and not self.finished:
                raise self._interrupted()
            if due and not self.finished:
                self.save()
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
            raise self._interrupted()
        return {f"val_{name}": float(value) for name, value in logs.items()}

    def due_and_asked(self):
        """Whether to save and whether to stop, the same in all processes.

        One that left the others would keep them waiting for ever. As asking one another takes time,
        they do so at the end of an epoch and every few batches.
        """
        due, asked = self.interval.due(self.progress.updates), self.signals.asked is not None
        if self.devices.processes == 1:
            return due, asked
        if self.progress.batch % _TALK_EVERY and not self.progress.ends_epoch:
            return bool(self.interval.steps) and due, False
        return self.devices.any_of(due, asked)

    def save(self):
        """Writes a checkpoint of the present moment, and returns its path.

        Raises:
            DivergenceError: a weight is not finite.
        """
        broken = self.state.first_not_finite()
        if broken:
            raise self.diverged.describe(f"the weight {broken} is not finite")
        meta = {name: getattr(self, name) for name in ("seed", "rows", "epoch_logs", "finished")}
        meta |= {"batch": self.progress.batch, "settings": self.settings, "versions": versions()}
        meta["callbacks"] = [callback.get_state() for callback in self.keeping]
        path = self.checkpoints.save(self.progress.batch, self.state.save(), meta)
        self.interval.saved(self.progress.updates)
        return path

    def _interrupted(self):
        self.finished = False
        path = self.save()
        self.say(f"Stopped and saved: {path}. The same command continues the run.")
        return Interrupted(self.signals.asked or signal.SIGTERM)  # which another process was sent

    def say(self, text):
        """Prints a line at once, so that a killed run has said all that it did."""
        if self.devices.writes:
            print(text, flush=True)
