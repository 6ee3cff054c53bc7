"""ReaL accuracy: ImageNet's validation images with every label that fits (Beyer et al., 2020)."""

import dataclasses
import json
import os
import pathlib

import numpy as np

from keras_vit.evaluation.outputs import class_numbers, to_numpy
from keras_vit.evaluation.result import Result
from keras_vit.text import percent


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

    derived = ("accuracy",)

    @property
    def accuracy(self):
        """Share of the images with labels whose prediction fits."""
        return self.correct / self.examples

    def __float__(self):
        return self.accuracy

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
    try:
        content = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(
            "The ReaL labels do not exist; real.json is in the repository "
            f"google-research/reassessed-imagenet on GitHub. Received: {path}"
        ) from None
    except ValueError as error:
        raise ValueError(f"The ReaL labels must be JSON. Received: {path} ({error})") from error
    return check_real(content, str(path))


def check_real(labels, source="an argument"):
    """The labels of ReaL as a list of tuples; a path is read.

    Raises:
        ValueError: the labels have another structure, or no image has any.
    """
    if isinstance(labels, (str, os.PathLike)):
        return load_real(labels)
    if isinstance(labels, np.ndarray):
        labels = labels.tolist()
    received = None
    if not isinstance(labels, (list, tuple)) or not labels:
        received = type(labels).__name__
    else:
        for i, each in enumerate(labels):
            if not isinstance(each, (list, tuple)) or not all(map(_is_class, each)):
                received = f"{each!r} for image {i}"
                break
    if received:
        raise ValueError(
            "The ReaL labels must be a list with one list of class numbers for each image, such as "
            f"[[65], [970, 795], []]. Received: {received}, from {source}"
        )
    if not any(labels):
        raise ValueError(f"ReaL needs labels for at least one image. Received: none, from {source}")
    return [tuple(map(int, each)) for each in labels]


def _is_class(label):
    return isinstance(label, (int, np.integer)) and not isinstance(label, bool) and label >= 0


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
        ValueError: another number of predictions than lists, all lists empty, labels that are
            no class numbers, or labels beyond the classes of the scores.
    """
    real, predictions = check_real(real_labels), to_numpy(predictions)
    if predictions.ndim == 2:
        largest = max(label for labels in real for label in labels)
        if largest >= predictions.shape[1]:
            raise ValueError(
                f"The ReaL labels must be below the {predictions.shape[1]} classes of the scores. "
                f"Received: label {largest}"
            )
        predictions = predictions.argmax(axis=1)
    predictions = class_numbers(predictions, what="predictions").tolist()
    if len(predictions) != len(real):
        raise ValueError(
            "ReaL needs a prediction for each image of its labels, in their order. Received: "
            f"{len(predictions)} predictions and labels of {len(real)} images"
        )
    examples = sum(map(bool, real))
    correct = sum(p in labels for p, labels in zip(predictions, real))
    return RealAccuracy(correct, examples, len(real) - examples)
