"""What a model knows of an image before its head: frozen features."""

import itertools

import keras
import numpy as np

from keras_vit.evaluation.outputs import class_numbers, labelled_outputs

_HEADS = (keras.layers.Dense, keras.layers.EinsumDense)
_AFTER_THE_HEAD = (keras.layers.Activation, keras.layers.Softmax, keras.layers.Dropout)


def features(model, layer=None):
    """The model that gives features instead of classes; it shares the layers and their weights.

    Args:
        model: a `VisionTransformer` or `BiT`, whose features are what its head reads (after
            `pre_logits`, where there is one) or, without a head, what it gives; or any other
            Functional or Sequential Keras model: what its last Dense layer reads, if nothing but
            an activation follows that layer, and its own output if it ends with neither.
        layer: name of the layer whose output to take instead.

    Returns:
        A Keras model with output (batch, features).

    Raises:
        TypeError: not a Keras model, or one without a graph, as subclasses of `keras.Model` are.
        ValueError: no such layer, features that are no vectors, or a head that is not known.
    """
    if not isinstance(model, keras.Model):
        raise TypeError(f"model must be a Keras model. Received: {type(model).__name__}")
    if getattr(model, "inputs", None) is None:
        raise TypeError(
            "Features are taken from the graph of a Functional or Sequential model that is built. "
            f"Received: {type(model).__name__} {model.name!r} without one; compute the features "
            "yourself and pass (features, labels)"
        )
    output = _as_vectors(_representation(model, layer), model)
    # A single input without its list, as arrays come; a Sequential model has only the list.
    inputs = model.inputs[0] if len(model.inputs) == 1 else model.input
    backbone = keras.Model(inputs, output, name=f"{model.name}_features")
    for fact in ("preprocessing", "image_size", "channels"):  # what `preprocess` asks for
        if hasattr(model, fact):
            setattr(backbone, fact, getattr(model, fact))
    return backbone


def _representation(model, layer):
    if layer is not None:
        names = [each.name for each in model.layers]
        if layer not in names:
            raise ValueError(
                f"{model.name} has no layer {layer!r}. Received: layer={layer!r}; its last layers "
                f"are {names[-8:]}"
            )
        return model.get_layer(layer).output
    if getattr(model, "num_classes", None) is not None and hasattr(model, "preprocessing"):
        return model.get_layer("head").input if model.num_classes else model.outputs[0]
    ending = list(itertools.takewhile(_follows_a_head, reversed(model.layers)))
    last = model.layers[-1 - len(ending)]
    if isinstance(last, _HEADS):
        return last.input
    if ending:  # these may be class probabilities
        raise ValueError(
            f"{model.name} ends with no Dense layer, so where its head begins is unknown; say from "
            f"which layer to take the features: layer=... Received: {last.name!r}, then "
            f"{[layer.name for layer in reversed(ending)]}"
        )
    return model.outputs[0]


def _follows_a_head(layer):
    return isinstance(layer, _AFTER_THE_HEAD)


def _as_vectors(tensor, model):
    """(batch, features) of a tensor whose other axes, if any, have length 1."""
    shape = tuple(getattr(tensor, "shape", ()))
    if len(shape) == 2:
        return tensor
    if len(shape) > 2 and all(side == 1 for side in shape[1:-1]):
        return keras.layers.Reshape((shape[-1],))(tensor)
    raise ValueError(
        "Features must be one vector per image, (batch, features). Received: shape "
        f"{shape} in {model.name!r}; name a layer after the pooling with layer=..., or build the "
        "model with a pool"
    )


def extract_features(model, data, layer=None, batch_size=64, steps=None, progress=None):
    """The features of all images, in the order of the data.

    Images are read and forgotten batch by batch; only features and labels are kept.

    Args:
        model, layer: as in `features`.
        data, batch_size, steps, progress: as in `evaluate`. Of a dataset of `keras_vit.data.load`
            these are the test images; pass `(d.train_images, d.train_labels)` for the others.

    Returns:
        (features, labels): an array (images, features) of the model's output dtype, and int64
        class numbers (images,).

    Raises:
        ValueError: no images, labels that are no class numbers, features that are not finite.
    """
    backbone = features(model, layer)
    found, labels = [], []
    for index, (vectors, numbers) in enumerate(
        labelled_outputs(backbone, data, batch_size, steps, progress)
    ):
        found.append(vectors)
        labels.append(class_numbers(numbers, what=f"labels of batch {index}"))
    found = np.concatenate(found)
    return check_features(found, np.concatenate(labels), f"features of {backbone.name}")


def check_features(vectors, labels, what="features", num_classes=None):
    """Features as a finite float array (images, features), and their class numbers.

    Raises:
        ValueError: another rank, no rows, not finite, or not one label for each row.
    """
    vectors, labels = np.asarray(vectors), class_numbers(labels, num_classes, f"labels of {what}")
    if vectors.ndim != 2 or vectors.size == 0 or len(vectors) != len(labels):
        raise ValueError(
            f"{what} must have shape (images, features), with one label for each row and at least "
            f"one row. Received: shape {vectors.shape} and {len(labels)} labels"
        )
    if vectors.dtype not in (np.float32, np.float64):
        vectors = vectors.astype(np.float32)
    if not np.isfinite(vectors).all():
        row = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
        raise ValueError(f"{what} must be finite. Received: NaN or infinity, first in row {row}")
    return vectors, labels


def check_pair(train_features, train_labels, test_features, test_labels):
    """Both sets of features, checked also against each other."""
    train, train_labels = check_features(train_features, train_labels, "train_features")
    test, test_labels = check_features(test_features, test_labels, "test_features")
    if train.shape[1] != test.shape[1]:
        raise ValueError(
            "Train and test features must have the same length. Received: "
            f"{train.shape[1]} and {test.shape[1]}"
        )
    return train, train_labels, test, test_labels
