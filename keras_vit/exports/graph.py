"""What goes into a file: the graph of a model, what programs must know of it, and its check."""

import dataclasses
import json
import os

import keras
import numpy as np

from keras_vit.data.pixels import per_channel
from keras_vit.data.preprocess import input_of, preprocess
from keras_vit.ends import end_of, known_of_end
from keras_vit.exports.formats import FORMATS, LEAST_SIDE, is_installed, quiet
from keras_vit.heads import errors_of, heads_of, split
from keras_vit.models import BiTVariant
from keras_vit.outputs import gives_features, reading_of
from keras_vit.preprocessing import Preprocessing
from keras_vit.version import __version__

BATCHES = (1, 3, 7)  # the sizes that a check compares
TOLERANCE = 1e-4


class ExportError(RuntimeError):
    """A model could not be exported, or its file computes something else."""


@dataclasses.dataclass(frozen=True)
class Graph:
    """What goes into a file: a Keras model, and what tools and programs must know of it.

    Attributes:
        model: of one input, with `None` for the sides that stay open.
        strides: what the height and the width of an image are multiples of.
        size: (height, width) of the model's own images.
        texts: the metadata of the file: {name: text}, JSON but for single words.
    """

    model: keras.Model
    strides: tuple[int, int]
    size: tuple[int, int]
    texts: dict[str, str]

    @property
    def is_open(self):
        """Whether images of any size go in."""
        return None in self.model.inputs[0].shape[1:]

    def images(self, batch, larger=0, seed=0):
        """Random images of the model's size; open sides are longer by `larger` strides and more."""
        more = larger * np.array([1, 2]) * self.strides if self.is_open else 0
        images, random = self.model.inputs[0], np.random.default_rng(seed)
        shape = (batch, *(np.array(self.size) + more).tolist(), images.shape[3])
        if images.dtype == "uint8":
            return random.integers(0, 256, shape, "uint8")
        return random.uniform(-1, 1, shape).astype("float32")


def served(model, takes_pixels):
    """The `Graph` of a model, or of its preprocessing and the model where it takes pixels."""
    (size, channels, preprocessing), variant = input_of(model), getattr(model, "variant", None)
    shape, strides = tuple(model.inputs[0].shape[1:]), (1, 1)
    if isinstance(variant, BiTVariant):
        # The tools cannot see that the two branches of a unit of v1 halve any side alike.
        strides = (2 ** (len(variant.blocks) + 1),) * 2 if variant.version == "v1" else (1, 1)
        if min(size) < LEAST_SIDE:
            shape = (*size, channels)
    elif variant is not None:
        strides = variant.stride
    if takes_pixels:
        mean, std = per_channel(preprocessing, channels)
        x = images = keras.Input(shape, dtype="uint8", name="images")
        factors = (1 / (255 * std)).tolist(), (-mean / std).tolist()
        x = model(keras.layers.Rescaling(*factors, dtype="float32")(x))
    else:
        images = keras.Input(shape, dtype=model.inputs[0].dtype, name="images")
        x = model(images)
    heads, names, ends = heads_of(model), {}, {}
    outputs, name = split(x, heads, model.name), None if heads else "probabilities"
    for head, one in (heads or {None: model}).items():
        names[head] = known_of_end(one, "class_names")
        with errors_of(head):
            layer, ends[head] = _end(one, takes_pixels, name, (2, *size, channels))
        if (ends[head].get("reading"), one.output_shape[-1]) == ("sigmoid", 1):
            names[head] = (names[head] or ("1",))[-1:]  # of two names, that of its probability
        outputs[head] = layer(outputs[head]) if layer else outputs[head]
    texts = {
        "keras_vit": __version__,
        "input": "uint8 pixels" if takes_pixels else "preprocessed pixels",
        "image_size": json.dumps(size),
        "preprocessing": json.dumps(preprocessing.to_config()),
    }
    if any(names.values()):
        texts["class_names"] = json.dumps(names if heads else names[None])
    if heads:  # each output has the name of its last layer
        outputs = {
            head: keras.layers.Identity(dtype="float32", name=head)(y)
            for head, y in outputs.items()
        }
        for name in ("output", "reading"):
            texts[name] = json.dumps({head: end[name] for head, end in ends.items()})
    else:
        outputs, texts = outputs[None], texts | ends[None]
    return Graph(keras.Model(images, outputs, name=model.name), strides, size, texts)


