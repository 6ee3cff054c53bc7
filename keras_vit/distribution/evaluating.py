"""The batches of an evaluation on several devices, in which every image counts once."""

import itertools

import keras
import numpy as np

from keras_vit.distribution.processes import to_numpy


def batches_of(data, batch_size=None):
    """The batches of an evaluation on several devices; `batch_size` is for arrays."""
    if isinstance(data, (tuple, list)):
        size = batch_size or 32  # as Keras has it
        for start in range(0, rows_of(data), size):
            yield tuple(_rows(data, start, start + size))
    elif hasattr(data, "from_step"):
        yield from data
    elif isinstance(data, keras.utils.PyDataset):
        yield from (data[i] for i in range(len(data)))
    else:
        raise TypeError(
            "Several devices evaluate a keras_vit.data pipeline, a keras.utils.PyDataset or "
            f"arrays. Received: {type(data).__name__}."
        )


def shards(data, index, count, batch_size=None):
    """One of `count` shards of every batch of an evaluation; that of the last may be empty."""
    if hasattr(data, "shard") and data.batch_size % count == 0:
        return data.shard(index, count)
    return (_shard(batch, index, count) for batch in batches_of(data, batch_size))


def even_shards(batches, replicas, data_shard, remainders):
    """One shard of the rows of each batch that the replicas divide: `data_shard`, (index, count).

    The rows of each batch that are left over are appended to the list `remainders`.
    """
    for batch in map(tuple, batches):
        count = rows_of(batch)
        even = count - count % replicas
        if even < count:
            remainders.append(_rows(batch, even, count))
        if even:
            yield _shard(_rows(batch, 0, even), *data_shard)


def joined(remainders):
    """The rows that many batches have left over, in batches of the usual size."""
    if remainders:
        rows = keras.tree.map_structure(lambda *parts: np.concatenate(parts), *remainders)
        yield from batches_of(rows)


def evaluate_batches(model, batches, **options):
    """Evaluates the batches of an iterator; returns the sums of the metrics, [] without batches."""
    model.reset_metrics()
    first = next(batches, None)
    if first is None:
        return []
    # Keras takes a generator, and no other iterator.
    model.evaluate((batch for batch in itertools.chain([first], batches)), **options)
    return [to_numpy(variable) for variable in model.metrics_variables]


def results_of(model):
    """The metrics of the evaluation that a model has made, as a dict."""
    return {name: float(value) for name, value in model.get_metrics_result().items()}


def rows_of(batch):
    return len(keras.tree.flatten(batch)[0])


def _shard(batch, index, count):
    rows = rows_of(batch)
    return _rows(batch, rows * index // count, rows * (index + 1) // count)


def _rows(batch, start, stop):
    return keras.tree.map_structure(lambda x: np.asarray(x)[start:stop], batch)
