"""The batches of a split on Grain, read and mixed: each a function of (seed, step).

A batch is (images, labels, notes). Notes are (row, reason) of examples that could not be read.
"""

import functools
import math
import os
import sys

import keras
import numpy as np

from keras_vit.data.arrays import ArraySource
from keras_vit.data.keras_layers import augment
from keras_vit.data.mixing import mix
from keras_vit.data.pixels import normalized
from keras_vit.data.sources import has_label
from keras_vit.heads import map_heads
from keras_vit.workarounds import report_ended_workers


def make_batches(read, batch_size, seed, num_classes, mixing=(0, 0), share=(0, 1), layers=()):
    """A `grain.MapDataset` of the batches of a split, by step.

    For training they are shuffled, mixed, full, and repeated without end, with one-hot labels in
    place of class numbers.

    Args:
        read: a `keras_vit.data.reader.Reader`.
        batch_size: examples per batch, of all processes together.
        seed: decides all that is random.
        num_classes: of the labels.
        mixing: parameters of mixup and CutMix, 0 for none.
        share: (process, processes); the batches hold this process's part.
        layers: configs of `keras_layers.layer_configs`, applied before images are mixed.
    """
    process, processes = share
    collate = functools.partial(_collate, empty=read.empty)
    if not read.training:
        rows = rows_of(share, read.rows, batch_size)
        dataset = import_grain().MapDataset.source(rows).seed(seed).random_map(read)
        return dataset.batch(batch_size // processes, batch_fn=collate)

    # An image is mixed with one that may belong to another process, so that batches are cut later.
    mixes = any(mixing) or bool(layers)
    parts = 1 if mixes else processes
    dataset = import_grain().MapDataset.source(read.rows).seed(seed)
    dataset = dataset.shuffle()  # anew in each epoch
    dataset = dataset.random_map(read)  # read, decode, crop, flip, ...: one uint8 image
    dataset = dataset[: len(read.rows) // batch_size * batch_size]  # full batches only
    dataset = dataset.batch(batch_size // parts, batch_fn=collate)[process % parts :: parts]
    dataset = dataset.map(functools.partial(_one_hot, num_classes=num_classes))
    if layers:
        dataset = dataset.random_map(functools.partial(augment, configs=layers))
    if mixes:
        dataset = dataset.random_map(functools.partial(_mixed_part, alphas=mixing, share=share))
    return dataset.repeat()


def rows_of(share, rows, batch_size):
    """The rows that a process evaluates: its part of every batch, the smaller last one included."""
    process, processes = share
    step, place = np.divmod(np.arange(len(rows)), batch_size)
    size = np.minimum(batch_size, len(rows) - step * batch_size)
    first, last = size * process // processes, size * (process + 1) // processes
    return rows[(place >= first) & (place < last)]


def read_ahead(dataset, mean, std, threads, workers=0):
    """Yields the batches of a finite part of `make_batches`, read ahead, with images in float32.

    `mean` and `std` are those of `normalized`.
    `threads` is how many batches are read at a time, in this process or each of `workers` others.
    """
    grain = import_grain()
    finish = functools.partial(_finish, mean=mean, std=std)
    # One batch waits for each thread: Grain's default of 500 would hold gigabytes.
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=threads)
    if workers:  # bytes travel between processes, a quarter of floats
        from absl import flags

        _check_main()
        report_ended_workers()

        if not flags.FLAGS.is_parsed():  # Grain reads some, also in programs that are no absl apps
            flags.FLAGS.mark_as_parsed()
        processes = grain.MultiprocessingOptions(num_workers=workers)
        batches = dataset.to_iter_dataset(options).mp_prefetch(processes).map(finish)
    else:
        batches = dataset.map(finish).to_iter_dataset(options)
    iterator = iter(batches)
    try:
        yield from iterator
    finally:
        iterator.close()


def threads_for(source, image_size):
    """The number of cores, up to 16; 0 for small images in memory, which threads slow down."""
    if isinstance(source, ArraySource) and math.prod(image_size) <= 64 * 64:
        return 0
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(count or 1, 16)


def _check_main():
    """Lets no worker process start workers of its own while it imports the script."""
    imported = sys.modules.get("__mp_main__")  # the name of the script in a worker
    if imported is not None and imported is not sys.modules["__main__"]:
        raise RuntimeError(
            "A worker process imports the script that was started, which reads a pipeline with "
            'workers at once. Put what the script does below `if __name__ == "__main__":`, or use '
            "workers=0"
        )


def import_grain():
    """The `grain` module, or an ImportError that names the extra."""
    try:
        import grain
    except ImportError as error:
        raise ImportError(
            'A pipeline needs Grain. Install it with: pip install "keras3-vit[data]"'
        ) from error
    return grain


def _collate(examples, empty):
    images = [pixels for pixels, _, _ in examples if pixels is not None]
    labels = [label for pixels, label, _ in examples if pixels is not None]
    notes = [note for _, _, notes in examples for note in notes]
    if not images:
        return *empty, notes
    # Of several heads each label is a dict, as the labels of no example are.
    labels = keras.tree.map_structure(
        lambda none, *each: np.array(each, none.dtype), empty[1], *labels
    )
    return np.stack(images), labels, notes


def _one_hot(batch, num_classes):
    images, labels, notes = batch

    def one_hot(numbers, count):
        if numbers.dtype != np.int32:  # several labels, or values
            return numbers
        rows = (numbers[:, None] == np.arange(count)).astype(np.float32)
        rows[numbers < 0] = np.nan  # a label that lacks, also of what is mixed with it
        return rows

    return images, map_heads(one_hot, labels, num_classes), notes


def with_weights(images, labels):
    """(images, labels, weights) of a batch of several heads: where a label lacks, both are 0."""
    weights = map_heads(lambda each: has_label(each).astype(np.float32), labels)

    def filled(rows, given):
        rows = rows.copy()
        rows[given == 0] = 0
        return rows

    return images, map_heads(filled, labels, weights), weights


def _mixed_part(batch, rng, alphas, share):
    (images, labels, notes), (process, processes) = batch, share
    images, labels = mix(images, labels, rng, *alphas)
    size = len(images) // processes
    part = slice(process * size, (process + 1) * size)
    return images[part], map_heads(lambda y: y[part], labels), notes


def _finish(batch, mean, std):
    images, labels, notes = batch
    return normalized(images, mean, std), labels, notes
