"""Images in; names and probabilities, or values, out."""

import functools
import json
import os
import typing
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import keras
import numpy as np

from keras_vit.checks import output_names, positive_int
from keras_vit.data.preprocess import input_of, list_images, prepared
from keras_vit.ends import known_of_end
from keras_vit.heads import check_one_head, errors_of, for_each, heads_of, split
from keras_vit.models.trainer import one_look
from keras_vit.outputs import reading_of
from keras_vit.text import follow, visible
from keras_vit.weights.fetch import DownloadError, fetch
from keras_vit.workarounds import one_at_a_time

IMAGENET_1K = "imagenet-1k"
IMAGENET_FILE = "KERAS_VIT_IMAGENET_CLASSES"  # environment variable: a local file of the names

# The file behind keras.applications' decode_predictions.
_URL = "https://storage.googleapis.com/download.tensorflow.org/data/imagenet_class_index.json"
_SECONDS = 20  # without an answer; a firewall that drops packets never says no


class Prediction(typing.NamedTuple):
    """One class that an image may show.

    `label` is its name, or its number as text where the names are unknown, and `index` its place
    among the logits; `probability` is from 0 to 1.
    """

    label: str
    index: int
    probability: float

    def __repr__(self):
        return f"Prediction({self.label!r}, index={self.index}, probability={self.probability:.4f})"

    def __str__(self):
        return f"{visible(self.label)} {self.probability:.1%}"


class Value(typing.NamedTuple):
    """One number that a regression gives for an image; `label` and `index` as of a `Prediction`."""

    label: str
    index: int
    value: float

    def __repr__(self):
        return f"Value({self.label!r}, index={self.index}, value={self.value:.6g})"

    def __str__(self):
        return f"{visible(self.label)} {self.value:.6g}"


def predict(
    model: keras.Model,
    images: Any,
    top: int = 5,
    class_names: Sequence[str] | dict[str, Sequence[str]] | None = None,
    batch_size: int = 32,
    threshold: float | None = None,
    reading: str | dict[str, str] | None = None,
    from_logits: bool | Literal["auto"] = "auto",
    skip_corrupt: bool = False,
    progress: bool | None = False,
) -> Any:
    """Classifies images, preprocessed as the weights of the model ask for.

    The model decides what its outputs mean (`keras_vit.outputs.reading_of`). Of several heads each
    is read by its own loss, or by `model.reading` and `model.class_names`, which are then dicts
    {head: value}, as `top`, `class_names`, `threshold`, `reading` and `from_logits` may be.

    Args:
        model: gives outputs of shape (batch, classes), one or several with names (heads).
        images: whatever `preprocess` takes with a model.
        top: how many classes to tell for each image; all of them if there are fewer.
        class_names: names in the order of the outputs; by default `model.class_names`, those of
            `model.label_set`, or numbers. A single sigmoid may have two, of its classes 0 and 1.
        batch_size: images per call of the model; one of them is held at its full size at a time.
        threshold: tells only classes of at least this probability, which may be none.
        reading: `"softmax"`, `"sigmoid"` or `"values"`, instead of what the model says.
        from_logits: whether the outputs are logits; `"auto"` asks model and loss.
        skip_corrupt: whether files that do not exist or cannot be read are left out, with a
            warning that names each.
        progress: whether to show a progress bar; None shows it on a terminal or in a notebook.

    Returns:
        For each image, the list of its most probable classes as `Prediction`, best first; or of
        all values as `Value`, in order; `None` for an image that was left out. Of a model with
        several heads: {head: such a list}.

    Raises:
        FileNotFoundError: names the files that do not exist.
        ValueError: images that cannot be read, a model whose outputs are no numbers for each image
            or cannot be read without being told how, or another number of names than classes.
    """
    batch_size, heads = positive_int(batch_size, "batch_size"), heads_of(model)
    options = {"top": top, "class_names": class_names, "threshold": threshold}
    options |= {"reading": reading, "from_logits": from_logits}
    tellers = {}
    for head, its_options in for_each(heads or (None,), **options).items():
        with errors_of(head):
            tellers[head] = Teller(heads.get(head, model), **its_options)
    wanted = input_of(model)
    items = list_images(images, wanted[1], must_exist=not skip_corrupt)
    predictions = {head: [None] * len(items) for head in tellers}
    for start in follow(range(0, len(items), batch_size), model.name, progress=progress):
        rows = range(start, min(start + batch_size, len(items)))
        batch, rows = prepared(items, wanted, rows, skip_corrupt)
        if not rows:
            continue
        with one_at_a_time(model), one_look({(id(model), "predict")}):  # prepared above
            parts = split(model.predict_on_batch(batch), heads, model.name)
        for head, outputs in parts.items():
            with errors_of(head):
                told = tellers[head].tell(keras.ops.convert_to_numpy(outputs))
            for row, best in zip(rows, told):
                predictions[head][row] = best
    return predictions if heads else predictions[None]


