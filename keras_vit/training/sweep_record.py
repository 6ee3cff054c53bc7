"""The results of a learning-rate sweep, in memory and in a file."""

import dataclasses
import json
import pathlib

from keras_vit.weights.files import read_npz, replacing, write_npz


@dataclasses.dataclass(frozen=True)
class Trial:
    """What became of one learning rate.

    Attributes:
        learning_rate: the rate.
        diverged: whether the loss ceased to be finite; then there is no score.
        score: the monitored value on the validation set after the training.
        loss: the loss of the last epoch of training, `None` where it diverged.
        epochs: epochs trained.
        seconds: time it took.
    """

    learning_rate: float
    diverged: bool
    score: float | None
    loss: float | None
    epochs: int
    seconds: float

    def __str__(self):
        numbers = f"{'diverged':>10} {'':>10}"
        if not self.diverged:
            numbers = f"{self.score:>10.4f} {self.loss:>10.4f}"
        return f"{self.learning_rate:>13g} {numbers} {self.epochs:>6} {self.seconds:>6.1f} s"


@dataclasses.dataclass(frozen=True)
class SweepResult:
    """The trials of a sweep and their winner; printing it shows a table.

    Attributes:
        recipe: name of the recipe.
        monitor: name of the score.
        trials: a `Trial` per learning rate, from the lowest.
    """

    recipe: str
    monitor: str
    trials: tuple[Trial, ...]

    @property
    def best(self):
        """The trial with the best score; of equal ones, that with the lowest learning rate.

        Raises:
            ValueError: all have diverged.
        """
        finished = [trial for trial in self.trials if not trial.diverged]
        if not finished:
            rates = [trial.learning_rate for trial in self.trials]
            raise ValueError(
                f"The loss was not finite at any learning rate. Received: {rates}; try lower ones."
            )
        sign = 1 if lower_is_better(self.monitor) else -1
        return min(finished, key=lambda trial: (sign * trial.score, trial.learning_rate))

    @property
    def learning_rate(self):
        """The winning learning rate."""
        return self.best.learning_rate

    def __str__(self):
        best = None if all(trial.diverged for trial in self.trials) else self.best
        rows = [f"{trial}{'  <- chosen' if trial is best else ''}" for trial in self.trials]
        return "\n".join([header(self.monitor), *rows])


def header(monitor):
    """The line above a table of trials."""
    return f"{'learning rate':>13} {monitor:>10} {'loss':>10} {'epochs':>6} {'time':>8}"


def lower_is_better(monitor):
    """Whether a metric of this name is a loss or an error."""
    return monitor.endswith("loss") or "error" in monitor


class Record:
    """The finished trials, in memory and in a file.

    Args:
        path: a .json file, or `None`; the initial weights lie beside it, as .initial.npz.
        settings: a dict of what must be as it was for the file to be continued.

    Raises:
        ValueError: the file is no record of a sweep, or of one with other settings.
    """

    def __init__(self, path, settings):
        self.path, self.settings, self.trials = path and pathlib.Path(path), settings, {}
        if self.path is not None and self.path.suffix != ".json":
            raise ValueError(f"path must be a .json file. Received: path={str(path)!r}.")
        if self.path is not None and self.path.is_file():
            self._read()

    def _read(self):
        try:
            content = json.loads(self.path.read_text())
            before, trials = dict(content["settings"]), [Trial(**t) for t in content["trials"]]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"Not the record of a sweep. Received: path={str(self.path)!r}; choose another."
            ) from error
        changed = [name for name, value in self.settings.items() if before.get(name) != value]
        if changed:
            raise ValueError(
                f"{str(self.path)!r} holds a sweep with another {', '.join(changed)}. Received: "
                f"{ {name: self.settings[name] for name in changed} }, before: "
                f"{ {name: before.get(name) for name in changed} }; choose another path, or "
                "remove the file to begin anew."
            )
        self.trials = {trial.learning_rate: trial for trial in trials}

    def add(self, trial):
        self.trials[trial.learning_rate] = trial
        if self.path is not None:
            trials = [dataclasses.asdict(trial) for trial in self.trials.values()]
            content = {"settings": self.settings, "trials": trials}
            with replacing(self.path) as stream:
                stream.write(json.dumps(content, indent=1).encode())

    def initial_weights(self, model):
        """The weights that every run begins with: those in the file, or else the model's."""
        if self.path is None:
            return model.get_weights()
        path = self.path.with_suffix(".initial.npz")
        if self.trials and not path.is_file():
            raise ValueError(
                f"The runs of {str(self.path)!r} began with the weights in {str(path)!r}, which is "
                "missing. Received: more learning rates to try; bring it back, or choose another "
                "path for a new sweep."
            )
        if not self.trials:
            write_npz(path, {f"{i:05d}": w for i, w in enumerate(model.get_weights())})
        arrays = read_npz(path)
        weights = [arrays[name] for name in sorted(arrays)]
        if [w.shape for w in weights] != [tuple(w.shape) for w in model.weights]:
            raise ValueError(
                f"make_model builds another model than the one of {str(self.path)!r}. Received: "
                f"{model.name!r}; choose another path for its sweep."
            )
        return weights
