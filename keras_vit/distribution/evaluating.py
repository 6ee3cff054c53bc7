"""Evaluation on several devices: every image counts once, also those of an uneven last batch."""

import itertools

import keras
import numpy as np

from keras_vit.distribution.gathering import add_up, to_numpy


def with_jax(devices, model, data, **options):
    """Each process feeds its rows of what the devices divide of every batch.

    The rows left over are evaluated at the end, whole on every device, and the sums of both
    evaluations are added.
    """
    part, parts = devices.part
    sums, left = [], []

    def even_rows():
        for batch in batches_of(data):
            batch = tuple(batch)
            count = rows_of(batch)
            even = count - count % devices.replicas
            if even < count:
                left.append(_cut(batch, even, count))
            if even:
                yield _cut(batch, even * part // parts, even * (part + 1) // parts)

    if _evaluate_batches(model, even_rows(), **options):
        sums.append([to_numpy(v) for v in model.metrics_variables])
    if left:
        uneven = keras.tree.map_structure(lambda *each: np.concatenate(each), *left)
        with devices.whole_batches.scope():
            _evaluate_batches(model, iter([uneven]), **options)
        sums.append([to_numpy(v) for v in model.metrics_variables])
    for variable, *values in zip(model.metrics_variables, *sums):
        variable.assign(sum(values))
    return _results_of(model)


def with_torch(devices, model, data, **options):
    """Each process evaluates its rows of every batch, if there are any; the sums are added."""
    batches = (batch for batch in rows(data, *devices.part) if rows_of(batch))
    if not _evaluate_batches(model, batches, **options):
        model.reset_metrics()
    add_up([variable.value.data for variable in model.metrics_variables])
    return _results_of(model)


def with_tensorflow(devices, model, data, **options):
    """Each replica evaluates its rows of every batch, which may be none of the last one."""
    import tensorflow as tf

    options.pop("batch_size", None)  # that of Keras's arrays
    first, count = devices.process * devices.local_replicas, devices.local_replicas

    def batches():
        parts = [rows(data, first + i, devices.replicas) for i in range(count)]
        for step in zip(*parts):
            yield from map(tuple, step)

    def spec(x):
        return tf.TensorSpec((None, *x.shape[1:]), x.dtype)

    example = keras.tree.map_structure(np.asarray, next(batches()))
    signature = keras.tree.map_structure(spec, example)
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature).prefetch(2)
    steps = sum(1 for _ in batches_of(data)) if isinstance(data, (tuple, list)) else len(data)
    return model.evaluate(devices.distribute(dataset), steps=steps, return_dict=True, **options)


def batches_of(data):
    """The batches of an evaluation on several devices."""
    if isinstance(data, (tuple, list)):
        for start in range(0, len(data[0]), 32):  # Keras's default
            yield tuple(array[start : start + 32] for array in data)
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


def rows(data, part, parts):
    """One part of every batch of an evaluation; a part of the last batch may be empty."""
    if hasattr(data, "shard") and data.batch_size % parts == 0:
        yield from data.shard(part, parts)
    else:
        for batch in batches_of(data):
            count = rows_of(batch)
            yield _cut(batch, count * part // parts, count * (part + 1) // parts)


def rows_of(batch):
    """How many images a batch has."""
    return len(keras.tree.flatten(batch)[0])


def _cut(batch, start, stop):
    return keras.tree.map_structure(lambda x: np.asarray(x)[start:stop], batch)


def _evaluate_batches(model, batches, batch_size=None, **options):
    """Evaluates the batches of an iterator; returns whether there were any."""
    first = next(batches, None)
    if first is not None:  # Keras takes a generator
        model.evaluate((batch for batch in itertools.chain([first], batches)), **options)
    return first is not None


def _results_of(model):
    return {name: float(value) for name, value in model.get_metrics_result().items()}
