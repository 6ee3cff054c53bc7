"""The batches of a run: from any one on, with labels that fit."""

from collections.abc import Mapping

import keras

from keras_vit.class_names import check_numbers
from keras_vit.heads import map_heads


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

    That is known for the losses that `check_numbers` names.
    """
    labels, loss = keras.utils.unpack_x_y_sample_weight(batch)[1], model.loss
    if not isinstance(loss, Mapping):
        check_numbers(loss, labels, getattr(model, "output_shape", None))
    elif isinstance(outputs := getattr(model, "output", None), Mapping):
        if not isinstance(labels, Mapping) or not set(loss) <= set(labels):
            received = list(labels) if isinstance(labels, Mapping) else type(labels).__name__
            raise ValueError(
                f"Labels must be a dict {{head: labels}} of {', '.join(map(repr, loss))}. "
                f"Received: {received}."
            )
        map_heads(check_numbers, loss, labels, {head: x.shape for head, x in outputs.items()})