def _end(model, takes_pixels, name, shape):
    """The layer of this name that reads an output in the file, or `None`; and what tells of it."""
    if getattr(model, "num_classes", None) == 0:
        return None, {"output": "features"}
    try:
        reading = reading_of(model)
    except ValueError:
        if gives_features(model):
            return None, {"output": "features"}
        if takes_pixels:
            raise
        output = "logits" if end_of(model) == "linear" else "unknown"
        return None, {"output": output, "reading": "unknown"}
    if reading.applied is None:
        images = np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")
        (outputs,) = keras.tree.flatten(model.predict_on_batch(images))
        reading = reading.decided(keras.ops.convert_to_numpy(outputs))
    output = "probabilities" if takes_pixels or reading.applied else "logits"
    output = reading.name if reading.name == "values" else output
    layer = reading.layer(name) if takes_pixels else None
    return layer, {"output": output, "reading": reading.name}


def real_images(graph, images):
    """Images as the file takes them, by default two photographs, or `None` where there are none."""
    (*_, channels), dtype = graph.model.inputs[0].shape, graph.model.inputs[0].dtype
    if images is None and is_installed("sklearn") and channels in (1, 3):
        from sklearn.datasets import load_sample_images

        images = load_sample_images().images
    if images is None:
        return None
    preprocessing = Preprocessing.from_config(json.loads(graph.texts["preprocessing"]))
    x = preprocess(images, graph.model, preprocessing, graph.size)
    mean, std = per_channel(preprocessing, channels)
    return np.rint(255 * (x * std + mean)).clip(0, 255).astype(dtype) if dtype == "uint8" else x


def compare(graph, path, format, images=None, model=None):
    """The largest difference of an exported file from its graph, of any output.

    Of a file that takes pixels, it is that from what `keras_vit.predict` reads of the `model`.
    Compared are batches of 1, 3 and 7 random images, one of another size where sides are open, and
    `images`, if any. It is relative to the largest output where that exceeds 1. An ExportError says
    that it exceeds 1e-4, or that the file's runtime cannot open or run the file.
    """
    batches = [graph.images(batch, seed=batch) for batch in BATCHES]
    batches += [graph.images(1, larger=1)] if graph.is_open else []
    batches += [] if images is None else [images]
    try:
        with quiet():
            run = FORMATS[format].open(os.fspath(path))
            received = [run(x) for x in batches]
    except Exception as error:
        raise ExportError(
            f"{FORMATS[format].runtime} cannot run what was written: {told(error)}"
        ) from error
    expected = (_expected(graph, model, x) for x in batches)
    difference = max(_difference(*pair) for pair in zip(received, expected))
    if not difference <= TOLERANCE:
        raise ExportError(
            f"The exported file computes something else than {graph.model.name!r}: its outputs "
            f"differ by {difference:.1e}, which is more than {TOLERANCE:.0e}. Nothing was kept."
        )
    return difference


def _expected(graph, model, images):
    """What a file must give for images; of no `model`, it is what its graph gives."""
    if model is None or graph.texts["input"] != "uint8 pixels":
        return graph.model.predict_on_batch(images)
    preprocessing = Preprocessing.from_config(json.loads(graph.texts["preprocessing"]))
    mean, std = per_channel(preprocessing, images.shape[-1])
    outputs = model.predict_on_batch(((images / 255 - mean) / std).astype("float32"))
    if graph.texts["output"] == "features":
        return outputs
    heads = heads_of(model)
    outputs = split(keras.tree.map_structure(keras.ops.convert_to_numpy, outputs), heads)
    read = {head: reading_of(heads.get(head, model)).scores(y) for head, y in outputs.items()}
    return read if heads else read[None]


def _difference(received, expected):
    if isinstance(expected, dict):
        if not isinstance(received, dict) or received.keys() != expected.keys():
            return np.inf
        return max(_difference(received[head], expected[head]) for head in expected)
    expected = keras.ops.convert_to_numpy(expected)
    if received.shape != expected.shape:
        return np.inf
    return float(np.abs(received - expected).max() / max(1.0, np.abs(expected).max()))


def told(error):
    """The class of an error of a tool, and the first line of its text."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
