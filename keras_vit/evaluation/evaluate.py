"""A model against labelled images, in one pass."""

import dataclasses
import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import keras
import numpy as np

from keras_vit.checks import output_names, positive_int, require
from keras_vit.class_names import class_map
from keras_vit.ends import known_of_end
from keras_vit.evaluation import metrics, reports
from keras_vit.evaluation.benchmarks import check_real, real_accuracy
from keras_vit.evaluation.confusion import confusion_matrix
from keras_vit.evaluation.features import labelled_outputs
from keras_vit.heads import errors_of, for_each, heads_of, of_head
from keras_vit.outputs import reading_of
from keras_vit.text import visible

_FEW_CLASSES = 2048  # the confusion matrix then takes 32 MiB


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class HeadReports(metrics.Result, Mapping):
    """How well each head does: name -> its `Report`, `MultiLabelReport` or `RegressionReport`.

    Attributes:
        model: its name.
        heads: the dict of these.
    """

    model: str
    heads: dict

    def __getitem__(self, head):
        return self.heads[head]

    def __iter__(self):
        return iter(self.heads)

    def __len__(self):
        return len(self.heads)

    @property
    def figures(self):
        """The figures of the heads, such as "species_accuracy"; the first one decides."""
        figures = {head: report.figures.items() for head, report in self.items()}
        return {f"{head}_{name}": x for head, pairs in figures.items() for name, x in pairs}

    @property
    def examples(self):
        """Number of images; the report of a head counts those with a label of it."""
        return max(report.examples for report in self.values())

    @property
    def skipped(self):
        """Number of images that the data could not read and left out."""
        return max(report.skipped for report in self.values())

    def __str__(self):
        return "\n\n".join(f"Head {visible(head)}: {each}" for head, each in self.items())


def evaluate(
    model: keras.Model,
    data: Any,
    top: int | Sequence[int] | dict[str, Any] | None = None,
    confusion: bool | dict[str, bool] | None = None,
    class_names: Sequence[str] | dict[str, Sequence[str]] | None = None,
    batch_size: int = 64,
    steps: int | None = None,
    real: Any = None,
    from_logits: bool | Literal["auto"] = "auto",
    progress: bool | None = None,
    reading: str | dict[str, str] | None = None,
    threshold: float | dict[str, float] = 0.5,
) -> reports.Report | reports.MultiLabelReport | reports.RegressionReport | HeadReports:
    """Measures a model on labelled images.

    The images are read once, batch by batch. Files that do not exist or cannot be read are left
    out: a warning names each, and the report counts them.

    The model decides what its outputs mean (`keras_vit.outputs.reading_of`). Exclusive classes
    make a `Report`; sigmoids, where labels have a column of 0 or 1 for each class, a
    `MultiLabelReport`; values, a `RegressionReport`. A single sigmoid has the classes 0 and 1.
    A model with several heads is run once, keeps its outputs in memory and gives `HeadReports`.
    `top`, `confusion`, `class_names`, `real`, `from_logits`, `reading` and `threshold` may then be
    dicts {head: value}.

    Args:
        model: any Keras model that gives (batch, classes) logits or probabilities, or values; or
            several such outputs with names (heads).
        data: (images, labels), a dataset of `keras_vit.data` (its test images) or a pipeline of
            it, a tf.data dataset, a PyDataset, or any iterable of batches (images, labels).
            Labels are class numbers or one-hot, or a dict {head: labels}. A third part of a batch
            holds weights: 0 for rows that are no examples, or, in a dict {head: weights}, lack the
            label; else 1. Paths, datasets of `keras_vit.data`, and uint8 images for a model with a
            `preprocessing` are preprocessed; others go in as they are.
        top: a number k or several: images whose class is among the k best are counted. By default
            1, and 5 for more than five classes.
        confusion: whether to make the confusion matrix; None makes it for up to 2,048 classes.
        class_names: in the order of the scores; by default the model's, the data's, or numbers.
            Where the data names its classes otherwise ordered, or some of them, names decide.
        batch_size: images per call; data in batches of its own keeps the size of the first.
        steps: number of batches to take at most; needed for data without end.
        real: the authors' `real.json` or its content, in the order of the images.
        from_logits: whether the model gives logits; `"auto"` asks the model and its loss, then
            the first batch: probabilities lie in [0, 1] and, under a softmax, sum to 1.
        progress: whether to show a progress bar; None shows it on a terminal or in a notebook.
        reading: `"softmax"`, `"sigmoid"` or `"values"`, instead of what the model says.
        threshold: probability from which a class of several counts as predicted.

    Raises:
        TypeError: not a Keras model, or data of an unknown type.
        ValueError: no images; labels or names that do not fit the outputs of the model; outputs
            that are not finite, or that nothing says how to read.
    """
    began, left_out, heads = time.perf_counter(), [], heads_of(model)
    options = {"top": top, "confusion": confusion, "class_names": class_names, "real": real}
    options |= {"from_logits": from_logits, "reading": reading, "threshold": threshold}
    options = for_each(heads or (None,), **options)
    for head, of_one in options.items():
        with errors_of(head):
            if of_one.get("top") is not None:
                of_one["top"] = [positive_int(k, "top") for k in np.ravel(of_one["top"]).tolist()]
            if of_one.get("real") is not None:
                of_one["real"] = check_real(of_one["real"])
    batches = labelled_outputs(model, data, batch_size, steps, progress, left_out)
    of_heads, batches = {}, list(batches) if heads else batches
    for head, of_one in options.items():
        pairs = ((x[head], labels[head]) for x, labels in batches if len(labels[head]))
        with errors_of(head):
            of_heads[head] = _report(heads.get(head, model), pairs, data, head, **of_one)
    skipped = len(getattr(data, "skipped", ())) + len(left_out)
    run = {"skipped": skipped, "seconds": time.perf_counter() - began}
    of_heads = {head: dataclasses.replace(report, **run) for head, report in of_heads.items()}
    return HeadReports(model.name, of_heads) if heads else of_heads[None]


