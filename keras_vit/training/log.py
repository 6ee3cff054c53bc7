"""What a run says of itself: `log.jsonl`, `history.csv`, `history.png` and the screen."""

import csv
import datetime
import io
import json
import time

import keras

from keras_vit.training.checkpoint import inner_optimizer, sync, value_of
from keras_vit.writing import naming_full_disk, save_figure, write_text


class RunLog(keras.callbacks.Callback):
    """Writes `log.jsonl`, `history.csv` and `history.png`, and a line for each record.

    A record has `step` (updates done), `epoch` (from 0, as in Keras), the metrics of the epoch so
    far, `learning_rate` (of the next update), `gradient_norm` (before clipping, of the optimizers
    of `keras_vit.training`) and `images_per_second`. The records are printed if `shown`.
    """

    def __init__(self, run, shown):
        super().__init__()
        self.run, self.shown = run, shown
        self.writes = run.devices.writes  # the others measure the same, which may need them all
        self.curves, self.file = run.curves and self.writes, run.output / "log.jsonl"
        self.length = 0  # bytes of the file that belong to the run; a killed one left more
        self.row = {}  # the record of the last epoch
        self._measured, self._drawn = {}, time.monotonic()
        self._mark = None  # batch and time that speed is measured from

    def on_train_begin(self, logs=None):
        self._logged = self.run.progress.updates
        if self.writes:
            with self.file.open("ab") as file:
                file.truncate(min(self.length, file.tell()))

    def on_epoch_begin(self, epoch, logs=None):
        if self._mark:  # validation and saving take no part in the speed
            self._mark = (self.run.progress.batch, time.perf_counter())

    def on_train_batch_end(self, batch, logs=None):
        progress = self.run.progress
        self._mark = self._mark or (progress.batch, time.perf_counter())  # after compilation
        updates, every = progress.updates, self.run.log_every
        if updates // every > self._logged // every or progress.ends_epoch:
            self._logged, self._measured = updates, self._measure()
            place = {"step": updates, "epoch": progress.epoch}
            self._write("step", f"update {updates}/{progress.total_updates}", place, logs)

    def on_epoch_end(self, epoch, logs=None):
        place = {"epoch": epoch, "step": self.run.progress.updates}
        self.row = self._write("epoch", "ended", place, logs)

    def write_history(self):
        """Writes `history.csv` and, once in a minute, the curves."""
        if self.writes:
            history, table = self.run.progress.history(), io.StringIO()
            csv.writer(table, lineterminator="\n").writerows([history, *zip(*history.values())])
            write_text(self.run.output / "history.csv", table.getvalue())
        if time.monotonic() - self._drawn > 60:
            self.on_train_end()

    def on_train_end(self, logs=None):
        if not self.curves:
            return
        self._drawn = time.monotonic()
        try:
            plot_history(self.run.progress.rows, self.run.output / "history.png")
        except ImportError as error:
            self.curves = False
            self.run.say(f"No history.png: {error}; pip install keras3-vit[plot], or curves=False.")

    def _measure(self):
        sync(self.model)
        optimizer, batch = inner_optimizer(self.model), self.run.progress.batch
        rate = keras.ops.convert_to_numpy(optimizer.learning_rate)
        measured = {"learning_rate": float(rate)}
        if hasattr(optimizer, "gradient_norm"):
            measured["gradient_norm"] = float(value_of(optimizer.gradient_norm))
        batches, seconds = batch - self._mark[0], time.perf_counter() - self._mark[1]
        if batches and self.run.batch_size:
            measured["images_per_second"] = batches * self.run.batch_size / seconds
        self._mark = (batch, time.perf_counter())
        return measured

    def note(self, name, values):
        """Adds a record with this name to the file."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        if self.writes:
            with naming_full_disk(self.file), self.file.open("ab") as file:
                file.write(json.dumps({"kind": name, "time": now, **values}).encode() + b"\n")
                self.length = file.tell()

    def _write(self, name, where, place, logs):
        numbers = {k: float(v) for k, v in (logs or {}).items()} | self._measured
        self.note(name, place | numbers)
        if self.shown:
            epoch = f"epoch {place['epoch'] + 1}/{self.run.progress.epochs}"
            self.run.say("  ".join([epoch, where, *(f"{k} {v:.4g}" for k, v in numbers.items())]))
        return place | numbers


def plot_history(rows, path):
    """Draws every column of the rows, one dict an epoch, with its validation, into a picture."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    names = dict.fromkeys(name.removeprefix("val_") for row in rows for name in row)
    names = [name for name in names if name not in ("epoch", "step", "images_per_second")]
    columns = min(len(names), 3)
    figure = Figure(figsize=(4.5 * columns, 3.4 * -(-len(names) // 3)), layout="tight")
    for i, name in enumerate(names):
        axes = figure.add_subplot(-(-len(names) // 3), columns, i + 1)
        for column, label in ((name, "training"), (f"val_{name}", "validation")):
            points = [(row["epoch"] + 1, row[column]) for row in rows if column in row]
            if points:
                axes.plot(*zip(*points), marker=".", label=f"{label}, last {points[-1][1]:.3g}")
        axes.set(title=name.replace("_", " "), xlabel="epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        if len(rows) == 1:  # or the axis would show parts of an epoch
            axes.set_xlim(rows[0]["epoch"], rows[0]["epoch"] + 2)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    save_figure(figure, path, dpi=110)
