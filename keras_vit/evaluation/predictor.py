"""What a model says about a batch, whatever its size, with one compiled function."""

import keras
import numpy as np

from keras_vit.checks import positive_int
from keras_vit.data.preprocess import preprocess
from keras_vit.evaluation.stream import to_numpy


class Predictor:
    """Calls a model on batches of one size, so that every backend compiles it once.

    A smaller batch is filled up with its last image and the surplus dropped; a larger one is cut.

    Args:
        model: any Keras model with one output.
        batch_size: images per call of the model; None takes the size of the first batch.
        stored: whether the images are pixels as stored, to be preprocessed for the model. Paths
            always are, and uint8 images where the model has a `preprocessing`.

    Raises:
        TypeError: not a Keras model.
    """

    def __init__(self, model, batch_size=None, stored=False):
        if not isinstance(model, keras.Model):
            raise TypeError(f"model must be a Keras model. Received: {type(model).__name__}")
        self.model, self.stored = model, stored
        self.batch_size = None if batch_size is None else positive_int(batch_size, "batch_size")

    def __call__(self, images):
        """The output for a batch of images as an array, (images, ...)."""
        images = self._prepared(images)
        self._check_shape(images)
        count = len(keras.tree.flatten(images)[0])
        self.batch_size = self.batch_size or count
        outputs = []
        for start in range(0, count, self.batch_size):
            part = _part(images, start, self.batch_size)
            output = self.model.predict_on_batch(part)
            if len(keras.tree.flatten(output)) != 1:
                raise ValueError(
                    "The model must have one output. Received: "
                    f"{type(self.model).__name__} {self.model.name!r} with "
                    f"{len(keras.tree.flatten(output))}; pick one: keras.Model(model.inputs, "
                    "model.outputs[0])"
                )
            outputs.append(to_numpy(keras.tree.flatten(output)[0])[: count - start])
        return np.concatenate(outputs)

    def _prepared(self, images):
        files = isinstance(images, list) or getattr(images, "dtype", np.dtype("f")).kind in "OSU"
        bytes_ = getattr(images, "dtype", None) == np.uint8
        if files or self.stored or (bytes_ and hasattr(self.model, "preprocessing")):
            return preprocess(list(images) if files else images, self.model)
        return images

    def _check_shape(self, images):
        """Before TensorFlow does, which calls a model again with shapes that it does not know."""
        expected = getattr(self.model, "input_shape", None)
        shape = getattr(images, "shape", None)
        if shape is None or not isinstance(expected, tuple) or not _are_sides(expected[1:]):
            return
        known = zip(shape[1:], expected[1:])
        if len(shape) != len(expected) or any(side not in (a, None) for a, side in known):
            raise ValueError(
                f"{self.model.name} takes images of shape {('batch', *expected[1:])}. Received: "
                f"shape {shape}; resize the images, or let keras_vit.data.preprocess do it"
            )


def _are_sides(shape):
    return all(side is None or isinstance(side, int) for side in shape)


def _part(images, start, size):
    """Rows start..start+size of each array, the last one repeated where they end."""

    def take(x):
        x = x[start : start + size]
        missing = size - len(x)
        return np.concatenate([x, np.repeat(x[-1:], missing, axis=0)]) if missing else x

    return keras.tree.map_structure(take, images)
