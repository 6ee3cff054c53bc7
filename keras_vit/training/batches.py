"""The batches of a run, from any one on, as `model.fit` takes them."""

import itertools

import keras
import numpy as np

from keras_vit.training.losses import check_labels


class Batches:
    """The batches of a run from where it is, an epoch at a time.

    Args:
        pipeline: see `training.fit`.
        progress: the run's `Progress`.
        model: whose classes the labels must fit.
        reads_ahead: whether the model is trained on several devices.

    Attributes:
        example: a batch, to build a model by.
    """

    def __init__(self, pipeline, progress, model, reads_ahead=False):
        self.pipeline, self.progress, self.model = pipeline, progress, model
        self.reads_ahead = reads_ahead
        rest = self.stream(progress.batch, progress.total)
        first = next(rest, None)
        self.rest = itertools.chain([first], rest)
        self.example = first or next(self.stream(0, 1))

    def take(self, count):
        """The next batches, for `model.fit`."""
        batches, start = itertools.islice(self.rest, count), self.progress.batch
        if keras.backend.backend() != "tensorflow":
            return (batch for batch in batches)  # Keras knows generators
        import tensorflow as tf

        def begin():
            # With several devices Keras reads a batch to see what comes, and then begins again.
            return self.stream(start, start + count) if self.reads_ahead else batches

        def spec(x):
            x = np.asarray(x)
            return tf.TensorSpec((None, *x.shape[1:]), x.dtype)

        signature = keras.tree.map_structure(spec, self.example)
        return tf.data.Dataset.from_generator(begin, output_signature=signature).prefetch(2)

    def stream(self, start, stop):
        """The batches from `start` to `stop`, also of a pipeline that ends with each epoch."""
        batch = start
        while batch < stop:
            before = batch
            for each in self.pipeline.from_step(batch):
                each = tuple(each) if isinstance(each, list) else each
                check_labels(self.model, each)
                yield each
                batch += 1
                if batch == stop:
                    return
            if batch == before:
                raise ValueError(
                    f"The data gave no batch from batch {batch} on, of a run that goes to {stop}; "
                    "`from_step(step)` must give those from there to the end of the epoch, or on."
                )