def _report(
    model, batches, data, head, top=None, confusion=None, class_names=None, real=None,
    from_logits="auto", reading=None, threshold=0.5,
):  # fmt: skip
    """The report of batches (outputs, labels) of a model with one output."""
    first = next(batches, None)
    rule = "Some image must have a label of each head"
    require(first is not None, rule, received=f"none with a label of {head!r}")
    outputs, labels = metrics.check_scores(first[0], least=1), first[1]
    reading = reading_of(model, reading, from_logits, outputs.shape[1]).decided(outputs)
    of_data = of_head(getattr(data, "class_names", None), head)
    problem = of_head(getattr(data, "problem", None), head)
    known = known_of_end(model, "class_names") if class_names is None else class_names
    counts = reading.counts(outputs.shape[1])
    names = next((each for each in (known, of_data) if each is not None), range(counts[-1]))
    names = output_names(names, counts)
    numbers, is_answer = None, problem == "multi_label" and len(counts) > 1  # of a single sigmoid
    problem = "regression" if reading.name == "values" else problem
    if not is_answer:
        numbers = class_map(problem, known, of_data, counts)
    if numbers is None and of_data is not None:
        output_names(of_data, counts)  # or the data has other classes than the model
    has_columns = labels.ndim == 2 and min(labels.shape[1], outputs.shape[1]) > 1
    is_multi_label = has_columns and reading.name == "sigmoid" and problem != "single_label"
    batches = (
        (outputs, _renumbered(labels, numbers, counts[-1], problem))
        for outputs, labels in itertools.chain([first], batches)
    )
    run = {"model": model.name, "backend": keras.backend.backend()}
    exclusive = {"top": top, "confusion": confusion, "real": real}
    if is_multi_label or reading.name == "values":
        _refuse("classes of which one is right", **exclusive)
    if not is_multi_label:
        _refuse("several classes at once", threshold=None if threshold == 0.5 else threshold)
    if reading.name == "values":
        return reports.regression_report(batches, names, **run)
    if is_multi_label:
        return reports.multi_label_report(batches, reading, names, threshold, **run)
    return _of_exclusive_classes(batches, reading, names, **exclusive, **run)


def _renumbered(labels, numbers, num_classes, problem):
    """Labels of a batch in the numbers that the model gives to the classes, as of `class_map`."""
    if numbers is None:
        return labels
    has_columns = len(numbers) > 1 or problem in ("multi_label", "regression")
    if has_columns and labels.ndim == 2 and labels.shape[1] == len(numbers):
        columns = np.zeros((len(labels), num_classes), labels.dtype)
        columns[:, numbers] = labels
        return columns
    return numbers[metrics.class_numbers(labels, len(numbers))]


def _refuse(purpose, **options):
    """Raises a ValueError where an option was given that is for another report."""
    for name, value in options.items():
        if value is not None and value is not False:
            raise ValueError(
                f"{name} is for {purpose}. Received: {name}={value!r:.80}; leave it out."
            )


def _of_exclusive_classes(batches, reading, names, top, confusion, real, **run):
    """The `Report` of batches (outputs, labels), of which one class is right."""
    columns = []
    if len(names) == 1:  # a single sigmoid
        names = (f"not {names[0]}", names[0])
    num_classes = len(names)
    top = top or ([1, 5] if num_classes > 5 else [1])
    if max(top) >= num_classes:
        raise ValueError(
            f"Of {num_classes} classes, top must be fewer. Received: top={tuple(top)}."
        )
    for index, (outputs, labels) in enumerate(batches):
        scores = metrics.check_scores(outputs, f" in batch {index}", least=1)
        labels = metrics.class_numbers(labels, num_classes, f"labels of batch {index}")
        function = reading.name
        if scores.shape[1] == 1:  # sigmoid(z) is the softmax of (0, z)
            first = 1 - scores if reading.applied else np.zeros_like(scores)
            scores, function = np.concatenate([first, scores], axis=1), "softmax"
        numbers = metrics.confidences(scores, labels, not reading.applied, function)
        columns.append((labels, label_ranks(scores, labels), scores.argmax(axis=1), *numbers))
    labels, ranks, predictions, confidence, loss, brier = map(np.concatenate, zip(*columns))
    confusion = num_classes <= _FEW_CLASSES if confusion is None else confusion
    return reports.Report(
        **run,
        examples=len(labels),
        num_classes=num_classes,
        from_logits=not reading.applied,
        correct={k: int((ranks < k).sum()) for k in top},
        loss=float(loss.mean()),
        calibration=metrics.calibration_of(confidence, ranks == 0, loss, brier, bins=15),
        confusion=confusion_matrix(labels, predictions, num_classes, names) if confusion else None,
        real=None if real is None else real_accuracy(predictions, real),
    )


def label_ranks(scores, labels):
    """How many classes stand before the right one, (images,): 0 if it is the best.

    Of equal scores the lower class number stands first, as in `argmax`.
    """
    right = np.take_along_axis(scores, labels[:, None], axis=1)
    is_lower = np.arange(scores.shape[1]) < labels[:, None]
    return ((scores > right) | ((scores == right) & is_lower)).sum(axis=1)