class Teller:
    """What `predict` makes of the outputs of a model with one output, for its arguments."""

    def __init__(
        self, model, top=5, class_names=None, threshold=None, reading=None, from_logits="auto"
    ):
        reading, self.names = reading_and_names(model, class_names, reading, from_logits)
        if threshold is not None and (reading.name == "values" or not 0 <= threshold <= 1):
            raise ValueError(
                "threshold must be a probability in [0, 1], and the outputs those of classes. "
                f"Received: threshold={threshold!r}, for outputs read as {reading.name!r}."
            )
        self.reading, self.top, self.threshold = reading, positive_int(top, "top"), threshold or 0

    def tell(self, outputs):
        """A list of `Prediction` or of `Value` for each row of outputs."""
        self.reading, names = self.reading.decided(outputs), self.names  # by the first of them
        scores = self.reading.scores(outputs, len(names))
        if self.reading.name == "values":
            return [[Value(names[i], i, float(x)) for i, x in enumerate(row)] for row in scores]
        best = np.argsort(-scores, axis=1, kind="stable")[:, : self.top]
        return [
            [Prediction(names[i], int(i), float(row[i])) for i in order if row[i] >= self.threshold]
            for row, order in zip(scores, best)
        ]


def reading_and_names(model, class_names=None, reading=None, from_logits="auto"):
    """The `Reading` of a model and the names of its outputs, for arguments as of `predict`.

    The names are those given, the model's, those of its label set, or numbers. Those of ImageNet
    are read from the file that the environment variable KERAS_VIT_IMAGENET_CLASSES names, or else
    downloaded once; if that fails, a warning says so and the names are numbers.
    """
    check_one_head(model, "Reading its outputs at once")
    shape = getattr(model, "output_shape", None)
    if getattr(model, "num_classes", None) == 0 or not (
        isinstance(shape, tuple) and len(shape) == 2 and shape[1] is not None
    ):
        advice = "build it with num_classes, and with a pool other than None"
        if shape is None:  # a subclass
            advice = "make a graph of it, keras.Model(images, model(images)) of a keras.Input"
        raise ValueError(
            f"The model must give outputs of shape (batch, classes): {advice}. Received: output "
            f"shape {shape}, num_classes={getattr(model, 'num_classes', None)}"
        )
    reading = reading_of(model, reading, from_logits)
    counts = reading.counts(shape[1])  # of names that fit, the usual first
    names = known_of_end(model, "class_names") if class_names is None else class_names
    if names is None and known_of_end(model, "label_set") == IMAGENET_1K:
        names = imagenet_class_names(os.environ.get(IMAGENET_FILE))
    if names is None:  # the one output of yes or no is that of class 1
        names = range(counts[0]) if len(counts) == 1 else ("1",)
    return reading, output_names(names, counts)


@functools.cache
def imagenet_class_names(path=None):
    """The English names of the ImageNet-1k classes in the order of the logits, a tuple of text.

    They are read from a JSON file `{"0": ["n01440764", "tench"], ...}`, by default Keras's. If its
    download fails, a warning says so, the result is None, and it is not tried again.
    """
    try:
        path = path or fetch(_URL, timeout=_SECONDS, retries=0)
        with open(path, encoding="utf-8") as file:
            index = json.load(file)
        return tuple(index[str(i)][1].replace("_", " ") for i in range(len(index)))
    except DownloadError as error:
        warnings.warn(
            "The names of the ImageNet classes cannot be downloaded, so predictions show numbers. "
            f"Pass class_names=..., or set the environment variable {IMAGENET_FILE} to a copy of "
            f"{_URL}. Received: {error}",
            stacklevel=2,
        )
        return None
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"The class names file does not exist. Received: {IMAGENET_FILE}={path}"
        ) from error
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(
            'The class names file must be JSON such as {"0": ["n01440764", "tench"], ...}. '
            f"Received: {path} ({type(error).__name__}: {error})"
        ) from error
