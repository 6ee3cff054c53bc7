"""What goes into a file: the graph of a model, and what a program that runs it must know."""

import dataclasses
import json

import keras
import numpy as np

from keras_vit.data.pixels import per_channel
from keras_vit.data.preprocess import input_of
from keras_vit.heads import errors_of, heads_of, split
from keras_vit.models import BiTVariant
from keras_vit.outputs import reading_of
from keras_vit.version import __version__

LEAST_SIDE = 33  # of open images of BiT: one pixel is left of less, which PyTorch takes for fixed


@dataclasses.dataclass(frozen=True)
class Graph:
    """What goes into a file: a Keras model, and what the tools must know of its images.

    Attributes:
        model: of one input, with `None` for the sides that stay open.
        strides: what the height and the width of an image are multiples of.
        size: (height, width) of the model's own images.
    """

    model: keras.Model
    strides: tuple[int, int]
    size: tuple[int, int]

    @property
    def shape(self):
        return tuple(self.model.inputs[0].shape)

    @property
    def is_open(self):
        """Whether images of any size go in."""
        return None in self.shape[1:]

    def images(self, batch, larger=0, seed=0):
        """Random images of the model's size, with open sides by so many strides larger."""
        sides = [s + larger * n * stride * self.is_open for n, s, stride in self._sides()]
        shape = (batch, *sides, self.shape[3])
        random = np.random.default_rng(seed)
        if self.model.inputs[0].dtype == "uint8":
            return random.integers(0, 256, shape, "uint8")
        return random.uniform(-1, 1, shape).astype("float32")

    def _sides(self):
        return zip((1, 2), self.size, self.strides)


def served(model, preprocess, wanted=None):
    """The `Graph` of a model, as it takes images or with its preprocessing before it.

    `wanted` is what `input_of` says of the model.
    """
    shape, variant = tuple(model.inputs[0].shape[1:]), getattr(model, "variant", None)
    (size, channels, preprocessing), strides = wanted or input_of(model), (1, 1)
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
    outputs = split(x, heads_of(model), model.name)
    for head, reading in (readings(model) if preprocess else {}).items():
        if layer := reading.layer(name="probabilities" if head is None else None):
            outputs[head] = layer(outputs[head])
    if None in outputs:
        outputs = outputs[None]
    else:  # each has the name of its last layer
        outputs = {head: keras.layers.Identity(name=head)(y) for head, y in outputs.items()}
    return Graph(keras.Model(images, outputs, name=model.name), strides, size)


def readings(model):
    """{head: its `Reading`} of a model, {None: it} of one head, {} of one of features."""
    if getattr(model, "num_classes", None) == 0:
        return {}
    by_head = {}
    for head, one in (heads_of(model) or {None: model}).items():
        with errors_of(head):
            by_head[head] = reading_of(one)
    return by_head


def metadata(model, preprocess, wanted=None):
    """What a program that runs the file must know: {name: text}, JSON but for single words."""
    names, heads = getattr(model, "class_names", None), heads_of(model)
    if heads:
        by_head = {head: _of_output(one, preprocess) for head, one in heads.items()}
        of_outputs = {
            name: json.dumps({head: texts[name] for head, texts in by_head.items()})
            for name in ("output", "reading")
        }
    else:
        of_outputs = _of_output(model, preprocess)
    size, _, preprocessing = wanted or input_of(model)
    return {
        "keras_vit": __version__,
        "input": "uint8 pixels" if preprocess else "preprocessed pixels",
        **of_outputs,
        "image_size": json.dumps(size),
        "preprocessing": json.dumps(preprocessing.to_config()),
        **({"class_names": json.dumps(names)} if names else {}),
    }


def _of_output(model, preprocess):
    """What an output is, and how it is read."""
    if getattr(model, "num_classes", None) == 0:
        return {"output": "features"}
    try:
        reading = reading_of(model)
    except ValueError:  # which `preprocess` asks about
        return {"output": "logits", "reading": "unknown"}
    output = "probabilities" if preprocess or reading.applied else "logits"
    return {"output": reading.name if reading.name == "values" else output, "reading": reading.name}
