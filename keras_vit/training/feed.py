"""The batches of a run: from any one on, with labels that fit."""

from collections.abc import Mapping

import keras

from keras_vit import supervision


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


def for_keras(batches, example, devices, again):
    """The batches of an epoch in the form that `model.fit` takes; `example` is such a batch.

    TensorFlow on several devices reads a batch to see its shape, and then begins `again()`.
    """
    if keras.backend.backend() != "tensorflow":
        return (batch for batch in batches)  # Keras takes generators, and no other iterators
    from keras_vit.distribution.tensorflow import dataset_of

    return dataset_of(again if devices.replicas > 1 else lambda: batches, example, devices)


def check_labels(model, batch):
    """Checks that a model has a class for each label, of each head, and that weights are weights.

    That is known for the losses that `check_numbers` names.
    """
    (_, labels, weights), loss = keras.utils.unpack_x_y_sample_weight(batch), model.loss
    has_heads = isinstance(loss, Mapping) and isinstance(getattr(model, "output", None), Mapping)
    if has_heads and not (isinstance(labels, Mapping) and set(loss) <= set(labels)):
        received = list(labels) if isinstance(labels, Mapping) else type(labels).__name__
        raise ValueError(
            f"Labels must be a dict {{head: labels}} of {', '.join(map(repr, loss))}. "
            f"Received: {received}."
        )
    supervision.check_labels(model, labels)
    supervision.check_weights(model, weights)
