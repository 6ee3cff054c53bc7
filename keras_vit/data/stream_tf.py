"""Batches from tf.data: images are decoded, transformed and mixed in TensorFlow's own threads."""

import contextlib
import functools

import keras
import numpy as np

from keras_vit.data import transform_numpy, transform_tf
from keras_vit.data.at_exit import closed_at_exit
from keras_vit.data.mixing import mix
from keras_vit.data.resize import convert_channels
from keras_vit.data.stream_grain import readable_only, transformed

_AHEAD = 2  # batches that wait, besides the one in work
# What TensorFlow decodes by itself; anything else goes through Pillow.
_KNOWN = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM")


def tensorflow_batches(stream, start):
    """See `Stream.batches`."""
    return _batches(stream, start, _tensorflow())


@closed_at_exit
def _batches(stream, start, tf):
    step, end = start, _end(stream)
    while end is None or step < end:
        try:
            for images, labels, kept, _ in _dataset(stream, step):
                labels, kept = labels.numpy(), kept.numpy()
                batch = images.numpy(), labels
                if not stream.schedule.training:
                    batch = readable_only(stream, *batch, kept, step)
                step += 1
                yield batch
        except tf.errors.OpError as error:
            # A graph cannot go on after an error; what it does not read is found here, and the
            # stream begins anew where it stopped.
            _find_unreadable(stream, step, error)


@functools.cache
def _tensorflow():
    import tensorflow as tf

    if keras.backend.backend() != "tensorflow":
        # It would take the memory of a GPU that the backend needs.
        with contextlib.suppress(RuntimeError):  # it is already in use, so the user has chosen
            tf.config.set_visible_devices([], "GPU")
    return tf


def _end(stream):
    return None if stream.schedule.training else stream.schedule.steps_per_epoch


def _dataset(stream, start):
    import tensorflow as tf

    with tf.device("CPU"):
        end = tf.int64.max if _end(stream) is None else _end(stream)
        # Reading a batch needs Python; decoding and the transform do not.
        dataset = tf.data.Dataset.range(start, end).map(_reading(stream)).prefetch(1).unbatch()
        encoded, channels = stream.examples.encoded, stream.channels
        dataset = dataset.map(
            _transform(stream.transform, encoded, channels),
            num_parallel_calls=stream.threads,
            deterministic=True,
        )
        dataset = dataset.batch(stream.schedule.batch_size)
        if stream.schedule.training:
            classes = len(stream.examples.class_names)
            dataset = dataset.map(_mix(classes, stream.schedule.seed, stream.mixup, stream.cutmix))
        options = tf.data.Options()
        options.threading.private_threadpool_size = stream.threads
        options.autotune.enabled = False
        return dataset.prefetch(_AHEAD).with_options(options)


def _reading(stream):
    """A function of a step: the examples of its batch as they are stored.

    `Dataset.from_generator` would do as well, but under Python 3.11 it makes the C library return
    every freed block of 128 KiB to the system, in the whole process: PyTorch's models took 1.1 to
    1.5 times as long beside it.
    """
    import tensorflow as tf

    signature = _signature(stream)
    types = [spec.dtype for spec in signature.values()]

    def read(step):
        values = tf.numpy_function(lambda step: _stored(stream, int(step)), [step], types)
        for value, spec in zip(values, signature.values(), strict=True):
            value.set_shape(spec.shape)
        return dict(zip(signature, values, strict=True))

    return read


def _signature(stream):
    import tensorflow as tf

    image = tf.TensorSpec((None,), tf.string)
    if not stream.examples.encoded:
        image = tf.TensorSpec((None, None, None, stream.channels), tf.uint8)
    return {
        "image": image,
        "label": tf.TensorSpec((None,), tf.int32),
        "key": tf.TensorSpec((None, 3), tf.int64),
        "kept": tf.TensorSpec((None,), tf.bool),
        "step": tf.TensorSpec((None,), tf.int64),
    }


def _stored(stream, step):
    """What `_signature` names, in its order."""
    schedule = stream.schedule
    epoch = schedule.epoch(step)
    read = [_read(stream, row, epoch) for row in schedule.batch(step)]
    images, labels, rows, kept = zip(*read)
    if stream.examples.encoded:
        images = np.array(images, dtype=object)
    else:
        images = convert_channels(np.stack(images), stream.channels)
    key = [(schedule.seed, epoch, row) for row in rows]
    return [
        images,
        np.array(labels, dtype=np.int32),
        np.array(key, dtype=np.int64),
        np.array(kept),
        np.full(len(rows), step, dtype=np.int64),
    ]


def _read(stream, wanted, epoch):
    """(image or bytes, label, row, whether it is the row wanted)."""
    while True:
        row, is_itself = stream.schedule.readable(wanted, epoch)
        try:
            return *stream.examples.read(row), row, is_itself
        except (OSError, ValueError) as error:
            stream.schedule.unreadable.add(row, epoch, error)


# Traced once, not each time that a stream begins.


@functools.lru_cache(maxsize=16)
def _transform(transform, encoded, channels):
    """A function of a stored example: its transformed image, and what belongs to it."""
    import tensorflow as tf

    @tf.function
    def function(example):
        key = example["key"] if transform.is_random else None
        if encoded:
            image = _decoded(transform, example["image"], key, channels)
        else:
            image = transform_tf.apply(transform, example["image"], key)
        return image, example["label"], example["kept"], example["step"]

    return function


@functools.lru_cache(maxsize=16)
def _mix(classes, seed, mixup, cutmix):
    """A function of a batch for training: labels one-hot, images mixed."""
    import tensorflow as tf

    @tf.function
    def function(images, labels, kept, steps):
        labels = tf.one_hot(labels, classes)
        if mixup or cutmix:
            key = tf.stack([tf.constant(seed, tf.int64), steps[0]])
            images, labels = mix(images, labels, key, mixup, cutmix)
        return images, labels, kept, steps

    return function


def _decoded(transform, encoded, key, channels):
    import tensorflow as tf

    known = tf.reduce_any([tf.strings.substr(encoded, 0, len(m)) == m for m in _KNOWN])
    return tf.cond(
        known,
        lambda: transform_tf.apply_encoded(transform, encoded, key, channels),
        lambda: transform_tf.apply(transform, _with_pillow(encoded, channels), key),
    )


def _with_pillow(encoded, channels):
    import tensorflow as tf

    pixels = tf.numpy_function(
        lambda data: transform_numpy.decode(data, channels), [encoded], tf.uint8, stateful=False
    )
    pixels.set_shape([None, None, channels])
    return pixels


def _find_unreadable(stream, step, error):
    """Takes out the examples of a batch that TensorFlow cannot decode, or raises ValueError."""
    import tensorflow as tf

    found, epoch = len(stream.schedule.unreadable), stream.schedule.epoch(step)
    for wanted in stream.schedule.batch(step):
        payload, _, row, _ = _read(stream, wanted, epoch)
        key = tf.constant([stream.schedule.seed, epoch, row], tf.int64)
        key = key if stream.transform.is_random else None
        try:
            if stream.examples.encoded:
                _decoded(stream.transform, tf.constant(payload), key, stream.channels)
            else:
                transformed(stream, payload, key)
        except (tf.errors.OpError, ValueError) as reason:
            stream.schedule.unreadable.add(row, epoch, _first_line(reason))
    if len(stream.schedule.unreadable) == found:
        raise ValueError(
            f"Batch {step} of {stream.examples.name} cannot be made. Received: {error}"
        ) from error


def _first_line(error):
    return str(getattr(error, "message", error)).strip().splitlines()[0]
