"""Which classes are taken for which: the confusion matrix."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from keras_vit.checks import output_names, positive_int
from keras_vit.evaluation.metrics import Result, check_same_length, class_numbers, count_classes
from keras_vit.text import percent, table


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
        total, mistakes = int(self.matrix.sum()), self.most_confused()
        summary = (
            f"{total - int(np.trace(self.matrix))} of {total} images wrong, accuracy "
            f"{percent(self.accuracy)}, mean over the classes "
            f"{percent(self.mean_per_class_accuracy)}"
        )
        header = ("right class", "taken for", "images")
        return f"{summary}\n{table(mistakes, header, left=2)}" if mistakes else summary


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
    check_same_length(labels, predictions, ("labels", "predictions"))
    # The matrix of 30,000 classes takes 7 GB.
    n = num_classes or count_classes(np.concatenate([labels, predictions]), most=30_000)
    counts = np.bincount(labels * n + predictions, minlength=n * n).reshape(n, n)
    names = range(n) if class_names is None else class_names
    return ConfusionMatrix(counts, output_names(names, (n,)))
