"""Which classes a model takes for which."""

import dataclasses

import numpy as np

from keras_vit.checks import positive_int
from keras_vit.evaluation.outputs import class_numbers, count_classes
from keras_vit.evaluation.result import Result
from keras_vit.text import percent, table

_MOST_CLASSES = 30_000  # the matrix then takes 7 GB


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ConfusionMatrix(Result):
    """Counts of images by right and predicted class.

    Attributes:
        matrix: int64 array of shape (classes, classes); row = right class, column = prediction.
        class_names: tuple of text, one for each class.
    """

    matrix: np.ndarray
    class_names: tuple

    derived = ("accuracy", "mean_per_class_accuracy", "recall", "precision")

    @property
    def accuracy(self):
        """Share of the images whose class is predicted."""
        return float(np.trace(self.matrix) / self.matrix.sum())

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

    @property
    def mean_per_class_accuracy(self):
        """Mean of the recall over the classes that have images, as Pets and Flowers report."""
        return float(np.nanmean(self.recall))

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
        ValueError: no images, different lengths, numbers outside 0..num_classes - 1, another
            number of names than classes, or more than 30,000 classes.
    """
    labels = class_numbers(labels, num_classes)
    predictions = class_numbers(predictions, num_classes, "predictions")
    if len(labels) != len(predictions) or not len(labels):
        raise ValueError(
            "There must be one prediction for each label and at least one of them. Received: "
            f"{len(labels)} labels and {len(predictions)} predictions"
        )
    n = num_classes or max(count_classes(each, _MOST_CLASSES) for each in (labels, predictions))
    names = check_names(map(str, range(n)) if class_names is None else class_names, n)
    counts = np.bincount(labels * n + predictions, minlength=n * n).reshape(n, n)
    return ConfusionMatrix(counts, names)


def check_names(names, num_classes):
    """Names of classes as a tuple of text, one for each, or a ValueError."""
    if isinstance(names, str):
        raise ValueError(f"class_names must be a sequence of names. Received: {names!r}")
    names = tuple(map(str, names))
    if len(names) != num_classes:
        raise ValueError(
            f"There must be one name for each of the {num_classes} classes, in their order. "
            f"Received: {len(names)} names"
        )
    return names
