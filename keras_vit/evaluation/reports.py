"""What `evaluate` returns: reports of exclusive classes, of several labels at once, of values."""

import collections
import dataclasses

import numpy as np

from keras_vit.checks import rate, require
from keras_vit.evaluation import metrics
from keras_vit.evaluation.benchmarks import RealAccuracy
from keras_vit.evaluation.confusion import ConfusionMatrix
from keras_vit.evaluation.metrics import Calibration, Result
from keras_vit.text import percent, table, visible


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BaseReport(Result):
    """What each report says.

    Attributes:
        model, backend: the name of the model, and of Keras's backend.
        examples, skipped: numbers of images; of those that the data could not read and left out.
        seconds: duration, with the reading of the data and the compilation.
    """

    model: str
    backend: str
    examples: int
    skipped: int = 0
    seconds: float = 0.0

    deciding = ()  # names of the fields that are its figures

    @property
    def figures(self):
        """The figures that name a result in short, by name; the first one decides."""
        return {name: getattr(self, name) for name in self.deciding}

    def _text(self, classes, *body):
        """A title, what stands below it, and a line about the images that were left out."""
        title = f"{self.model} on {self.examples} images{classes}"
        lines = [f"{title}, {self.backend}, {self.seconds:.1f} s", *body]
        if self.skipped:
            lines.append(f"{self.skipped} images could not be read and do not count")
        return visible("\n".join(lines), keep="\n")


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Report(BaseReport):
    """How well a classifier does on labelled images: a `BaseReport`.

    Attributes:
        num_classes, from_logits: number of classes; whether outputs were taken for logits.
        correct: k -> number of images whose class is among the k best, for the k asked for.
        loss: mean cross-entropy of the right class, in nats.
        calibration, confusion, real: their results, or None where they were not asked for.
        problem: of the labels.
    """

    num_classes: int
    from_logits: bool
    correct: dict
    loss: float
    calibration: Calibration
    confusion: ConfusionMatrix | None = None
    real: RealAccuracy | None = None
    problem: str = "single_label"

    @property
    def figures(self):
        """As in `BaseReport`."""
        return {"accuracy": self.top1, "loss": self.loss}

    def top(self, k):
        """Share of the images whose class is among the k best, or None if not asked for."""
        return self.correct[k] / self.examples if k in self.correct else None

    @property
    def top1(self):
        """Share of the images whose class is the best one: the accuracy."""
        return self.top(1)

    @property
    def top5(self):
        """Share of the images whose class is among the five best."""
        return self.top(5)

    def __str__(self):
        real, confusion, calibration = self.real, self.confusion, self.calibration
        rows = [
            (f"top-{k} accuracy", percent(self.top(k)), f"{count} of {self.examples}")
            for k, count in self.correct.items()
        ]
        if real is not None:
            counts = f"{real.correct} of {real.examples}"
            rows.append(("ReaL accuracy", percent(real.accuracy), counts))
        error, bins = percent(calibration.expected_error), f"{len(calibration.counts)} bins"
        rows += [("loss", f"{self.loss:.4f}", "nats"), ("expected calibration error", error, bins)]
        rows.append(("Brier score", f"{calibration.brier:.4f}", ""))
        mistakes = []
        if confusion is not None:
            rows.append(("mean per-class accuracy", percent(confusion.mean_per_class_accuracy), ""))
            mistakes = ["{} taken for {}: {}".format(*each) for each in confusion.most_confused(3)]
        return self._text(f" of {self.num_classes} classes", table(rows), *mistakes)


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MultiLabelReport(BaseReport):
    """How well a model tells each class of images that may show several: a `BaseReport`.

    Attributes:
        num_classes, from_logits, problem: as in `Report`.
        mean_average_precision: mean of the average precision over the classes that have images.
        average_precision: class name -> area under the curve of precision over recall, as
            scikit-learn's `average_precision_score`; NaN for a class without images.
        micro_f1, macro_f1: F1 of all labels together; mean F1 of the classes that have images.
        exact: share of the images of which every class is told rightly.
        top1: share of the images with a class whose likeliest class is right.
        threshold: probability from which a class counts as predicted, for F1 and `exact`.
        loss: binary cross-entropy, summed over the classes, mean over the images, in nats.
    """

    num_classes: int
    from_logits: bool
    mean_average_precision: float
    average_precision: dict
    micro_f1: float
    macro_f1: float
    exact: float
    top1: float
    threshold: float
    loss: float
    problem: str = "multi_label"

    deciding = ("mean_average_precision", "loss")

    def __str__(self):
        rows = [
            ("mean average precision", percent(self.mean_average_precision)),
            (f"F1 of all labels, threshold {self.threshold:g}", percent(self.micro_f1)),
            ("mean F1 of the classes", percent(self.macro_f1)),
            ("images with every class right", percent(self.exact)),
            ("images whose likeliest class is right", percent(self.top1)),
            ("loss (nats, sum over the classes)", f"{self.loss:.4f}"),
        ]
        worst = sorted(self.average_precision.items(), key=lambda row: (np.isnan(row[1]), row[1]))
        rows += [(f"average precision of {name}", percent(ap)) for name, ap in worst[:3]]
        return self._text(f" that may show several of {self.num_classes} classes", table(rows))


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RegressionReport(BaseReport):
    """How near the values of a model are to the right ones: a `BaseReport`.

    Attributes:
        mean_absolute_error, root_mean_squared_error: of all outputs, in the units of the labels.
        r2: explained share of the labels' variance, mean over the outputs; NaN of equal labels.
        outputs: name of each output -> its three figures.
        problem: of the labels.
    """

    mean_absolute_error: float
    root_mean_squared_error: float
    r2: float
    outputs: dict
    problem: str = "regression"

    deciding = ("mean_absolute_error", "root_mean_squared_error", "r2")

    def __str__(self):
        figures = [("all", self.figures)] if len(self.outputs) > 1 else []
        figures += self.outputs.items()
        rows = [(name, *(f"{x:.6g}" for x in of_output.values())) for name, of_output in figures]
        header = ("output", "mean absolute error", "root mean squared error", "R2")
        return self._text("", table(rows, header))


