"""The part of every batch that one of several processes feeds to its device."""

import dataclasses

import keras
import numpy as np

from keras_vit.data.keras_passes import Passes
from keras_vit.data.pipeline import Pipeline
from keras_vit.data.schedule import Schedule


def share_of(count, process, processes):
    """Where the part of a process begins and ends in `count` images: all parts together are all."""
    return count * process // processes, count * (process + 1) // processes


def share_training(pipeline, process, processes):
    """A pipeline of a process's part of every batch.

    Images that are mixed with each other are made by every process, and then cut: whom an image is
    mixed with must not depend on the number of processes. Otherwise each reads its own alone.
    """
    if isinstance(pipeline, Pipeline) and not pipeline.stream.mixes:
        fields = {f.name: getattr(pipeline.stream.schedule, f.name) for f in _FIELDS}
        fields["batch_size"] //= processes
        return pipeline.replace(
            schedule=SharedSchedule(**fields, process=process, processes=processes)
        )
    return _Cut(pipeline, process, processes)


_FIELDS = dataclasses.fields(Schedule)


@dataclasses.dataclass(frozen=True, eq=False)
class SharedSchedule(Schedule):
    """A schedule of training whose batches are one process's part of the whole ones.

    Attributes:
        batch_size: of this process.
        process, processes: its number, and how many there are.
    """

    process: int
    processes: int

    @property
    def steps_per_epoch(self):
        return len(self.rows) // (self.batch_size * self.processes)

    def size(self, step):
        return self.batch_size

    def batch(self, step):
        first = self.process * self.batch_size
        return self._whole.batch(step)[first : first + self.batch_size]

    def row(self, step, place):
        return self._whole.row(step, self.process * self.batch_size + place)

    @property
    def _whole(self):
        fields = {f.name: getattr(self, f.name) for f in _FIELDS}
        return Schedule(**{**fields, "batch_size": self.batch_size * self.processes})


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


def share_evaluation(data, process, processes, cut=cut):
    """One process's part of data for an evaluation, in as many batches as the whole has.

    Args:
        data: a `keras_vit.data.Pipeline`, a `keras.utils.PyDataset`, arrays (images, labels), or
            None.
        cut: a function that takes the part of a batch, as `cut` does.

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
    return _CutEvaluation(data, process, processes, cut)


class _Arrays(keras.utils.PyDataset):
    """Arrays in batches of 32, Keras's default."""

    def __init__(self, arrays):
        super().__init__()
        self.arrays = arrays

    def __len__(self):
        return -(-len(self.arrays[0]) // 32)

    def __getitem__(self, index):
        return tuple(array[index * 32 : (index + 1) * 32] for array in self.arrays)


class _CutEvaluation(Passes):
    def __init__(self, data, process, processes, cut):
        super().__init__(0)
        self._data, self._share, self._cut = data, (process, processes), cut

    num_batches = property(lambda self: len(self._data))

    def __len__(self):
        return self.num_batches

    def batch(self, step):
        read = self._data.batch if isinstance(self._data, Passes) else self._data.__getitem__
        return self._cut(read(step), *self._share)

    def after(self, served):
        return 0
