"""A classifier against labelled images, in one pass and bounded memory; the confusion matrix."""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any, Literal

import keras
import numpy as np
from numpy.typing import ArrayLike

from keras_vit.checks import check_choice, positive_int
from keras_vit.evaluation import metrics
from keras_vit.evaluation.benchmarks import RealAccuracy, check_real, real_accuracy
from keras_vit.evaluation.features import labelled_outputs
from keras_vit.evaluation.metrics import Calibration, Result, class_numbers
from keras_vit.text import percent, table

_FEW_CLASSES = 2048  # the confusion matrix then takes 32 MiB


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ConfusionMatrix(Result):
    """Counts of images by right and predicted class.

    Attributes:
        matrix: int64 array of shape (classes, classes); row = right class, column = prediction.
        class_names: tuple of text, one for each class.
    """

    matrix: np.ndarray
    class_names: tuple

    @property
    def accuracy(self):
        """Share of the images whose class is predicted."""
        return float(np.trace(self.matrix) / self.matrix.sum())

    @property
    def mean_per_class_accuracy(self):
        """Mean of the recall over the classes that have images, as Pets and Flowers report."""
        return float(np.nanmean(self.recall))

    @property
    def recall(self):
        """Share of the images of each class that are recognised; NaN for a class without any."""
        with np.errstate(invalid="ignore"):
            return self.matrix.diagonal() / self.matrix.sum(axis=1)

    @property
    def precision(self):
        """Share of right ones among the predictions of each class; NaN without predictions."""
        with np.errstate(invalid="ignore"):
            return self.matrix.diagonal() / self.matrix.sum(axis=0)

    def most_confused(self, count=10):
        """The most frequent mistakes, as (right class, predicted class, images), worst first."""
        wrong = self.matrix - np.diag(self.matrix.diagonal())
        rows, columns = np.nonzero(wrong)
        worst = np.argsort(-wrong[rows, columns], kind="stable")[: positive_int(count, "count")]
        names = self.class_names
        return [(names[i], names[j], int(wrong[i, j])) for i, j in zip(rows[worst], columns[worst])]

    def __str__(self):
        wrong = int(self.matrix.sum() - np.trace(self.matrix))
        summary = (
            f"{wrong} of {int(self.matrix.sum())} images wrong, accuracy {percent(self.accuracy)}, "
            f"mean over the classes {percent(self.mean_per_class_accuracy)}"
        )
        header = ("right class", "taken for", "images")
        return summary + (f"\n{table(self.most_confused(), header, left=2)}" if wrong else "")


def confusion_matrix(
    labels: ArrayLike,
    predictions: ArrayLike,
    num_classes: int | None = None,
    class_names: Sequence[str] | None = None,
) -> ConfusionMatrix:
    """Counts images by right and predicted class, as a `ConfusionMatrix`.

    Args:
        labels: (images,) class numbers, or one-hot rows.
        predictions: (images,) predicted class numbers.
        num_classes: by default one more than the highest number.
        class_names: sequence of text in the order of the numbers; by default the numbers.

    Raises:
        ValueError: arrays or names that do not fit together, or more than 30,000 classes.
    """
    labels = class_numbers(labels, num_classes)
    predictions = class_numbers(predictions, num_classes, "predictions")
    metrics.check_same_length(labels, predictions, ("labels", "predictions"))
    most = 30_000  # the matrix then takes 7 GB
    n = num_classes or metrics.count_classes(np.concatenate([labels, predictions]), most)
    counts = np.bincount(labels * n + predictions, minlength=n * n).reshape(n, n)
    return ConfusionMatrix(counts, _class_names(n, class_names))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Report(Result):
    """How well a classifier does on labelled images.

    Attributes:
        model, backend: the name of the model, and of Keras's backend.
        examples, num_classes: numbers of images and of classes.
        from_logits: whether the model's outputs were taken for logits.
        correct: k -> number of images whose class is among the k best, for the k asked for.
        loss: mean cross-entropy of the right class, in nats.
        calibration, confusion, real: their results, or None where they were not asked for.
        skipped: number of images that the data could not read and left out.
        seconds: duration, with the reading of the data and the compilation.
    """

    model: str
    backend: str
    examples: int
    num_classes: int
    from_logits: bool
    correct: dict
    loss: float
    calibration: Calibration
    confusion: ConfusionMatrix | None = None
    real: RealAccuracy | None = None
    skipped: int = 0
    seconds: float = 0.0

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
        real, confusion, bins = self.real, self.confusion, len(self.calibration.counts)
        rows = [
            (f"top-{k} accuracy", percent(self.top(k)), f"{count} of {self.examples}")
            for k, count in self.correct.items()
        ]
        if real is not None:
            counts = f"{real.correct} of {real.examples}"
            rows.append(("ReaL accuracy", percent(real.accuracy), counts))
        error = percent(self.calibration.expected_error)
        rows.append(("loss", f"{self.loss:.4f}", "nats"))
        rows.append(("expected calibration error", error, f"{bins} bins"))
        rows.append(("Brier score", f"{self.calibration.brier:.4f}", ""))
        if confusion is not None:
            mean = percent(confusion.mean_per_class_accuracy)
            rows.append(("mean per-class accuracy", mean, ""))
        title = f"{self.model} on {self.examples} images of {self.num_classes} classes"
        lines = [f"{title}, {self.backend}, {self.seconds:.1f} s", table(rows)]
        for right, taken, count in confusion.most_confused(3) if confusion else ():
            lines.append(f"{right} taken for {taken}: {count}")
        if self.skipped:
            lines.append(f"{self.skipped} images could not be read and do not count")
        return "\n".join(lines)


