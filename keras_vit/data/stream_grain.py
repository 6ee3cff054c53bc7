"""Batches from Grain, which reads in threads and needs no TensorFlow."""

import numpy as np

from keras_vit.data import transform_numpy
from keras_vit.data.mixing import mix
from keras_vit.data.resize import convert_channels

_ENDLESS = 2**50  # examples; Grain asks for a length
_AHEAD = 2  # batches that wait, besides the one in work


def grain_batches(stream, start):
    """See `Stream.batches`."""
    import grain

    schedule = stream.schedule
    read = grain.ReadOptions(
        num_threads=stream.threads,
        prefetch_buffer_size=max(schedule.batch_size, 2 * stream.threads),
    )
    dataset = grain.MapDataset.source(_Source(stream, start)).to_iter_dataset(read)
    dataset = dataset.batch(schedule.batch_size, batch_fn=_Collate(stream))
    return iter(grain.experimental.ThreadPrefetchIterDataset(dataset, prefetch_buffer_size=_AHEAD))


class _Source:
    """Transformed examples by their position in the stream."""

    def __init__(self, stream, start):
        self._stream = stream
        self._first = start * stream.schedule.batch_size

    def __len__(self):
        if self._stream.schedule.training:
            return _ENDLESS
        return len(self._stream.schedule.rows) - self._first

    def __getitem__(self, index):
        schedule = self._stream.schedule
        step, place = divmod(self._first + int(index), schedule.batch_size)
        return readable_example(self._stream, step, schedule.row(step, place))


def readable_example(stream, step, row):
    """(image, label, whether it is the row asked for, step), transformed, or what stands in."""
    schedule, wanted = stream.schedule, row
    epoch = schedule.epoch(step)
    while True:
        row, is_itself = schedule.readable(wanted, epoch)
        key = (schedule.seed, epoch, row)
        try:
            payload, label = stream.examples.read(row)
            return transformed(stream, payload, key), label, is_itself, step
        except (OSError, ValueError) as error:
            schedule.unreadable.add(row, epoch, error)


def transformed(stream, payload, key):
    """An image as it was read, made what the model takes."""
    key = np.array(key, dtype=np.int64) if stream.transform.is_random else None
    if stream.examples.encoded:
        return transform_numpy.apply_encoded(stream.transform, payload, key, stream.channels)
    pixels = convert_channels(payload[None], stream.channels)[0]
    return transform_numpy.apply(stream.transform, pixels, key)


class _Collate:
    """Examples -> batch."""

    def __init__(self, stream):
        self._stream = stream

    def __call__(self, examples):
        images, labels, kept, steps = zip(*examples)
        return finish(self._stream, np.stack(images), np.array(labels, np.int32), kept, steps[0])


def finish(stream, images, labels, kept, step):
    """A batch as the model takes it: mixed in training, else without stand-ins."""
    if not stream.schedule.training:
        return readable_only(stream, images, labels, np.array(kept), step)
    labels = np.eye(len(stream.examples.class_names), dtype=np.float32)[labels]
    if stream.mixes:
        images, labels = mix(
            images, labels, (stream.schedule.seed, step), stream.mixup, stream.cutmix
        )
    return images, labels


def readable_only(stream, images, labels, kept, step):
    """A batch for evaluation without the stand-ins of unreadable examples."""
    if kept.all():
        return images, labels
    if not kept.any():
        raise ValueError(
            f"Batch {step} has no readable example. {stream.schedule.unreadable.described()}"
        )
    return images[kept], labels[kept]
