"""What a run says of itself: `log.jsonl`, `history.csv`, `history.png` and the screen."""

import csv
import datetime
import json
import os
import time

import keras

from keras_vit.training.checkpoint import inner_optimizer, sync, value_of


class RunLog(keras.callbacks.Callback):
    """Writes `log.jsonl` and `history.csv`, and a line for each record to the screen.

    A record has `step` (updates done), `epoch` (from 0, as in Keras), the metrics of the epoch so
    far, `learning_rate` (of the next update), `gradient_norm` (before clipping, of the optimizers
    of `keras_vit.training`) and `images_per_second`.

    Args:
        progress: the run's `Progress`.
        output: the folder, or None to write nothing.
        every: updates between two records.
        rows: a list of the epochs so far, to which each epoch is added.
        say: called with each line for the screen.
    """

    def __init__(self, progress, output, every, rows, say):
        super().__init__()
        self.progress, self.every, self.rows, self.say = progress, every, rows, say
        self.output = output
        self._logged, self._measured = progress.updates, {}
        self._mark = None  # batch and time that speed is measured from
        if output:
            _keep_lines(output / "log.jsonl", progress.updates, len(rows))

    def on_epoch_begin(self, epoch, logs=None):
        if self._mark:  # validation and saving take no part in the speed
            self._mark = (self.progress.batch, time.perf_counter())

    def on_train_batch_end(self, batch, logs=None):
        progress = self.progress
        self._mark = self._mark or (progress.batch, time.perf_counter())  # after compilation
        if progress.updates // self.every == self._logged // self.every and not progress.ends_epoch:
            return
        self._logged = progress.updates
        self._measured = self._measure()
        self._write("step", {"step": progress.updates, "epoch": progress.epoch}, logs)

    def on_epoch_end(self, epoch, logs=None):
        row = self._write("epoch", {"epoch": epoch, "step": self.progress.updates}, logs)
        self.rows.append(row)
        if not self.output:
            return
        columns = list(dict.fromkeys(name for row in self.rows for name in row))
        partial = self.output / "history.csv.partial"
        with partial.open("w", newline="") as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)
        os.replace(partial, self.output / "history.csv")

    def _measure(self):
        sync(self.model)
        optimizer = inner_optimizer(self.model)
        rate = keras.ops.convert_to_numpy(optimizer.learning_rate)
        measured = {"learning_rate": float(rate)}
        if hasattr(optimizer, "gradient_norm"):
            measured["gradient_norm"] = float(value_of(optimizer.gradient_norm))
        batches, seconds = self.progress.batch - self._mark[0], time.perf_counter() - self._mark[1]
        if batches and self.progress.batch_size:
            measured["images_per_second"] = batches * self.progress.batch_size / seconds
        self._mark = (self.progress.batch, time.perf_counter())
        return measured

    def _write(self, kind, place, logs):
        record = {**place, **{k: float(v) for k, v in (logs or {}).items()}, **self._measured}
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        if self.output:
            with (self.output / "log.jsonl").open("a") as file:
                file.write(json.dumps({"kind": kind, "time": now, **record}) + "\n")
        progress = self.progress
        where = f"update {progress.updates}/{progress.total_updates}" if kind == "step" else "ended"
        numbers = (f"{k} {v:.4g}" for k, v in record.items() if k not in place)
        self.say("  ".join([f"epoch {record['epoch'] + 1}/{progress.epochs}", where, *numbers]))
        return record


def _keep_lines(path, updates, epochs):
    """Drops the records after a checkpoint, and a line that was cut short."""

    def stays(line):
        try:
            record = json.loads(line)
        except ValueError:
            return False
        if record["kind"] == "epoch":
            return record["epoch"] < epochs
        return record["step"] <= updates

    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    path.write_text("".join(line for line in lines if stays(line)))


class HistoryPicture(keras.callbacks.Callback):
    """Draws `history.png`, once a minute at most: each metric against the epoch, with validation.

    Without matplotlib it says so once and draws nothing.

    Args:
        rows: the epochs so far, a list that grows.
        path: the picture.
        say: called with a line if matplotlib is missing.
    """

    _SECONDS_BETWEEN = 60

    def __init__(self, rows, path, say):
        super().__init__()
        self.rows, self.path, self.say, self._drawn = rows, path, say, time.monotonic()
        self._missing = False

    def on_epoch_end(self, epoch, logs=None):
        if time.monotonic() - self._drawn > self._SECONDS_BETWEEN:
            self.draw()

    def on_train_end(self, logs=None):
        self.draw()

    def draw(self):
        """Draws what there is."""
        if self._missing or not self.rows:
            return
        self._drawn = time.monotonic()
        try:
            plot_history(self.rows, self.path)
        except ImportError as error:
            self._missing = True
            self.say(f"No {self.path.name}: {error}")


def plot_history(rows, path):
    """Draws every metric, with its validation, the learning rate and the gradient norm.

    Args:
        rows: dicts with `epoch`, counted from 0, and the values of that epoch.
        path: the picture to write; its ending decides the format.

    Raises:
        ImportError: matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "The curves need matplotlib: pip install keras3-vit[plot], or pass curves=False."
        ) from error
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
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    figure.savefig(path, dpi=110)
