"""Images in, names and probabilities out."""

import typing

import keras
import numpy as np

from keras_vit.checks import positive_int
from keras_vit.data.class_names import resolve_class_names
from keras_vit.data.images import list_images
from keras_vit.data.preprocess import input_of, preprocess


class Prediction(typing.NamedTuple):
    """One class that an image may show.

    Attributes:
        label: its name, or its number as text where the names are unknown.
        index: its place among the logits.
        probability: from 0 to 1.
    """

    label: str
    index: int
    probability: float

    def __repr__(self):
        return f"Prediction({self.label!r}, index={self.index}, probability={self.probability:.4f})"

    def __str__(self):
        return f"{self.label} {self.probability:.1%}"


def predict(model, images, top=5, class_names=None, batch_size=32):
    """Classifies images, preprocessed as the weights of the model ask for.

    ```python
    for prediction in keras_vit.data.predict(model, "cat.jpg")[0]:
        print(prediction)
    ```

    Args:
        model: gives logits of shape (batch, classes); the probabilities are their softmax.
        images: whatever `preprocess` takes with a model.
        top: how many classes to tell for each image; all of them if there are fewer.
        class_names: sequence of names in the order of the logits; by default
            `model.class_names`, the names of `model.label_set`, or numbers.
        batch_size: images per call of the model.

    Returns:
        For each image, the list of its most probable classes as `Prediction`, best first.

    Raises:
        FileNotFoundError: names the files that do not exist.
        ValueError: images that cannot be read; a model without classes or with logits for each
            token; another number of names than classes; `top` or `batch_size` below 1.
    """
    top, batch_size = positive_int(top, "top"), positive_int(batch_size, "batch_size")
    num_classes = _num_classes(model)
    names = resolve_class_names(model, num_classes, class_names)
    items = list_images(images, input_of(model)[1])
    predictions = []
    for start in range(0, len(items), batch_size):
        batch = preprocess(items[start : start + batch_size], model)
        logits = keras.ops.convert_to_numpy(model.predict_on_batch(batch))
        predictions += [_best(row, names, top) for row in _softmax(logits)]
    return predictions


def _num_classes(model):
    """The number of classes that the model tells apart, or a ValueError."""
    shape = getattr(model, "output_shape", None)
    if getattr(model, "num_classes", None) == 0:
        raise ValueError(
            "The model has no head and gives representations, not classes. Received: "
            f"num_classes=0, output shape {shape}; build it with num_classes"
        )
    if not isinstance(shape, tuple) or len(shape) != 2 or shape[1] is None:
        raise ValueError(
            "The model must give logits of shape (batch, classes), with a pool other than None. "
            f"Received: {type(model).__name__} with output shape {shape}"
        )
    return shape[1]


def _softmax(logits):
    logits = logits.astype(np.float64)
    if not np.isfinite(logits).all():
        raise ValueError(
            "The model's logits must be finite. Received: NaN or infinity; are its weights "
            "damaged, or its dtype too narrow?"
        )
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def _best(probabilities, names, top):
    order = np.argsort(-probabilities, kind="stable")[:top]
    return [Prediction(names[i], int(i), float(probabilities[i])) for i in order]
