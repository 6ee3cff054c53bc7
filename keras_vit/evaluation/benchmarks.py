"""Two published scores: ReaL accuracy (Beyer et al., 2020) and VTAB-1k (Zhai et al., 2019)."""

import dataclasses
import json
import numbers
import os
import pathlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from keras_vit.checks import to_array
from keras_vit.evaluation.metrics import Result, class_numbers
from keras_vit.recipes.datasets import VTAB_GROUPS
from keras_vit.text import unknown


@dataclasses.dataclass(frozen=True, repr=False)
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


def real_accuracy(
    predictions: ArrayLike, real_labels: Sequence[Sequence[int]] | str | os.PathLike[str]
) -> RealAccuracy:
    """The `RealAccuracy`: the share of predictions that are among all labels that fit their image.

    Args:
        predictions: (images,) class numbers, or (images, classes) scores, in the order of the
            labels: for ImageNet, by file name.
        real_labels: a list of class numbers for each image, in a list or at the path of the
            authors' `real.json`: entry i is of `ILSVRC2012_val_{i + 1:08d}.JPEG`. Images with an
            empty list are left out.

    Raises:
        FileNotFoundError: there is no such file; the message says where the authors keep it.
        ValueError: another number of predictions than lists, or labels that are no class numbers.

    Source: README.md of google-research/reassessed-imagenet.
    """
    real, predictions = check_real(real_labels), to_array(predictions)
    if predictions.ndim == 2:
        if (largest := max(map(max, filter(None, real)))) >= predictions.shape[1]:
            raise ValueError(
                f"The ReaL labels must be below the {predictions.shape[1]} classes of the scores. "
                f"Received: label {largest}."
            )
        predictions = predictions.argmax(axis=1)
    predictions = class_numbers(predictions, what="predictions").tolist()
    if len(predictions) != len(real):
        raise ValueError(
            "ReaL needs a prediction for each image of its labels, in their order. Received: "
            f"{len(predictions)} predictions and labels of {len(real)} images."
        )
    examples = sum(map(bool, real))
    correct = sum(p in labels for p, labels in zip(predictions, real))
    return RealAccuracy(correct, examples, len(real) - examples)


def check_real(labels):
    """The labels of ReaL, or of the file at a path, as a list of lists of class numbers."""
    if isinstance(labels, (str, os.PathLike)):
        path = pathlib.Path(labels)
        if not path.is_file():
            raise FileNotFoundError(
                "The ReaL labels do not exist; real.json is in the repository "
                f"google-research/reassessed-imagenet on GitHub. Received: {path}."
            )
        labels = json.loads(path.read_text(encoding="utf-8"))
    wrong = [type(labels).__name__] if not isinstance(labels, (list, tuple)) else []
    for i, each in enumerate(labels if not wrong else ()):
        if not isinstance(each, (list, tuple)) or not all(map(_is_class, each)):
            wrong.append(f"{each!r} for image {i}")
    if wrong or not any(labels):
        raise ValueError(
            "The ReaL labels must be a list with one list of class numbers for each image, and "
            "labels for at least one image, such as [[65], [970, 795], []]. Received: "
            f"{wrong[0] if wrong else 'no labels'}."
        )
    return labels


def _is_class(label):
    return isinstance(label, (int, np.integer)) and not isinstance(label, bool) and label >= 0


@dataclasses.dataclass(frozen=True, repr=False)
class VTABScore(Result):
    """Accuracies of the tasks and their means.

    Attributes:
        tasks, missing: task -> accuracy, in the order of `VTAB_GROUPS`; tasks without one.
        groups: group -> mean accuracy of its tasks, without the groups that have none.
        mean: mean over all tasks, each counting alike: the VTAB score.
    """

    tasks: dict
    groups: dict
    mean: float
    missing: tuple


def vtab_mean(results: dict[str, float], allow_missing: bool = False) -> VTABScore:
    """The mean accuracy on VTAB as a `VTABScore`, for each group of tasks and for all 19.

    Args:
        results: task -> accuracy, 0 to 1; by names of `VTAB_GROUPS` or of the papers' tables
            ("Clevr-Count"), in any case, with or without "vtab/".
        allow_missing: whether to give means of the tasks that are there.

    Raises:
        ValueError: an unknown task or one given twice, an accuracy outside 0..1, or missing tasks.

    Source: "A Large-scale Study of Representation Learning with the Visual Task Adaptation
    Benchmark", section 2 and table 1; the score is the plain mean over the tasks.
    """
    names = {task: paper.lower() for tasks in VTAB_GROUPS.values() for task, paper in tasks.items()}
    task_of = {name: task for task, paper in names.items() for name in (task, paper)}
    accuracies = {}
    for name, accuracy in results.items():
        task = task_of.get(str(name).lower().removeprefix("vtab/"))
        if task is None:
            raise unknown("VTAB task", name, names)
        if task in accuracies:
            raise ValueError(f"Each VTAB task must be given once. Received: {task} twice.")
        if not isinstance(accuracy, numbers.Real) or not 0 <= accuracy <= 1:
            raise ValueError(f"Accuracies lie in 0..1. Received: {accuracy!r} for {name!r}.")
        accuracies[task] = float(accuracy)
    missing = tuple(task for task in names if task not in accuracies)
    if not accuracies or (missing and not allow_missing):
        raise ValueError(
            f"The VTAB score is the mean over {len(names)} tasks; allow_missing=True gives that "
            f"over some. Received: {len(accuracies)}; missing: {', '.join(missing)}."
        )
    accuracies = {task: accuracies[task] for task in names if task in accuracies}
    groups = {}
    for group, tasks in VTAB_GROUPS.items():
        if present := [accuracies[task] for task in tasks if task in accuracies]:
            groups[group] = float(np.mean(present))
    return VTABScore(accuracies, groups, float(np.mean([*accuracies.values()])), missing)