def multi_label_report(batches, reading, names, threshold, **run):
    """The `MultiLabelReport` of batches (outputs, labels), labels with a column for each class."""
    threshold = rate(threshold, "threshold", within="(0, 1)")
    outputs, labels = _together(batches, len(names))
    received = f"labels from {labels.min():g} to {labels.max():g}"
    rule = "Labels of several classes must be 0 or 1 in each column"
    require(np.isin(labels, (0, 1)).all(), rule, received=received)
    p, of_present, of_absent = metrics.sigmoid_losses(outputs, not reading.applied)
    right, guessed = labels.astype(bool), p >= threshold
    hits, guesses, truths = (x.sum(axis=0) for x in (right & guessed, guessed, right))
    shown, labelled = truths > 0, right.any(axis=1)
    precisions = np.array([*map(metrics.average_precision, p.T, right.T)])
    best = right[np.arange(len(p)), p.argmax(axis=1)]
    return MultiLabelReport(
        **run,
        examples=len(labels),
        num_classes=len(names),
        from_logits=not reading.applied,
        mean_average_precision=_mean(precisions[shown]),
        average_precision=dict(zip(_different(names), precisions.tolist())),
        micro_f1=float(2 * hits.sum() / max(guesses.sum() + truths.sum(), 1)),
        macro_f1=_mean(2 * hits[shown] / (guesses + truths)[shown]),
        exact=float((right == guessed).all(axis=1).mean()),
        top1=_mean(best[labelled]),
        threshold=threshold,
        loss=float(np.where(right, of_present, of_absent).sum(axis=1).mean()),
    )


def regression_report(batches, names, **run):
    """The `RegressionReport` of batches (outputs, labels)."""
    outputs, labels = _together(batches, len(names))
    errors = outputs - labels
    variance, squared = labels.var(axis=0), (errors**2).mean(axis=0)
    r2 = 1 - squared / np.where(variance > 0, variance, np.nan)
    columns = np.abs(errors).mean(axis=0), np.sqrt(squared), r2
    return RegressionReport(
        **run,
        examples=len(labels),
        mean_absolute_error=float(columns[0].mean()),
        root_mean_squared_error=float(np.sqrt(squared.mean())),
        r2=float(r2.mean()),
        outputs={
            name: dict(zip(RegressionReport.deciding, row))
            for name, row in zip(_different(names), np.stack(columns, axis=1).tolist())
        },
    )


def _different(names):
    """The names as keys of a dict: those that several classes have get their numbers."""
    times = collections.Counter(names)
    return [f"{name} ({i})" if times[name] > 1 else name for i, name in enumerate(names)]


def _together(batches, columns):
    """All outputs and labels as two float64 arrays (images, columns), or a ValueError."""
    outputs, labels = [], []
    for index, (scores, numbers) in enumerate(batches):
        numbers = np.asarray(numbers)
        numbers = numbers[:, None] if numbers.ndim == 1 else numbers
        if numbers.dtype.kind not in "biuf" or numbers.shape[1:] != (columns,):
            raise ValueError(
                f"Labels must be numbers of shape (images, {columns}), one for each output. "
                f"Received: {numbers.dtype} of shape {numbers.shape} in batch {index}."
            )
        if not np.isfinite(numbers).all():
            raise ValueError(f"Labels must be finite. Received: NaN or infinity in batch {index}.")
        outputs.append(metrics.check_scores(scores, f" in batch {index}", least=1))
        labels.append(numbers)
    return np.concatenate(outputs), np.concatenate(labels).astype("float64")


def _mean(values):
    return float(np.mean(values)) if len(values) else float("nan")
