"""The batches of a run: from any one on, with labels that fit."""

from collections.abc import Mapping

import keras

from keras_vit.heads import map_heads
from keras_vit.training.losses import ClassificationLoss


def batches(model, data, start, stop):
    """The batches from `start` to `stop`, also of data that end with each epoch."""
    batch = start
    while batch < stop:
        before = batch
        for each in data.from_step(batch):
            each = tuple(each) if isinstance(each, list) else each
            check_labels(model, each)
            yield each
            batch += 1
            if batch == stop:
                return
        if batch == before:
            raise ValueError(
                f"The data gave no batch from batch {batch} on, of a run that goes to {stop}; "
                "`from_step(step)` must give those from there to the end of the epoch, or on."
            )


def check_labels(model, batch):
    """Checks that a model has a class for each label, of each head.

    That is known for losses of `keras_vit.training`; what labels mean to others is theirs to know.
    """
    labels, loss = keras.utils.unpack_x_y_sample_weight(batch)[1], model.loss
    if not isinstance(loss, Mapping):
        if isinstance(loss, ClassificationLoss):
            _check_labels(loss, labels, model.output_shape)
    elif isinstance(outputs := getattr(model, "output", None), Mapping):
        if not isinstance(labels, Mapping) or not set(loss) <= set(labels):
            received = list(labels) if isinstance(labels, Mapping) else type(labels).__name__
            raise ValueError(
                f"Labels must be a dict {{head: labels}} of {', '.join(map(repr, loss))}. "
                f"Received: {received}."
            )
        map_heads(_check_labels, loss, labels, {head: x.shape for head, x in outputs.items()})


def _check_labels(loss, labels, output_shape):
    if not isinstance(loss, ClassificationLoss):
        return
    labels = keras.ops.convert_to_numpy(labels)
    classes, wrong = max(output_shape[-1], 2), None  # one logit tells two classes
    if labels.ndim == len(output_shape) and labels.shape[-1] != 1:
        if labels.shape[-1] != classes:
            wrong = f"{labels.shape[-1]} classes"
    elif (outside := labels[(labels < 0) | (labels >= classes) | (labels % 1 != 0)]).size:
        wrong = repr(outside.flat[0])
    if wrong:
        raise ValueError(
            f"Labels must be whole numbers from 0 to {classes - 1}, the classes of the model, or "
            f"one value for each class. Received: {wrong}; give the model the data's num_classes."
        )
