"""The path of images into batches, on Grain: each batch is a function of (seed, step).

A batch is (images, label rows, notes), see `keras_vit.data.reader.Reader`.
"""

import contextlib
import functools
import math
import os

import keras
import numpy as np

from keras_vit.checks import needs_extra
from keras_vit.data.arrays import ArraySource
from keras_vit.data.keras_layers import augment
from keras_vit.data.mixing import mix
from keras_vit.data.pixels import normalized
from keras_vit.workarounds import report_ended_workers


def training_batches(reader, *, batch_size, seed, layers=(), mixup=0.0, cutmix=0.0, share=(0, 1)):
    """The batches to train on, by step and without end: a `grain.MapDataset`.

    The way of an example: its bytes are decoded, cropped, resized, flipped, rounded and augmented
    by `apply`, then batched, mixed, and normalised by `read_ahead`. Grain seeds each random step by
    its place in this chain: with one step more or fewer, runs begun before would get others.

    Args:
        reader: a `Reader`; `layers` are configs of `layer_configs`, `mixup` and `cutmix` alphas.
        batch_size: examples per batch, of all processes together.
        seed: decides all that is random.
        share: (process, processes); the batches hold this process's part.
    """
    # A process reads its part of a batch, or all of a batch whose images are mixed.
    mixes = bool(layers or mixup or cutmix)
    part, parts = (0, 1) if mixes else share

    dataset = import_grain().MapDataset.source(reader.rows).seed(seed)
    dataset = dataset.shuffle()  # anew in each epoch
    dataset = dataset.random_map(reader)  # uint8 pixels and a row of floats, the label
    dataset = dataset[: len(reader.rows) // batch_size * batch_size]  # full batches only
    dataset = dataset.batch(batch_size // parts, batch_fn=list)[part::parts]
    dataset = dataset.map(reader.collate)
    if layers:
        dataset = dataset.random_map(functools.partial(augment, configs=layers))
    if mixup or cutmix:
        dataset = dataset.random_map(functools.partial(mix, mixup_alpha=mixup, cutmix_alpha=cutmix))
    if mixes:
        dataset = dataset.map(functools.partial(_part_of_batch, share=share))
    return dataset.repeat()


def evaluation_batches(reader, *, batch_size, seed, share=(0, 1)):
    """The batches to evaluate on, in order, by step: a `grain.MapDataset` of one pass."""
    process, processes = share
    step, place = np.divmod(np.arange(len(reader.rows)), batch_size)
    size = np.minimum(batch_size, len(reader.rows) - step * batch_size)  # of the last one, smaller
    first, last = size * process // processes, size * (process + 1) // processes
    rows = reader.rows[(place >= first) & (place < last)]

    dataset = import_grain().MapDataset.source(rows).seed(seed)
    dataset = dataset.random_map(reader)
    return dataset.batch(batch_size // processes, batch_fn=reader.collate)


def _part_of_batch(batch, share):
    """The images and labels of one process in a batch of all processes."""
    (images, labels, notes), (process, processes) = batch, share
    size = len(images) // processes
    part = slice(process * size, (process + 1) * size)
    return images[part], labels[part], notes


def read_ahead(dataset, *, mean, std, threads, workers):
    """Yields the batches of a finite `grain.MapDataset`, read ahead, with images in float32.

    `mean` and `std` are those of `normalized`. `threads` is how many batches are read at a time, in
    this process or each of `workers` others.
    """

    def finish(batch):
        images, labels, notes = batch
        return normalized(images, mean, std), labels, notes

    grain = import_grain()
    # One batch waits for each thread: Grain's default of 500 would hold gigabytes.
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=threads)
    if workers:  # bytes travel between processes, a quarter of floats
        from absl import flags

        report_ended_workers()
        if not flags.FLAGS.is_parsed():  # Grain reads some, also in programs that are no absl apps
            flags.FLAGS.mark_as_parsed()
        processes = grain.MultiprocessingOptions(num_workers=workers)
        batches = dataset.to_iter_dataset(options).mp_prefetch(processes).map(finish)
    else:
        batches = dataset.map(finish).to_iter_dataset(options)
    with contextlib.closing(iter(batches)) as iterator:
        yield from iterator


def threads_for(source, image_size):
    """The number of cores, up to 16; 0 for small images in memory, which threads slow down."""
    if isinstance(source, ArraySource) and math.prod(image_size) <= 64 * 64:
        return 0
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(count or 1, 16)


def import_grain():
    with needs_extra("data", "A pipeline needs Grain"):
        import grain
    return grain


class KerasBatches(keras.utils.PyDataset):
    """What `fit`, `evaluate` and `predict` of Keras call: batches by number, epoch after epoch.

    A subclass has `__len__`, `start`, `training` and `from_step`, see `Pipeline`.
    """

    passes = 0  # epochs that Keras has been through

    def __getitem__(self, index):
        if not 0 <= index < len(self):
            raise IndexError(f"Batch {index} is outside 0..{len(self) - 1}.")
        step = self.start + self.passes * len(self) + int(index)
        return next(iter(self.from_step(step, 1)))

    def on_epoch_end(self):
        """Called by Keras after each epoch, and, where it builds a model from a batch, before them.

        So the first epoch of such a model is the second one of the pipeline.
        """
        if self.training:
            self.passes += 1
