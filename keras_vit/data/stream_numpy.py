"""Batches of small images in memory, made by NumPy where they are asked for.

A batch of digits is made whole in less time than threads need to hand its images over, and no
further package is loaded for it, which for such a set takes longer than the data.
"""

import numpy as np

from keras_vit.data import transform_batch
from keras_vit.data.examples import ArrayExamples
from keras_vit.data.resize import convert_channels
from keras_vit.data.stream_grain import finish, readable_example

_SMALL = 64 * 64  # pixels; larger images are worth several threads


def is_for(stream):
    """Whether this is the fastest engine for a stream."""
    height, width = stream.transform.image_size
    is_small = height * width <= _SMALL
    return is_small and _by_batch(stream)


def numpy_batches(stream, start):
    """See `Stream.batches`."""
    schedule, step = stream.schedule, start
    make = _batch if _by_batch(stream) else _batch_of_examples
    while schedule.training or step < schedule.steps_per_epoch:
        yield make(stream, step)
        step += 1


def _by_batch(stream):
    """Whether a batch can be transformed at once."""
    in_memory = isinstance(stream.examples, ArrayExamples)
    return in_memory and transform_batch.applies_to(stream.transform)


def _batch(stream, step):
    schedule = stream.schedule
    epoch, rows = schedule.epoch(step), schedule.batch(step)
    if len(schedule.unreadable):  # others stand in for some
        return _batch_of_examples(stream, step)
    images, labels = zip(*map(stream.examples.read, rows))
    keys = np.column_stack([np.full_like(rows, schedule.seed), np.full_like(rows, epoch), rows])
    try:
        images = convert_channels(np.stack(images), stream.channels)
        images = transform_batch.apply(stream.transform, images, keys)
    except ValueError:  # one by one, the image at fault is found and named
        return _batch_of_examples(stream, step)
    kept = np.ones(len(rows), bool)
    return finish(stream, images, np.array(labels, np.int32), kept, step)


def _batch_of_examples(stream, step):
    rows = stream.schedule.batch(step)
    images, labels, kept, _ = zip(*(readable_example(stream, step, int(row)) for row in rows))
    return finish(stream, np.stack(images), np.array(labels, np.int32), kept, step)
