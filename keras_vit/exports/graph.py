"""What goes into a file: the graph of a model, and what a program that runs it must know."""

import dataclasses
import json

import keras
import numpy as np

from keras_vit.data.pixels import per_channel
from keras_vit.heads import errors_of, heads_of, split
from keras_vit.models import BiTVariant
from keras_vit.outputs import reading_of
from keras_vit.version import __version__

LEAST_SIDE = 33  # of open images of BiT: one pixel is left of less, which PyTorch takes for fixed


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
    def shape(self):
        return tuple(self.model.inputs[0].shape)

    @property
    def is_open(self):
        """Whether images of any size go in."""
        return None in self.shape[1:]

    def images(self, batch, larger=0, seed=0):
        """Random images of the model's size; open sides are longer by `larger` strides and more."""
        more = larger * np.array([1, 2]) * self.strides if self.is_open else 0
        shape = (batch, *(np.array(self.size) + more).tolist(), self.shape[3])
        random = np.random.default_rng(seed)
        if self.model.inputs[0].dtype == "uint8":
            return random.integers(0, 256, shape, "uint8")
        return random.uniform(-1, 1, shape).astype("float32")


def served(model, preprocess, wanted):
    """The `Graph` of a model, as it takes images or with its preprocessing before it.

    `wanted` is what `input_of` says of the model.
    """
    (size, channels, preprocessing), variant = wanted, getattr(model, "variant", None)
    shape, strides = tuple(model.inputs[0].shape[1:]), (1, 1)
    if isinstance(variant, BiTVariant):
        # The tools cannot see that the two branches of a unit of v1 halve any side alike.
        strides = (2 ** (len(variant.blocks) + 1),) * 2 if variant.version == "v1" else (1, 1)
        if min(size) < LEAST_SIDE:
            shape = (*size, channels)
    elif variant is not None:
        strides = variant.stride
    if preprocess:
        mean, std = per_channel(preprocessing, channels)
        x = images = keras.Input(shape, dtype="uint8", name="images")
        factors = (1 / (255 * std)).tolist(), (-mean / std).tolist()
        x = model(keras.layers.Rescaling(*factors, dtype="float32")(x))
    else:
        images = keras.Input(shape, dtype=model.inputs[0].dtype, name="images")
        x = model(images)
    heads, names = heads_of(model), getattr(model, "class_names", None)
    outputs, texts = split(x, heads, model.name), {}
    for head, one in (heads or {None: model}).items():
        with errors_of(head):
            layer, texts[head] = _end(one, preprocess, None if heads else "probabilities")
        outputs[head] = layer(outputs[head]) if layer else outputs[head]
    if heads:  # each output has the name of its last layer
        outputs = {head: keras.layers.Identity(name=head)(y) for head, y in outputs.items()}
        of_outputs = {
            name: json.dumps({head: of_head[name] for head, of_head in texts.items()})
            for name in ("output", "reading")
        }
    else:
        outputs, of_outputs = outputs[None], texts[None]
    texts = {
        "keras_vit": __version__,
        "input": "uint8 pixels" if preprocess else "preprocessed pixels",
        **of_outputs,
        "image_size": json.dumps(size),
        "preprocessing": json.dumps(preprocessing.to_config()),
        **({"class_names": json.dumps(names)} if names else {}),
    }
    return Graph(keras.Model(images, outputs, name=model.name), strides, size, texts)


def _end(model, preprocess, name):
    """The layer of this name that reads an output in the file, or `None`; and what tells of it."""
    if getattr(model, "num_classes", None) == 0:
        return None, {"output": "features"}
    try:
        reading = reading_of(model)
    except ValueError:
        if preprocess:
            raise
        return None, {"output": "logits", "reading": "unknown"}
    output = "probabilities" if preprocess or reading.applied else "logits"
    output = reading.name if reading.name == "values" else output
    layer = reading.layer(name) if preprocess else None
    return layer, {"output": output, "reading": reading.name}
