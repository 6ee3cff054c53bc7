"""A classifier against labelled images, in one pass and bounded memory."""

import re
import time

import keras

from keras_vit.checks import positive_int
from keras_vit.data.class_names import resolve_class_names
from keras_vit.evaluation.calibration import CalibrationSums
from keras_vit.evaluation.confusion import LARGEST, ConfusionCounts
from keras_vit.evaluation.predictor import Predictor
from keras_vit.evaluation.progress import with_progress
from keras_vit.evaluation.real import RealCounts
from keras_vit.evaluation.report import Report
from keras_vit.evaluation.scores import are_logits, check_scores, negative_log_likelihood, ranks
from keras_vit.evaluation.stream import class_numbers, open_stream, split_batch

_TOP = re.compile(r"top([1-9]\d*)")
_OTHERS = ("loss", "calibration", "confusion")


def evaluate(
    model,
    data,
    metrics=None,
    class_names=None,
    batch_size=64,
    steps=None,
    real=None,
    from_logits="auto",
    bins=15,
    max_confusion_classes=LARGEST,
    progress=None,
):
    """Measures a classifier on labelled images.

    ```python
    report = keras_vit.evaluation.evaluate(model, (images, labels))
    print(report.top1, report.calibration.expected_error)
    report.save("report.json")
    ```

    The images are read once, batch by batch, and only counts and sums are kept. The model is
    called with batches of one size, so it is compiled once; what fills up the last batch is not
    counted.

    Args:
        model: any Keras model that gives (batch, classes) logits or probabilities.
        data: (images, labels), a dataset of `keras_vit.data.load` (its test images) or a pipeline
            of it, a tf.data dataset, a PyDataset, or any iterable of batches (images, labels).
            Labels are class numbers or one-hot; a third part of a batch holds weights, 0 for rows
            that are no examples and 1 for the others. Paths, datasets of `data.load`, and uint8
            images for a model with a `preprocessing`, are preprocessed as its weights ask for;
            other images go into the model as they are.
        metrics: of `"top1"`, `"top5"` (any number), `"loss"`, `"calibration"` and `"confusion"`;
            by default all that make sense: top-5 for more than five classes, the confusion
            matrix for no more than `max_confusion_classes`.
        class_names: in the order of the scores; by default the model's, the data's, or numbers.
        batch_size: images per call; data in batches of its own keeps the size of the first.
        steps: number of batches to take, for data without end.
        real: the authors' `real.json` or its content, for the ReaL accuracy; the images must come
            in its order.
        from_logits: whether the model gives logits; `"auto"` takes its outputs for probabilities
            where every row of the first batch lies in [0, 1] and sums to 1.
        bins: of the calibration.
        max_confusion_classes: the confusion matrix takes 8 bytes times the square of the classes.
        progress: whether to show a progress bar; None shows it on a terminal or in a notebook.

    Returns:
        A `Report`.

    Raises:
        TypeError: not a Keras model, or data of an unknown kind.
        ValueError: unknown metrics; no images; labels or names that do not fit the classes of the
            model; outputs that are not finite or not one score per class.
    """
    if from_logits not in ("auto", True, False):
        raise ValueError(
            f"from_logits must be 'auto', True or False. Received: from_logits={from_logits!r}"
        )
    positive_int(max_confusion_classes, "max_confusion_classes")
    _check_metrics(metrics)
    began = time.perf_counter()
    stream = open_stream(data, batch_size, steps)
    arrays = isinstance(data, tuple) or stream.stored
    size = min(batch_size, _examples(data)) if arrays else None
    predictor = Predictor(model, size, stream.stored)
    sums = None
    for index, batch in enumerate(with_progress(stream.batches, stream.total, progress)):
        images, labels = split_batch(batch, index)
        if not len(labels):
            continue
        scores = check_scores(predictor(images), index)
        if sums is None:
            num_classes = scores.shape[1]
            names = _names(model, num_classes, class_names, stream.class_names)
            logits = are_logits(scores) if from_logits == "auto" else from_logits
            chosen = _chosen(metrics, num_classes, max_confusion_classes)
            sums = _Sums(chosen, num_classes, logits, bins, real)
        sums.add(scores, class_numbers(labels, num_classes, f"labels of batch {index}"))
    if sums is None:
        raise ValueError("The data must hold at least one image. Received: none")
    skipped = len(getattr(data, "skipped", ()))
    return sums.report(model, names, skipped, time.perf_counter() - began)


