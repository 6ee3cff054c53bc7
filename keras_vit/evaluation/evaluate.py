"""A classifier against labelled images, in one pass and bounded memory."""

import dataclasses
import time

import keras
import numpy as np

from keras_vit.checks import positive_int
from keras_vit.evaluation.calibration import (
    Calibration,
    calibration_of,
    check_scores,
    confidences,
    resolve_from_logits,
)
from keras_vit.evaluation.confusion import ConfusionMatrix, check_names, confusion_matrix
from keras_vit.evaluation.outputs import class_numbers, labelled_outputs
from keras_vit.evaluation.real import RealAccuracy, check_real, real_accuracy
from keras_vit.evaluation.result import Result
from keras_vit.text import percent, table

_FEW_CLASSES = 2048  # the confusion matrix then takes 32 MiB


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Report(Result):
    """How well a classifier does on labelled images.

    Attributes:
        model: name of the model.
        backend: of Keras.
        examples: number of images.
        num_classes: number of classes.
        from_logits: whether the model's outputs were taken for logits.
        correct: k -> number of images whose class is among the k best, for the k asked for.
        loss: mean cross-entropy of the right class, in nats.
        calibration: a `Calibration`.
        confusion: a `ConfusionMatrix`, or None.
        real: a `RealAccuracy`, or None.
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

    derived = ("top1", "top5")

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
        rows = [
            (f"top-{k} accuracy", percent(self.top(k)), f"{count} of {self.examples}")
            for k, count in self.correct.items()
        ]
        if self.real is not None:
            counts = f"{self.real.correct} of {self.real.examples}"
            rows.append(("ReaL accuracy", percent(self.real.accuracy), counts))
        error, bins = self.calibration.expected_error, len(self.calibration.counts)
        rows.append(("loss", f"{self.loss:.4f}", "nats"))
        rows.append(("expected calibration error", percent(error), f"{bins} bins"))
        rows.append(("Brier score", f"{self.calibration.brier:.4f}", ""))
        if self.confusion is not None:
            mean = percent(self.confusion.mean_per_class_accuracy)
            rows.append(("mean per-class accuracy", mean, ""))
        title = f"{self.model} on {self.examples} images of {self.num_classes} classes"
        lines = [f"{title}, {self.backend}, {self.seconds:.1f} s", table(rows)]
        for right, taken, count in self.confusion.most_confused(3) if self.confusion else ():
            lines.append(f"{right} taken for {taken}: {count}")
        if self.skipped:
            lines.append(f"{self.skipped} images could not be read and do not count")
        return "\n".join(lines)

    __repr__ = __str__


def evaluate(
    model,
    data,
    top=None,
    confusion=None,
    class_names=None,
    batch_size=64,
    steps=None,
    real=None,
    from_logits="auto",
    bins=15,
    progress=None,
):
    """Measures a classifier on labelled images.

    ```python
    report = keras_vit.evaluation.evaluate(model, (images, labels))
    print(report.top1, report.calibration.expected_error)
    report.save("report.json")
    ```

    The images are read once, batch by batch, and a few numbers for each of them are kept.

    Args:
        model: any Keras model that gives (batch, classes) logits or probabilities.
        data: (images, labels), a dataset of `keras_vit.data` (its test images) or a pipeline of
            it, a tf.data dataset, a PyDataset, or any iterable of batches (images, labels).
            Labels are class numbers or one-hot; a third part of a batch holds weights, 0 for rows
            that are no examples and 1 for the others. Paths, datasets of `keras_vit.data`, and
            uint8 images for a model with a `preprocessing`, are preprocessed as its weights ask
            for; others go into the model as they are, with a warning where its preprocessing
            makes no such values.
        top: a number k or several: images whose class is among the k best are counted. By default
            1, and 5 for more than five classes.
        confusion: whether to make the confusion matrix; None makes it for up to 2,048 classes.
        class_names: in the order of the scores; by default the model's, the data's, or numbers.
        batch_size: images per call; data in batches of its own keeps the size of the first.
        steps: number of batches to take at most; needed for data without end.
        real: the authors' `real.json` or its content, for the ReaL accuracy; the images must come
            in its order.
        from_logits: whether the model gives logits; `"auto"` takes its outputs for probabilities
            where every row of the first batch lies in [0, 1] and sums to 1.
        bins: of the calibration.
        progress: whether to show a progress bar; None shows it on a terminal or in a notebook.

    Returns:
        A `Report`.

    Raises:
        TypeError: not a Keras model, or data of an unknown kind.
        ValueError: no images; labels or names that do not fit the classes of the model; outputs
            that are not finite or not one score per class.
    """
    if top is not None:
        top = [positive_int(k, "top") for k in (top if np.ndim(top) else [top])]
    real, bins = None if real is None else check_real(real), positive_int(bins, "bins")
    began, found = time.perf_counter(), []
    for index, (outputs, labels) in enumerate(
        labelled_outputs(model, data, batch_size, steps, progress)
    ):
        scores = check_scores(outputs, f" in batch {index}")
        if index == 0:
            num_classes = scores.shape[1]
            names = _class_names(model, data, class_names, num_classes)
            from_logits = resolve_from_logits(from_logits, scores)
            top = _checked_top(top, num_classes)
        labels = class_numbers(labels, num_classes, f"labels of batch {index}")
        predictions, numbers = scores.argmax(axis=1), confidences(scores, labels, from_logits)
        found.append((labels, label_ranks(scores, labels), predictions, *numbers))
    labels, ranks, predictions, confidence, loss, brier = map(np.concatenate, zip(*found))
    if confusion is None:
        confusion = num_classes <= _FEW_CLASSES
    return Report(
        model=model.name,
        backend=keras.backend.backend(),
        examples=len(labels),
        num_classes=num_classes,
        from_logits=from_logits,
        correct={k: int((ranks < k).sum()) for k in top},
        loss=float(loss.mean()),
        calibration=calibration_of(confidence, ranks == 0, loss, brier, bins),
        confusion=confusion_matrix(labels, predictions, num_classes, names) if confusion else None,
        real=None if real is None else real_accuracy(predictions, real),
        skipped=len(getattr(data, "skipped", ())),
        seconds=time.perf_counter() - began,
    )


def label_ranks(scores, labels):
    """How many classes stand before the right one, (images,): 0 where it is the best.

    Of equal scores the lower class number stands first, as in `argmax`: the accuracy of a fresh
    head of zeros is that of a guess.
    """
    right = np.take_along_axis(scores, labels[:, None], axis=1)
    is_lower = np.arange(scores.shape[1]) < labels[:, None]
    return ((scores > right) | ((scores == right) & is_lower)).sum(axis=1)


def _checked_top(top, num_classes):
    if top is None:
        return [1, 5] if num_classes > 5 else [1]
    if max(top, default=0) >= num_classes:
        raise ValueError(
            f"Of {num_classes} classes, each is always among the best {num_classes}. "
            f"Received: top={tuple(top)}"
        )
    return top


def _class_names(model, data, given, num_classes):
    """The names given, the model's, the data's, or numbers; the data must have as many classes."""
    of_data = getattr(data, "class_names", None)
    if of_data is not None and len(of_data) != num_classes:
        raise ValueError(
            "The model and the data must have the same classes. Received: a model of "
            f"{num_classes} classes and data of {len(of_data)}"
        )
    for names in (given, getattr(model, "class_names", None), of_data):
        if names is not None:
            return check_names(names, num_classes)
    return tuple(map(str, range(num_classes)))
