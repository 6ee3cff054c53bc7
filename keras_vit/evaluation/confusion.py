"""Which classes a model takes for which."""

import dataclasses

import numpy as np

from keras_vit.checks import positive_int
from keras_vit.data.class_names import resolve_class_names
from keras_vit.evaluation.result import Result, percent, table
from keras_vit.evaluation.stream import class_numbers

LARGEST = 2048  # classes: the matrix then takes 32 MiB


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
    def recall(self):
        """Share of the images of each class that are recognised; NaN for a class without any."""
        return _divided(self.matrix.diagonal(), self.matrix.sum(axis=1))

    @property
    def precision(self):
        """Share of right ones among the predictions of each class; NaN without predictions."""
        return _divided(self.matrix.diagonal(), self.matrix.sum(axis=0))

    @property
    def mean_per_class_accuracy(self):
        """Mean of the recall over the classes that have images, as Pets and Flowers report."""
        return float(np.nanmean(self.recall))

    def most_confused(self, count=10):
        """The most frequent mistakes, as (right class, predicted class, images), worst first."""
        count = positive_int(count, "count")
        wrong = self.matrix.copy()
        np.fill_diagonal(wrong, 0)
        found = np.flatnonzero(wrong)
        worst = found[np.argsort(-wrong.ravel()[found], kind="stable")[:count]]
        pairs = zip(*np.unravel_index(worst, wrong.shape))
        return [(self.class_names[i], self.class_names[j], int(wrong[i, j])) for i, j in pairs]

    def to_dict(self):
        return {
            "class_names": list(self.class_names),
            "matrix": self.matrix.tolist(),
            "accuracy": self.accuracy,
            "mean_per_class_accuracy": self.mean_per_class_accuracy,
            "recall": [None if np.isnan(x) else float(x) for x in self.recall],
            "precision": [None if np.isnan(x) else float(x) for x in self.precision],
        }

    def __str__(self):
        wrong = int(self.matrix.sum() - np.trace(self.matrix))
        rows = [("right class", "taken for", "images")]
        rows += [(a, b, str(n)) for a, b, n in self.most_confused()]
        return (
            f"{wrong} of {int(self.matrix.sum())} images wrong, accuracy {percent(self.accuracy)}, "
            f"mean over the classes {percent(self.mean_per_class_accuracy)}"
            + (f"\n{table(rows, left=2)}" if wrong else "")
        )

    __repr__ = __str__


def confusion_matrix(labels, predictions, num_classes=None, class_names=None):
    """Counts images by right and predicted class.

    Args:
        labels: (images,) class numbers, or one-hot rows.
        predictions: (images,) predicted class numbers.
        num_classes: by default one more than the highest number.
        class_names: sequence of text in the order of the numbers; by default the numbers.

    Returns:
        A `ConfusionMatrix`.

    Raises:
        ValueError: no images, different lengths, numbers outside 0..num_classes - 1, or another
            number of names than classes.
    """
    labels = class_numbers(labels, num_classes)
    predictions = class_numbers(predictions, num_classes, "predictions")
    if len(labels) != len(predictions) or not len(labels):
        raise ValueError(
            "There must be one prediction for each label and at least one of them. Received: "
            f"{len(labels)} labels and {len(predictions)} predictions"
        )
    num_classes = num_classes or int(max(labels.max(), predictions.max())) + 1
    counts = ConfusionCounts(num_classes)
    counts.add(predictions, labels)
    return counts.result(resolve_class_names(None, num_classes, class_names))


class ConfusionCounts:
    """The matrix, filled batch by batch."""

    def __init__(self, num_classes):
        self.matrix = np.zeros((num_classes, num_classes), np.int64)

    def add(self, predictions, labels):
        """Counts a batch of class numbers, (images,) each."""
        np.add.at(self.matrix, (labels, predictions), 1)

    def result(self, class_names):
        """The counts so far as a `ConfusionMatrix`."""
        return ConfusionMatrix(self.matrix.copy(), tuple(class_names))


def _divided(part, whole):
    return np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 0)