class _Sums:
    """Everything that is added up on the way."""

    def __init__(self, metrics, num_classes, from_logits, bins, real):
        self.num_classes, self.from_logits, self.examples = num_classes, from_logits, 0
        self.correct = {int(m[3:]): 0 for m in metrics if m.startswith("top")}
        self.loss = 0.0 if "loss" in metrics else None
        self.calibration = CalibrationSums(bins) if "calibration" in metrics else None
        self.confusion = ConfusionCounts(num_classes) if "confusion" in metrics else None
        self.real = None if real is None else RealCounts(real, num_classes)

    def add(self, scores, labels):
        self.examples += len(labels)
        if self.correct:
            before = ranks(scores, labels)
            for k in self.correct:
                self.correct[k] += int((before < k).sum())
        if self.loss is not None:
            self.loss += float(negative_log_likelihood(scores, labels, self.from_logits).sum())
        if self.calibration is not None:
            self.calibration.add(scores, labels, self.from_logits)
        if self.confusion is not None:
            self.confusion.add(scores.argmax(axis=1), labels)
        if self.real is not None:
            self.real.add(scores.argmax(axis=1))

    def report(self, model, names, skipped, seconds):
        return Report(
            model=model.name,
            backend=keras.backend.backend(),
            examples=self.examples,
            num_classes=self.num_classes,
            from_logits=bool(self.from_logits),
            correct=self.correct,
            loss=None if self.loss is None else self.loss / self.examples,
            calibration=self.calibration and self.calibration.result(),
            confusion=self.confusion and self.confusion.result(names),
            real=self.real and self.real.result(),
            skipped=skipped,
            seconds=seconds,
        )


def _examples(data):
    return max(1, len(data[1] if isinstance(data, tuple) else data.test_labels))


def _check_metrics(metrics):
    if isinstance(metrics, str):
        raise ValueError(f"metrics must be a sequence of names. Received: metrics={metrics!r}")
    for name in metrics or ():
        if name not in _OTHERS and not (isinstance(name, str) and _TOP.fullmatch(name)):
            raise ValueError(
                f"Unknown metric. Received: {name!r}; expected 'top1', 'top5' or another number, "
                f"or one of {_OTHERS}"
            )


def _chosen(metrics, num_classes, max_confusion_classes):
    """The metrics to compute for so many classes."""
    if metrics is None:
        few = num_classes <= max_confusion_classes
        return ["top1", *["top5"] * (num_classes > 5), "loss", "calibration", *["confusion"] * few]
    for name in metrics:
        if name.startswith("top") and int(name[3:]) >= num_classes:
            raise ValueError(
                f"Of {num_classes} classes, one is always among the best {name[3:]}. "
                f"Received: metric {name!r}"
            )
    if "confusion" in metrics and num_classes > max_confusion_classes:
        raise ValueError(
            f"The confusion matrix of {num_classes} classes takes "
            f"{8 * num_classes**2 / 2**20:.0f} MiB. Received: "
            f"max_confusion_classes={max_confusion_classes}; raise it to allow that"
        )
    return list(metrics)


def _names(model, num_classes, given, of_data):
    """Names for the classes, without asking the network for those of a label set."""
    of_model = getattr(model, "class_names", None)
    if of_data is not None and len(of_data) != num_classes:
        raise ValueError(
            "The model and the data must have the same classes. Received: a model of "
            f"{num_classes} classes and data of {len(of_data)}"
        )
    for names in (given, of_model, of_data):
        if names is not None:
            return resolve_class_names(None, num_classes, names)
    return resolve_class_names(None, num_classes)
