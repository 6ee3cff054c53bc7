"""The part of every batch that one of several processes feeds to its device."""

import keras
import numpy as np

from keras_vit.data import Pipeline


def share_of(count, process, processes):
    """Where the part of a process begins and ends in `count` images: all parts together are all."""
    return count * process // processes, count * (process + 1) // processes


def share_training(pipeline, process, processes):
    """A pipeline of a process's part of every batch."""
    if isinstance(pipeline, Pipeline):
        return pipeline.shard(process, processes)
    return _Cut(pipeline, process, processes)


class _Cut:
    """Anything with `from_step`, of whose batches one process takes its part."""

    def __init__(self, pipeline, process, processes):
        self._pipeline, self._share = pipeline, (process, processes)
        self.steps_per_epoch = pipeline.steps_per_epoch
        for name in ("batch_size", "settings", "indices"):  # of the whole batch, for the log
            if hasattr(pipeline, name):
                setattr(self, name, getattr(pipeline, name))

    def from_step(self, step):
        for batch in self._pipeline.from_step(step):
            yield cut(batch, *self._share)


def cut(batch, process, processes):
    """One process's part of the arrays of a batch."""
    first, last = share_of(len(keras.tree.flatten(batch)[0]), process, processes)
    return keras.tree.map_structure(lambda x: np.asarray(x)[first:last], batch)


def share_evaluation(data, process, processes, cut_batch=None):
    """One process's part of data for an evaluation, in as many batches as the whole has.

    Args:
        data: a `keras_vit.data.Pipeline`, a `keras.utils.PyDataset`, arrays (images, labels), or
            None.
        cut_batch: a function that takes the part of a batch, as `cut` does, which is the default.

    Raises:
        TypeError: something else, whose batches cannot be counted.
    """
    if data is None:
        return None
    if isinstance(data, (tuple, list)):
        data = _Arrays(data)
    if not isinstance(data, keras.utils.PyDataset):
        raise TypeError(
            "Data for an evaluation in several processes must be a keras_vit.data pipeline, a "
            f"keras.utils.PyDataset or arrays. Received: {type(data).__name__}."
        )
    if isinstance(data, Pipeline) and cut_batch is None and data.batch_size % processes == 0:
        return data.shard(process, processes)
    return _CutEvaluation(data, process, processes, cut_batch or cut)


class _Arrays(keras.utils.PyDataset):
    """Arrays in batches of 32, Keras's default."""

    def __init__(self, arrays):
        super().__init__()
        self.arrays = arrays

    def __len__(self):
        return -(-len(self.arrays[0]) // 32)

    def __getitem__(self, index):
        return tuple(array[index * 32 : (index + 1) * 32] for array in self.arrays)


class _CutEvaluation(keras.utils.PyDataset):
    def __init__(self, data, process, processes, cut):
        super().__init__()
        self._data, self._share, self._cut = data, (process, processes), cut

    def __len__(self):
        return len(self._data)

    def __getitem__(self, index):
        return self._cut(self._data[index], *self._share)