def evaluate(
    model: keras.Model,
    data: Any,
    top: int | Sequence[int] | None = None,
    confusion: bool | None = None,
    class_names: Sequence[str] | None = None,
    batch_size: int = 64,
    steps: int | None = None,
    real: Any = None,
    from_logits: bool | Literal["auto"] = "auto",
    progress: bool | None = None,
) -> Report:
    """Measures a classifier on labelled images, and returns a `Report`.

    The images are read once, batch by batch, and a few numbers for each of them are kept. Files
    that do not exist or cannot be read are left out: a warning names each, and the report counts
    them.

    Args:
        model: any Keras model that gives (batch, classes) logits or probabilities.
        data: (images, labels), a dataset of `keras_vit.data` (its test images) or a pipeline of
            it, a tf.data dataset, a PyDataset, or any iterable of batches (images, labels).
            Labels are class numbers or one-hot; a third part of a batch holds weights, 0 for rows
            that are no examples and 1 for the others. Paths, datasets of `keras_vit.data`, and
            uint8 images for a model with a `preprocessing` are preprocessed as its weights ask
            for; others go into the model as they are.
        top: a number k or several: images whose class is among the k best are counted. By default
            1, and 5 for more than five classes.
        confusion: whether to make the confusion matrix; None makes it for up to 2,048 classes.
        class_names: in the order of the scores; by default the model's, the data's, or numbers.
        batch_size: images per call; data in batches of its own keeps the size of the first.
        steps: number of batches to take at most; needed for data without end.
        real: the authors' `real.json` or its content, for the ReaL accuracy; the images must come
            in its order.
        from_logits: whether the model gives logits; `"auto"` takes its outputs for probabilities
            if every row of the first batch lies in [0, 1] and sums to 1.
        progress: whether to show a progress bar; None shows it on a terminal or in a notebook.

    Raises:
        TypeError: not a Keras model, or data of an unknown kind.
        ValueError: no images; labels or names that do not fit the classes of the model; outputs
            that are not finite or not one score per class.
    """
    check_choice("from_logits", from_logits, ("auto", True, False))
    if top is not None:
        top = [positive_int(k, "top") for k in (top if np.ndim(top) else [top])]
    real = None if real is None else check_real(real)
    began, found, left_out = time.perf_counter(), [], []
    batches = labelled_outputs(model, data, batch_size, steps, progress, left_out)
    for index, (outputs, labels) in enumerate(batches):
        scores = metrics.check_scores(outputs, f" in batch {index}")
        if index == 0:
            num_classes = scores.shape[1]
            of_data = getattr(data, "class_names", None)
            _class_names(num_classes, of_data)  # or the data has other classes than the model
            of_model = getattr(model, "class_names", None)
            names = _class_names(num_classes, class_names, of_model, of_data)
            from_logits = metrics.are_logits(scores) if from_logits == "auto" else from_logits
            top = top or ([1, 5] if num_classes > 5 else [1])
            if max(top) >= num_classes:
                raise ValueError(
                    f"Of {num_classes} classes, each is always among the best {num_classes}. "
                    f"Received: top={tuple(top)}."
                )
        labels = class_numbers(labels, num_classes, f"labels of batch {index}")
        numbers = metrics.confidences(scores, labels, from_logits)
        found.append((labels, label_ranks(scores, labels), scores.argmax(axis=1), *numbers))
    labels, ranks, predictions, confidence, loss, brier = map(np.concatenate, zip(*found))
    if confusion is None:
        confusion = num_classes <= _FEW_CLASSES
    return Report(
        model=model.name,
        backend=keras.backend.backend(),
        examples=len(labels),
        num_classes=num_classes,
        from_logits=bool(from_logits),
        correct={k: int((ranks < k).sum()) for k in top},
        loss=float(loss.mean()),
        calibration=metrics.calibration_of(confidence, ranks == 0, loss, brier, bins=15),
        confusion=confusion_matrix(labels, predictions, num_classes, names) if confusion else None,
        real=None if real is None else real_accuracy(predictions, real),
        skipped=len(getattr(data, "skipped", ())) + len(left_out),
        seconds=time.perf_counter() - began,
    )


def label_ranks(scores, labels):
    """How many classes stand before the right one, (images,): 0 if it is the best.

    Of equal scores the lower class number stands first, as in `argmax`: the accuracy of a fresh
    head of zeros is that of a guess.
    """
    right = np.take_along_axis(scores, labels[:, None], axis=1)
    is_lower = np.arange(scores.shape[1]) < labels[:, None]
    return ((scores > right) | ((scores == right) & is_lower)).sum(axis=1)


def _class_names(num_classes, *candidates):
    """The first names that are given, one for each class, else the numbers, as text."""
    names = next((names for names in candidates if names is not None), range(num_classes))
    if isinstance(names, str) or len(names) != num_classes:
        raise ValueError(
            "class_names, given or of the model or of the data, must be a sequence with one name "
            f"for each of the {num_classes} classes. Received: {type(names).__name__} of length "
            f"{len(names)}."
        )
    return tuple(map(str, names))
