"""A pipeline as data for `model.fit`, from any update on."""

import dataclasses
import itertools
import sys

import keras
import numpy as np


@dataclasses.dataclass(frozen=True)
class Segment:
    """A part of a run that one call of `model.fit` trains: whole epochs, or a part of one.

    Attributes:
        start: updates before it.
        epoch: its first epoch, counted from 0.
        epochs: the epoch after its last.
        steps: updates in each of its epochs.
        offset: updates of the first epoch that are done already.
    """

    start: int
    epoch: int
    epochs: int
    steps: int
    offset: int = 0

    @property
    def stop(self):
        return self.start + self.steps * (self.epochs - self.epoch)


def next_segment(start, total, per_epoch):
    """What comes first of the rest of a run: the rest of an epoch, whole ones, or a part of one."""
    epoch, offset = divmod(start, per_epoch)
    whole = (total - start) // per_epoch
    if offset or not whole:
        return Segment(start, epoch, epoch + 1, min(per_epoch - offset, total - start), offset)
    return Segment(start, epoch, epoch + whole, per_epoch)


def feeds(pipeline, start, total):
    """Pairs of a `Segment` and its `Feed`, which together make the rest of a run."""
    while start < total:
        segment = next_segment(start, total, pipeline.steps_per_epoch)
        feed = Feed(pipeline, segment.start, segment.stop)
        if feed.ends:
            segment = dataclasses.replace(segment, epochs=segment.epoch + 1)
        yield segment, feed
        feed.close()
        start = segment.stop


def as_pipeline(data):
    """What `fit` can train from.

    Raises:
        TypeError: it has no `from_step`.
    """
    if hasattr(data, "from_step") and hasattr(data, "steps_per_epoch"):
        return data
    raise TypeError(
        "The data must have `steps_per_epoch` and `from_step(step)`, which gives the batches from "
        "an update on, as what `keras_vit.data.pipeline` returns. "
        f"Received: {type(data).__name__}."
    )


class Feed:
    """The batches of a pipeline from one update to another, as `model.fit` takes them.

    A `tf.data.Dataset` goes to Keras as it is; everything else through one generator. To build a
    model Keras may read ahead in a generator and then begin it again, which would lose batches:
    on TensorFlow, where that happens, Keras gets a dataset that can begin again.

    Attributes:
        data: for `model.fit`.
        example: a batch of the same shapes and types, to build a model by.
        ends: whether `data` ends with the epoch it begins in.
    """

    def __init__(self, pipeline, start, stop):
        self._generator, self.ends = None, False
        source = pipeline.from_step(start)
        if _is_tf_dataset(source):
            self.data, self.ends = source, int(source.cardinality()) >= 0
            self.example = keras.tree.map_structure(_symbol, source.element_spec)
            return
        generator = stream(pipeline, start, stop, source)
        first = next(generator)
        self._generator = generator
        self.example = first
        self.data = itertools.chain([first], generator)
        if keras.backend.backend() == "tensorflow":
            self.data = _tf_dataset(self.data, first, pipeline, start, stop)
        else:
            self.data = (batch for batch in self.data)  # Keras knows generators, not chains

    def close(self):
        """Lets the pipeline end what it does in the background."""
        if self._generator is not None and not self._generator.gi_running:
            self._generator.close()


def stream(pipeline, start, stop, source=None):
    """The batches from `start` to `stop`, also of a pipeline that ends with each epoch."""
    step = start
    while step < stop:
        before = step
        for batch in pipeline.from_step(step) if source is None else source:
            yield tuple(batch) if isinstance(batch, list) else batch
            step += 1
            if step == stop:
                return
        source = None
        if step == before:
            raise ValueError(
                f"The data gave no batch from update {step} on, of a run that goes to {stop}; "
                "`from_step(step)` must give the batches from there to the end of the epoch, or on."
            )


def _tf_dataset(first_time, example, pipeline, start, stop):
    import tensorflow as tf

    once = [first_time]

    def batches():
        return once.pop() if once else stream(pipeline, start, stop)

    def spec(x):
        x = np.asarray(x)
        return tf.TensorSpec((None, *x.shape[1:]), x.dtype)

    signature = keras.tree.map_structure(spec, example)
    return tf.data.Dataset.from_generator(batches, output_signature=signature).prefetch(2)


def _is_tf_dataset(data):
    tf = sys.modules.get("tensorflow")
    return tf is not None and isinstance(data, tf.data.Dataset)


def _symbol(spec):
    return keras.KerasTensor(tuple(spec.shape), spec.dtype.name)
