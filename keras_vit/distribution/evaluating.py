"""Evaluation on several devices: every image counts once, also those of an uneven last batch."""

import itertools

import keras
import numpy as np

from keras_vit.distribution.gathering import add_up, to_numpy

BATCH_SIZE = 32  # of arrays, as Keras has it


def with_jax(devices, model, data, batch_size=None, **options):
    """Each process feeds its shard of the rows of every batch that the devices divide.

    The remaining rows are evaluated at the end, whole on every device, and the sums of both
    evaluations, which metrics of Keras are made of, are added.
    """
    sums, remainders = [], []
    even = _even_shards(devices, batches_of(data, batch_size), remainders)
    if _evaluate_batches(model, even, **options):
        sums.append([to_numpy(v) for v in model.metrics_variables])
    with devices.whole_batches.scope():
        if _evaluate_batches(model, _joined(remainders), **options):
            sums.append([to_numpy(v) for v in model.metrics_variables])
    for variable, *values in zip(model.metrics_variables, *sums):
        variable.assign(sum(values))
    return _results_of(model)


def _even_shards(devices, batches, remainders):
    """Yields this process's shard of the rows of each batch that the devices divide.

    The remaining rows of each batch are appended to the list `remainders`.
    """
    for batch in map(tuple, batches):
        count = rows_of(batch)
        even = count - count % devices.replicas
        if even < count:
            remainders.append(_rows(batch, even, count))
        if even:
            yield _shard(_rows(batch, 0, even), *devices.data_shard)


def _joined(remainders):
    """Yields batches of the usual size of some rows that are left of others."""
    if remainders:
        rows = keras.tree.map_structure(lambda *parts: np.concatenate(parts), *remainders)
        for start in range(0, rows_of(rows), BATCH_SIZE):
            yield _rows(rows, start, start + BATCH_SIZE)


def with_torch(devices, model, data, batch_size=None, **options):
    """Each process evaluates its shard of every batch, unless it is empty; the sums are added."""
    shards_of_all = shards(data, *devices.data_shard, batch_size=batch_size)
    batches = (batch for batch in shards_of_all if rows_of(batch))
    if not _evaluate_batches(model, batches, **options):
        model.reset_metrics()
    add_up([variable.value.data for variable in model.metrics_variables])
    return _results_of(model)


def with_tensorflow(devices, model, data, batch_size=None, **options):
    """Each replica evaluates its shard of every batch, which may be empty for the last one."""
    import tensorflow as tf

    count = devices.local_replicas
    first = devices.process * count

    def batches():
        replicas = range(first, first + count)
        of_replicas = [shards(data, i, devices.replicas, batch_size) for i in replicas]
        for step in zip(*of_replicas):
            yield from map(tuple, step)

    def spec(x):
        return tf.TensorSpec((None, *x.shape[1:]), x.dtype)

    example = keras.tree.map_structure(np.asarray, next(batches()))
    signature = keras.tree.map_structure(spec, example)
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature).prefetch(2)
    is_array = isinstance(data, (tuple, list))
    steps = sum(1 for _ in batches_of(data, batch_size)) if is_array else len(data)
    return model.evaluate(devices.distribute(dataset), steps=steps, return_dict=True, **options)


def batches_of(data, batch_size=None):
    """The batches of an evaluation on several devices; `batch_size` is for arrays."""
    if isinstance(data, (tuple, list)):
        size = batch_size or BATCH_SIZE
        for start in range(0, rows_of(data), size):
            yield tuple(_rows(data, start, start + size))
    elif hasattr(data, "from_step"):
        yield from data
    elif isinstance(data, keras.utils.PyDataset):
        for i in range(len(data)):
            yield data[i]
    else:
        raise TypeError(
            "Several devices evaluate a keras_vit.data pipeline, a keras.utils.PyDataset or "
            f"arrays. Received: {type(data).__name__}."
        )


def shards(data, index, count, batch_size=None):
    """One of `count` shards of every batch of an evaluation; that of the last may be empty."""
    if hasattr(data, "shard") and data.batch_size % count == 0:
        yield from data.shard(index, count)
    else:
        for batch in batches_of(data, batch_size):
            yield _shard(batch, index, count)


def rows_of(batch):
    """How many images a batch has."""
    return len(keras.tree.flatten(batch)[0])


def _shard(batch, index, count):
    rows = rows_of(batch)
    return _rows(batch, rows * index // count, rows * (index + 1) // count)


def _rows(batch, start, stop):
    return keras.tree.map_structure(lambda x: np.asarray(x)[start:stop], batch)


def _evaluate_batches(model, batches, **options):
    """Evaluates the batches of an iterator; returns whether there were any."""
    first = next(batches, None)
    if first is not None:  # Keras takes a generator
        model.evaluate((batch for batch in itertools.chain([first], batches)), **options)
    return first is not None


def _results_of(model):
    return {name: float(value) for name, value in model.get_metrics_result().items()}
