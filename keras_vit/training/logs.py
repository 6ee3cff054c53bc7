"""What a run says of itself, on the screen and in files."""

import datetime
import pathlib
import time

import keras

from keras_vit.training import state
from keras_vit.training.curves import plot_curves
from keras_vit.training.log_files import JSONLines, write_csv
from keras_vit.training.memory import peak_memory
from keras_vit.training.tensorboard import TensorBoardWriter

_SECONDS_BETWEEN_PICTURES = 60  # one takes half a second, and an epoch may take less


class Logs(keras.callbacks.Callback):
    """Writes `log.jsonl`, `history.csv`, `history.png` and events for TensorBoard.

    In each record: `step` (updates done), `epoch` (from 0, as in Keras), the metrics of the epoch
    so far, `learning_rate`, `gradient_norm` (before clipping), `images_per_second`, `peak_memory`
    (bytes) and `seconds_left`.

    Args:
        progress: the run's `Progress`.
        diverged: the run's `StopOnDivergence`.
        output: the folder.
        every: updates between two records.
        rows: the epochs of an earlier part of the run.
        curves: whether to draw.
        tensorboard: whether to write events.
        say: called with each line for the screen.
    """

    def __init__(
        self, progress, diverged, output, every, rows=(), curves=True, tensorboard=True, say=print
    ):
        super().__init__()
        self.progress, self.diverged, self.say = progress, diverged, say
        self.output, self.every, self.rows = pathlib.Path(output), every, list(rows)
        self.curves = curves
        step, epochs = progress.step, {row["epoch"] for row in self.rows}
        self._file = JSONLines(
            self.output / "log.jsonl",
            lambda record: (
                record["step"] <= step if record["kind"] == "step" else record["epoch"] in epochs
            ),
        )
        first = step + 1 if step else 0
        folder = self.output / "tensorboard"
        self._tensorboard = TensorBoardWriter(folder, first) if tensorboard else None
        self._logged, self._last = step, {}
        self._timed = (0, 0.0)
        self._drawn = time.monotonic()

    def on_train_batch_end(self, batch, logs=None):
        progress = self.progress
        if progress.step // self.every == self._logged // self.every and not progress.ends_epoch:
            return
        self._logged = progress.step
        state.sync(self.model)
        measured = self._measure()
        self.diverged.check_gradients(measured["gradient_norm"])
        record = {"step": progress.step, "epoch": progress.epoch, **_floats(logs), **measured}
        self._last = measured
        self._write("step", record)

    def on_epoch_end(self, epoch, logs=None):
        state.sync(self.model)
        measured = self._last or self._measure()  # of a run continued just here
        measured = {k: v for k, v in measured.items() if k != "seconds_left"}
        row = {"epoch": epoch, "step": self.progress.step, **_floats(logs), **measured}
        self.rows.append(row)
        self._write("epoch", row)
        write_csv(self.output / "history.csv", self.rows)
        self.draw()

    def draw(self, now=False):
        """Draws the curves, if the last picture is old enough."""
        if not (self.curves and self.rows):
            return
        if not now and time.monotonic() - self._drawn < _SECONDS_BETWEEN_PICTURES:
            return
        self._drawn = time.monotonic()
        try:
            plot_curves(self.rows, self.output / "history.png")
        except ImportError as error:
            self.curves = False
            self.say(f"No history.png: {error}")

    def _measure(self):
        """The learning rate and what else is not in Keras's logs."""
        progress = self.progress
        seconds, timed = progress.seconds - self._timed[1], progress.timed - self._timed[0]
        self._timed = (progress.timed, progress.seconds)
        rate = timed / seconds if seconds else None
        if progress.batch_size:
            speed = {"images_per_second": rate and rate * progress.batch_size}
        else:
            speed = {"updates_per_second": rate}
        measured = {
            "learning_rate": state.learning_rate(self.model),
            "gradient_norm": state.gradient_norm(self.model),
            **speed,
            "peak_memory": peak_memory(),
            "seconds_left": progress.seconds_left(),
        }
        return {name: value for name, value in measured.items() if value is not None}

    def _write(self, kind, record):
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        self._file.append({"kind": kind, "time": now, **record})
        numbers = {k: v for k, v in record.items() if k not in ("epoch", "step")}
        if self._tensorboard:
            self._tensorboard.write(
                record["step"], {f"{kind}/{name}": value for name, value in numbers.items()}
            )
        self.say(_line(record, numbers, self.progress, kind))


def _floats(logs):
    return {name: float(value) for name, value in (logs or {}).items()}


_SHORT = {"learning_rate": "lr", "gradient_norm": "gradients"}


def _line(record, numbers, progress, kind):
    """One line for the screen."""
    epochs = -(-progress.total // progress.per_epoch)
    parts = [f"epoch {record['epoch'] + 1}/{epochs}"]
    parts += [f"update {record['step']}/{progress.total}" if kind == "step" else "ended"]
    for name, value in numbers.items():
        if name == "seconds_left":
            parts.append(f"left {datetime.timedelta(seconds=round(value))}")
        elif name == "peak_memory":
            parts.append(f"{value / 2**30:.2f} GiB")
        elif name.endswith("_per_second"):
            parts.append(f"{value:.1f} {name.split('_')[0]}/s")
        elif kind == "step" or name not in _SHORT:
            parts.append(f"{_SHORT.get(name, name)} {value:.4g}")
    return "  ".join(parts)
