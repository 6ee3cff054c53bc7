"""An evaluation on several devices: which batches each one reads, and the metrics of all devices.

The metrics of Keras keep sums, which are added up over the devices.
"""

import itertools

import keras
import numpy as np

from keras_vit.distribution import feeding
from keras_vit.distribution.devices import to_numpy


def evaluation_shards(data, index, count, batch_size=None):
    """One shard of every batch of an evaluation; the last shard may be empty."""
    if hasattr(data, "shard") and data.batch_size % count == 0:
        return data.shard(index, count)
    return (feeding.shard(batch, index, count) for batch in evaluation_batches(data, batch_size))


def evaluation_batches(data, batch_size=None):
    """The batches of an evaluation on several devices; `batch_size` is for arrays."""
    if isinstance(data, (tuple, list)):
        size = batch_size or 32  # as Keras has it
        for start in range(0, feeding.length(data), size):
            yield feeding.rows(tuple(data), start, start + size)
    elif hasattr(data, "from_step"):
        yield from data
    elif isinstance(data, keras.utils.PyDataset):
        yield from (data[i] for i in range(len(data)))
    else:
        raise TypeError(
            "Several devices evaluate a keras_vit.data pipeline, a keras.utils.PyDataset or "
            f"arrays. Received: {type(data).__name__}."
        )


def divisible(batches, replicas):
    """The same rows in batches that the replicas divide, and a last batch of what is left.

    The remainder of a batch becomes the beginning of the next one.
    """
    left = None
    for batch in map(tuple, batches):
        if left is not None:
            batch = keras.tree.map_structure(lambda *parts: np.concatenate(parts), left, batch)
        size = feeding.length(batch)
        even = size - size % replicas
        if even:
            yield feeding.rows(batch, 0, even)
        left = feeding.rows(batch, even, size) if even < size else None
    if left is not None:
        yield left


def metric_sums(model, batches, **options):
    """The sums of the metrics over the batches of an iterator; [] where it has none."""
    first = next(batches, None)
    if first is None:
        return []
    # Keras takes a generator, and no other iterator.
    model.evaluate((batch for batch in itertools.chain([first], batches)), **options)
    return [to_numpy(variable) for variable in model.metrics_variables]


def metrics_of(model, sums):
    """The metrics as a dict, from the `metric_sums` of all shards, which the model takes over."""
    for variable, *its_sums in zip(model.metrics_variables, *filter(None, sums)):
        variable.assign(sum(its_sums))
    return {name: float(value) for name, value in model.get_metrics_result().items()}
