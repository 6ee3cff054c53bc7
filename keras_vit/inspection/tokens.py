"""The tokens on their way through a model, batch by batch."""

import keras
import numpy as np

from keras_vit.checks import positive_int
from keras_vit.inspection.backend import cached, inference


def iterate_outputs(model, tensors, key, images, batch_size):
    """For each batch of images: a list with the backend's tensor for each symbolic one.

    Args:
        model: a Functional model.
        tensors: symbolic tensors of its graph.
        key: what names this choice of tensors among those of the model.
        images: array, as the model takes them.
        batch_size: images at once.

    Yields:
        (tensors, count): the last batch may be filled up, only `count` rows of it are images.
    """

    def make():
        tapped = keras.Model(model.inputs, list(tensors))
        return inference(lambda x: tapped(x, training=False), tapped.variables)

    run = cached(model, key, make)
    for batch, count in batches(images, batch_size):
        yield keras.tree.flatten(run(batch)), count


def batches(images, batch_size):
    """The images in turn, all batches of one size, for which a backend compiles once."""
    size = min(positive_int(batch_size, "batch_size"), len(images))
    for start in range(0, len(images), size):
        batch = images[start : start + size]
        filling = np.repeat(batch[-1:], size - len(batch), axis=0)
        yield (np.concatenate([batch, filling]) if len(filling) else batch), len(batch)


def to_array(tensor):
    """A tensor as a NumPy array; bfloat16, which NumPy does not have, as float32."""
    if keras.backend.standardize_dtype(tensor.dtype) in ("bfloat16", "float16"):
        tensor = keras.ops.cast(tensor, "float32")
    return keras.ops.convert_to_numpy(tensor)


def as_list(tensors):
    """One tensor, or several, as a list."""
    return list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]
