"""Which rows of each batch a process, or a device, is fed: of the training and of an evaluation.

A batch is a tree of arrays with one length; a shard of it is (index, count): the rows of one of
`count` equal parts.
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


def evaluation_shards(data, index, count, batch_size=None):
    """One shard of every batch of an evaluation; that of the last may be empty."""
    if hasattr(data, "shard") and data.batch_size % count == 0:
        return data.shard(index, count)
    return (shard(batch, index, count) for batch in evaluation_batches(data, batch_size))


def evaluation_batches(data, batch_size=None):
    """The batches of an evaluation on several devices; `batch_size` is for arrays."""
    if isinstance(data, (tuple, list)):
        size = batch_size or 32  # as Keras has it
        for start in range(0, length(data), size):
            yield rows(tuple(data), start, start + size)
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
    """The same rows in batches that the replicas divide, but for the last: what is left, if any.

    A row that a batch has too many begins the next one.
    """
    left = None
    for batch in map(tuple, batches):
        if left is not None:
            batch = keras.tree.map_structure(lambda *parts: np.concatenate(parts), left, batch)
        size = length(batch)
        even = size - size % replicas
        if even:
            yield rows(batch, 0, even)
        left = rows(batch, even, size) if even < size else None
    if left is not None:
        yield left


def shard(batch, index, count):
    """One of `count` shards of a batch; their lengths differ by at most one row."""
    size = length(batch)
    return rows(batch, size * index // count, size * (index + 1) // count)


def rows(batch, start, stop):
    """Some rows of each array of a batch."""
    return keras.tree.map_structure(lambda x: np.asarray(x)[start:stop], batch)


def length(batch):
    """The number of rows of a batch."""
    return len(keras.tree.flatten(batch)[0])
