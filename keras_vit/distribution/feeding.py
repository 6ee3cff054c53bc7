"""Which rows of each batch a process, or a device, is fed.

A batch is a tree of arrays of one length. A shard, (index, count), is one of `count` equal parts of
its rows.
"""

import keras
import numpy as np


def shard_of_process(devices):
    """The shard of each batch that a process reads: (index, count).

    Processes that share a model read the same rows: of 4 with 2 replicas, shards 0, 0, 1, 1.
    """
    count = min(devices.processes, devices.replicas)
    return devices.process * count // devices.processes, count


def training_shard(data, devices):
    """The data of a training, of which a process reads its shard of every batch."""
    size, replicas = getattr(data, "batch_size", None) or 0, devices.replicas
    if size % replicas:
        nearest = max(size - size % replicas, replicas)
        raise ValueError(
            f"The devices must divide the batch. Received: a batch of {size} images, "
            f"{replicas} devices; {nearest} and {nearest + replicas} fit."
        )
    index, count = shard_of_process(devices)
    if count == 1:
        return data
    if not hasattr(data, "shard"):
        raise TypeError(
            "Several processes need data with shard(process, processes), as a pipeline of "
            f"keras_vit.data has it. Received: {type(data).__name__}."
        )
    return data.shard(index, count)


def shard(batch, index, count):
    """One of `count` shards of a batch; their lengths differ by at most one row."""
    size = length(batch)
    return rows(batch, size * index // count, size * (index + 1) // count)


def rows(batch, start, stop):
    """Some rows of each array of a batch."""
    return keras.tree.map_structure(lambda x: np.asarray(x)[start:stop], batch)


def without_empty(batches):
    """The batches that have rows: on PyTorch and JAX Keras's loss of an empty one is NaN."""
    return (batch for batch in batches if length(batch))


def length(batch):
    """The number of rows of a batch."""
    return len(keras.tree.flatten(batch)[0])
