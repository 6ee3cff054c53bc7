"""Whether an exported file computes what its model does, in the file's own runtime."""

import os

import keras
import numpy as np

from keras_vit import data
from keras_vit.data.pixels import per_channel
from keras_vit.exports.formats import FORMATS, is_installed, quiet

BATCHES = (1, 3, 7)  # the sizes that `check` compares
TOLERANCE = 1e-4


class ExportError(RuntimeError):
    """A model could not be exported, or its file computes something else."""


def told(error):
    """The class of an error of a tool, and the first line of its text."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


def real_images(model, preprocess, wanted, images=None):
    """Images as the file takes them, by default two photographs, or `None` where there are none."""
    size, channels, preprocessing = wanted  # as of `input_of`
    if images is None:
        if not is_installed("sklearn") or channels not in (1, 3):
            return None
        from sklearn.datasets import load_sample_images

        images = load_sample_images().images
    x = data.preprocess(images, model, preprocessing, size)
    if not preprocess:
        return x
    mean, std = per_channel(preprocessing, channels)
    return np.rint(255 * (x * std + mean)).clip(0, 255).astype("uint8")


def compare(graph, path, format, images=None):
    """The largest difference of an exported file from its graph, of any output.

    It is that of batches of 1, 3 and 7 random images, of one of another size where sides are open,
    and of `images`, if any; and relative to the largest output where that exceeds 1.

    Raises:
        ExportError: it exceeds 1e-4, or the file's runtime cannot open or run it.
    """
    batches = [graph.images(batch, seed=batch) for batch in BATCHES]
    batches += [graph.images(1, larger=1)] if graph.is_open else []
    batches += [] if images is None else [images]
    expected = [
        keras.tree.map_structure(keras.ops.convert_to_numpy, graph.model.predict_on_batch(x))
        for x in batches
    ]
    try:
        with quiet():
            run = FORMATS[format].open(os.fspath(path))
            received = [run(x) for x in batches]
    except Exception as error:
        raise ExportError(
            f"{FORMATS[format].runtime} cannot run what was written: {told(error)}"
        ) from error
    difference = max(_difference(*pair) for pair in zip(received, expected))
    if not difference <= TOLERANCE:
        raise ExportError(
            f"The exported file computes something else than {graph.model.name!r}: its outputs "
            f"differ by {difference:.1e}, which is more than {TOLERANCE:.0e}. Nothing was kept."
        )
    return difference


def _difference(received, expected):
    if isinstance(expected, dict):
        if not isinstance(received, dict) or set(received) != set(expected):
            return np.inf
        return max(_difference(received[head], expected[head]) for head in expected)
    if received.shape != expected.shape:
        return np.inf
    return float(np.abs(received - expected).max() / max(1.0, np.abs(expected).max()))
