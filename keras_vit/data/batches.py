"""Batches of Grain as Keras takes them: read ahead, in threads or processes, and by number."""

import contextlib
import copy
import math
import os
from typing import Self

import keras

from keras_vit.checks import needs_extra, positive_int, require, whole
from keras_vit.class_names import check_classes
from keras_vit.data.arrays import ArraySource
from keras_vit.data.pixels import normalized
from keras_vit.models.backbone import owner_of_images
from keras_vit.models.trainer import Trainer, begin_training, compare_images
from keras_vit.workarounds import calling_model, report_ended_workers


class KerasBatches(keras.utils.PyDataset):
    """What `fit`, `evaluate` and `predict` of Keras call: batches by number, epoch after epoch.

    A subclass has `training` and `batch_size`, and makes of each batch, whose images are then
    normalised, what Keras takes: `_for_keras`.

    Args:
        dataset: the batches by step, a `grain.MapDataset` of (uint8 images, ...).
        empty_batch: one without images, for a process that has none of the last batch.
        steps_per_epoch: batches of an epoch.
        scale: (mean, std) of `normalized`, for the images.
        threads: batches to read at a time, in this process or each of `processes` others.
    """

    def __init__(self, dataset, empty_batch, *, steps_per_epoch, scale, threads, processes):
        super().__init__()
        self._dataset, self._empty_batch, self._scale = dataset, empty_batch, scale
        self._threads, self._processes = threads, processes
        self.steps_per_epoch = self._steps = steps_per_epoch  # `_steps` are those of this object
        self.start, self.passes = 0, 0  # the first step, and the epochs that Keras has been through
        self._ahead, self._looks_later = ReadAhead(), False

    def __getstate__(self):
        return {**vars(self), "_ahead": ReadAhead()}  # a copy reads for itself

    def __len__(self):
        return self._steps

    def from_step(self, step: int, steps: int | None = None) -> Self:
        """The same batches from a step on, as if those before it had been seen.

        `steps` is how many there are: by default `steps_per_epoch` in training, the rest otherwise.
        """
        step = whole(step, "step")
        left = self.steps_per_epoch if self.training else self.steps_per_epoch - step
        steps = left if steps is None else positive_int(steps, "steps")
        rule = f"A pass of this pipeline has {self.steps_per_epoch} batches"
        received = {"step": step, "steps": steps}
        require(self.training or 0 < steps <= left, rule, received=received)
        other = copy.copy(self)
        other.start, other._steps, other.passes = step, steps, 0
        return other

    def __getitem__(self, index):
        if not 0 <= index < len(self):
            raise IndexError(f"Batch {index} is outside 0..{len(self) - 1}.")
        step, later = self.start + self.passes * len(self) + int(index), len(self) - 1 - int(index)
        batch = self._ahead.take(step, later, read=self._read, read_from=self.from_step)
        if not len(batch[0]) and keras.backend.backend() != "tensorflow":
            raise ValueError(
                f"No image of batch {index} can be read, and Keras's loss of no image is NaN. "
                f"Received: batch_size={self.batch_size}; take another one, or remove the files."
            )
        return batch

    def on_epoch_begin(self):
        """Called by Keras before each epoch; looks at a model whose own `fit` does not."""
        model, method = calling_model()
        self._looks_later = model is not None and not model.built
        if not self._looks_later:
            self._look(model, method)

    def on_epoch_end(self):
        """Called by Keras after each epoch.

        Keras also calls it after a batch from which it builds a model, so that the first epoch of
        such a model is the second one of the pipeline.
        """
        if self._looks_later:
            self._look(*calling_model())
        if self.training:
            self.passes += 1

    def _look(self, model, method):
        """Compares a model of Keras's own classes, around a network or not, with these images."""
        if isinstance(model, Trainer | None):
            return
        owner = owner_of_images(model)
        if method == "fit":
            begin_training(model, self, owner=owner)
            return
        if method == "evaluate":
            check_classes(model, self)
        compare_images(model, self, owner=owner)

    def __iter__(self):
        dataset = self._dataset[self.start : self.start + len(self)]
        grain = import_grain()
        # One batch waits for each thread: Grain's default of 500 would hold gigabytes.
        options = grain.ReadOptions(num_threads=self._threads, prefetch_buffer_size=self._threads)
        if self._processes:  # bytes travel between processes, a quarter of floats
            from absl import flags

            report_ended_workers()
            if not flags.FLAGS.is_parsed():  # Grain reads some, in programs that are no absl apps
                flags.FLAGS.mark_as_parsed()
            workers = grain.MultiprocessingOptions(num_workers=self._processes)
            batches = dataset.to_iter_dataset(options).mp_prefetch(workers).map(self._normalized)
        else:
            batches = dataset.map(self._normalized).to_iter_dataset(options)
        with contextlib.closing(iter(batches)) as iterator:
            yield from map(self._for_keras, iterator)
        # A process may have no image of the last batch.
        yield from map(self._read, range(self.start + len(dataset), self.start + len(self)))

    def _read(self, step):
        """The batch of a step by itself."""
        batch = self._dataset[step] if step < len(self._dataset) else self._empty_batch
        return self._for_keras(self._normalized(batch))

    def _normalized(self, batch):
        images, *rest = batch
        return normalized(images, *self._scale), *rest


class ReadAhead:
    """Batches by step, which one reader reads ahead as long as each step follows the last one."""

    def __init__(self):
        self._readers = {}  # {the step of its next batch: the reader}, one at most

    def take(self, step, later, *, read, read_from):
        """The batch of a step, which `later` others may follow.

        `read(step)` gives one by itself, `read_from(step, steps)` those that a reader goes through.
        """
        reader = self._readers.pop(step, None)  # by one thread alone, where several ask
        batch = read(step) if reader is None else next(reader)
        self._readers = {step + 1: reader or iter(read_from(step + 1, later))} if later else {}
        return batch


def part_of_process(batch, process, processes):
    """What one process gets of a batch of all processes."""
    start, end = (len(batch) * number // processes for number in (process, process + 1))
    return batch[start:end]


def threads_for(source, image_size, threads=None):
    """`threads`; if `None` the number of cores, up to 16, or 0 where threads take longer."""
    if threads is not None:
        return positive_int(threads, "threads")
    if isinstance(source, ArraySource) and math.prod(image_size) <= 64 * 64:
        return 0  # small images in memory
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(count or 1, 16)


def import_grain():
    with needs_extra("data", "A pipeline needs Grain"):
        import grain
    return grain
