"""ReaL accuracy: ImageNet's validation images with every label that fits (Beyer et al., 2020)."""

import dataclasses
import json
import pathlib

import numpy as np

from keras_vit.evaluation.result import Result, percent
from keras_vit.evaluation.stream import to_numpy, whole_numbers


@dataclasses.dataclass(frozen=True)
class RealAccuracy(Result):
    """How many predictions are among the labels that fit their image.

    Attributes:
        correct: images whose prediction fits.
        examples: images with at least one label; only they count.
        left_out: images without any label.
    """

    correct: int
    examples: int
    left_out: int

    @property
    def accuracy(self):
        """Share of the images with labels whose prediction fits."""
        return self.correct / self.examples

    def __float__(self):
        return self.accuracy

    def to_dict(self):
        return {"accuracy": self.accuracy, **dataclasses.asdict(self)}

    def __str__(self):
        return (
            f"ReaL accuracy {percent(self.accuracy)}: {self.correct} of {self.examples} images, "
            f"{self.left_out} without labels left out"
        )


def load_real(path):
    """Reads the authors' `real.json`: a list with the list of class numbers of each image.

    Args:
        path: the file; entry i belongs to the image `ILSVRC2012_val_{i + 1:08d}.JPEG`.

    Returns:
        list of tuples of ints, as many as images.

    Raises:
        FileNotFoundError: there is no such file; the message says where the authors keep it.
        ValueError: the file has another structure.

    Source: README.md of google-research/reassessed-imagenet.
    """
    path = pathlib.Path(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(
            f"The ReaL labels do not exist; real.json is in the repository "
            f"google-research/reassessed-imagenet on GitHub. Received: {path}"
        ) from None
    except ValueError as error:
        raise ValueError(f"The ReaL labels must be JSON. Received: {path} ({error})") from error
    return _label_lists(content, str(path))


def real_accuracy(predictions, real_labels):
    """The share of predictions that are among the labels of their image.

    Args:
        predictions: (images,) class numbers, or (images, classes) scores, in the order of the
            labels: for ImageNet, by file name.
        real_labels: list of lists of class numbers, or the path of the authors' `real.json`.
            Images with an empty list are left out.

    Returns:
        A `RealAccuracy`.

    Raises:
        ValueError: another number of predictions than lists, all lists empty, or labels that are
            no class numbers.
    """
    predictions = to_numpy(predictions)
    num_classes = predictions.shape[1] if predictions.ndim == 2 else None
    predictions = predictions.argmax(axis=1) if predictions.ndim == 2 else predictions
    counts = RealCounts(real_labels, num_classes)
    counts.add(whole_numbers(predictions, "predictions"))
    return counts.result()


class RealCounts:
    """Right predictions among the reassessed labels, counted batch by batch in their order."""

    def __init__(self, real_labels, num_classes=None):
        given = isinstance(real_labels, (str, pathlib.Path))
        self.labels = load_real(real_labels) if given else _label_lists(real_labels, "a sequence")
        highest = max(map(max, filter(None, self.labels)), default=None)
        if highest is None:
            raise ValueError("The ReaL labels must name a class for at least one image.")
        if num_classes is not None and highest >= num_classes:
            raise ValueError(
                f"The ReaL labels must be below the {num_classes} classes of the model. "
                f"Received: label {highest}"
            )
        self.seen = self.correct = self.examples = 0

    def add(self, predictions):
        """Counts the predicted class numbers of the next images."""
        expected = self.labels[self.seen : self.seen + len(predictions)]
        self.seen += len(predictions)
        self.examples += sum(map(bool, expected))
        self.correct += sum(int(p) in fits for p, fits in zip(predictions, expected))

    def result(self):
        """The counts as a `RealAccuracy`, once there was a prediction for each image."""
        if self.seen != len(self.labels):
            raise ValueError(
                "ReaL needs a prediction for each image of its labels, in their order. Received: "
                f"{self.seen} predictions and labels of {len(self.labels)} images"
            )
        return RealAccuracy(self.correct, self.examples, self.seen - self.examples)


def _label_lists(content, source):
    if isinstance(content, np.ndarray):
        content = content.tolist()
    if not isinstance(content, (list, tuple)) or not content:
        raise ValueError(_structure(source, f"{type(content).__name__}"))
    for i, labels in enumerate(content):
        if not isinstance(labels, (list, tuple)) or not all(map(_is_class, labels)):
            raise ValueError(_structure(source, f"{labels!r} for image {i}"))
    return [tuple(map(int, labels)) for labels in content]


def _is_class(label):
    return isinstance(label, (int, np.integer)) and not isinstance(label, bool) and label >= 0


def _structure(source, received):
    return (
        "The ReaL labels must be a list with one list of class numbers for each image, such as "
        f"[[65], [970, 795], []]. Received: {received}, from {source}"
    )
