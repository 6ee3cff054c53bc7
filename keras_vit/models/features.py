"""Features: what a model computes between its images and its head, as a Keras model."""

import itertools
from collections.abc import Sequence

import keras

from keras_vit.heads import check_one_head, heads_of
from keras_vit.models.backbone import backbone
from keras_vit.models.classifier import Classifier
from keras_vit.models.intermediate import block_features, chosen
from keras_vit.models.trainer import Trainer
from keras_vit.text import brief

DEFAULTS = {"as_maps": True, "norm": True, "learned_tokens": False, "attention": False}


def features(
    model: keras.Model,
    layer: str | None = None,
    normalize: bool = False,
    *,
    blocks: int | str | Sequence[int] | None = None,
    as_maps: bool | None = None,
    norm: bool | None = None,
    learned_tokens: bool | None = None,
    attention: bool | None = None,
) -> keras.Model:
    """The model that gives features instead of classes; it shares the layers and their weights.

    Without `blocks` they are one vector for each image. Of a `VisionTransformer` or a `BiT` it is
    what the head reads (the mean, where two heads read class and distillation token), and the
    output, where the model has no head. Of any other Functional or Sequential Keras model it is
    what the last Dense layer reads, if nothing but an activation follows that layer, and the output
    if the model ends with neither.

    With `blocks` they are the patch tokens after some Transformer blocks, or the maps of a BiT's
    stages: input for segmentation, depth or detection. A model that contains one
    `VisionTransformer` or `BiT` gives those of that network alone, for the images that it takes. A
    model with `variable_size=True` takes images of any size here too.

    Args:
        model: a Keras model.
        layer: name of the layer whose output to take instead of what the head reads.
        normalize: whether each vector is divided by its length, as CLIP compares images.
        blocks: indices of blocks, negative ones counting from the last; a number n for the last n;
            or `"all"`. An axial block is two; those of a BiT are its stages.
        as_maps: with `blocks`: whether the patches stand in their rows and columns (the default),
            or one after the other in reading order.
        norm: with `blocks`: whether the model's last norm is applied to the tokens of each block
            (the default), as in DINOv2's features; a norm that follows the pooling never is. Of a
            BiT it belongs to the last stage.
        learned_tokens: with `blocks`: whether to give class and distillation token and registers
            too.
        attention: with `blocks`: whether to give the attention of each block too, (batch, heads,
            tokens, tokens), rows for queries.

    Returns:
        A Keras model with output (batch, features). With `blocks`, its outputs are a list, in the
        order of `blocks`, of (batch, rows, columns, width) or (batch, patches, width). With
        `learned_tokens` or `attention` they are a dict of such lists: `"maps"` or `"tokens"`, and
        `"learned_tokens"`, (batch, learned tokens, width), and `"attention"`. Of one block there is
        a tensor in place of each list, as Keras has it for models of one output.

    Raises:
        TypeError: not a Keras model, or one without a graph, as subclasses of `keras.Model` are.
        ValueError: no such layer or block, features that are no vectors, a head that is not known,
            or tokens that are no patches.

    Source: `get_intermediate_layers` of DINOv2 (Oquab et al., 2024).
    """
    if not isinstance(model, keras.Model) or getattr(model, "inputs", None) is None:
        raise TypeError(
            "Features are taken from the graph of a Functional or Sequential Keras model; of "
            "another, compute them yourself and pass (features, labels). Received: "
            f"{type(model).__name__}."
        )
    options = {
        "as_maps": as_maps,
        "norm": norm,
        "learned_tokens": learned_tokens,
        "attention": attention,
    }
    given = {name: value for name, value in options.items() if value is not None}
    if blocks is None and given:
        raise ValueError(
            f"{' and '.join(given)} speak of blocks; name them, such as blocks=[-1]. Received: "
            f"blocks=None, {', '.join(f'{name}={value}' for name, value in given.items())}."
        )
    if layer is not None and (blocks is not None or not isinstance(layer, str)):
        raise ValueError(
            "Choose the name of a layer, or blocks by their indices, as blocks=[2, 5]. Received: "
            f"layer={brief(layer)}, blocks={brief(blocks)}."
        )
    options = {"layer": layer, "normalize": bool(normalize)}
    if blocks is not None:
        model = backbone(model)
        flags = {name: bool(value) for name, value in (DEFAULTS | given).items()}
        options |= {"blocks": chosen(model, blocks), **flags}
    if isinstance(model, Classifier):
        return Features(model, **options)
    # A single input without its list, as arrays come; a Sequential model has only the list.
    inputs = model.inputs[0] if len(model.inputs) == 1 else model.input
    reduced = keras.Model(inputs, _outputs(model, **options), name=f"{model.name}_features")
    reduced.num_classes = 0
    for attribute in ("preprocessing", "image_size", "channels"):  # what `preprocess` asks for
        if hasattr(model, attribute):
            setattr(reduced, attribute, getattr(model, attribute))
    return reduced


@keras.saving.register_keras_serializable("keras_vit")
class Features(Trainer, keras.Model):
    """The features of a `VisionTransformer` or `BiT`: a Functional model of layers of the network.

    `options` are all options of `features`. The config holds the network's, so that a saved model
    opens with all that the network's file keeps: preprocessing, frozen, quantised, adapted layers.
    """

    num_classes = 0
    input_spec = None  # the network refuses wrong images, and says what to do

    def __init__(self, network, name=None, **options):
        name = name or f"{network.name}_features"
        super().__init__(network.inputs[0], _outputs(network, **options), name=name)
        # As a function, for the head of the network is no layer of this model.
        self._network, self._options = (lambda: network), options
        self.image_size, self.channels = network.image_size, network.channels

    preprocessing = property(  # of the network, which also gets it where it is set
        lambda self: self._network().preprocessing,
        lambda self, value: setattr(self._network(), "preprocessing", value),
    )

    def call(self, inputs, training=None, mask=None):
        return super().call(self._network().check_images(inputs), training=training, mask=mask)

    def compute_output_spec(self, inputs, training=None, mask=None):
        self._network().check_images(inputs)
        return super().compute_output_spec(inputs, training=training, mask=mask)

    def get_config(self):
        network = keras.saving.serialize_keras_object(self._network())
        return {"network": network, "name": self.name, **self._options}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        network = keras.saving.deserialize_keras_object(config["network"], custom_objects)
        return cls(**{**config, "network": network})


def _outputs(model, layer=None, normalize=False, blocks=None, **options):
    """The tensors of a model's graph that are features."""
    if blocks is None:
        return _vectors(model, layer, normalize)
    outputs = block_features(model, blocks, **options)
    for name in outputs if normalize else ():
        if name != "attention":
            outputs[name] = [_unit_length(x) for x in outputs[name]]
    if len(blocks) == 1:
        outputs = {name: tensor for name, (tensor,) in outputs.items()}
    return outputs if len(outputs) > 1 else next(iter(outputs.values()))


def _vectors(model, layer, normalize):
    output = _representation(model, layer)
    shape = tuple(getattr(output, "shape", ()))
    if len(shape) < 2 or any(side != 1 for side in shape[1:-1]):
        raise ValueError(
            "Features must be one vector per image, (batch, features); build the model with a pool "
            "other than None, name a layer after the pooling with layer=..., or take maps with "
            f"blocks=... Received: shape {shape} in {model.name!r}."
        )
    if len(shape) > 2:
        output = keras.layers.Reshape((shape[-1],))(output)
    return _unit_length(output) if normalize else output


def _unit_length(x):
    precise = keras.backend.result_type(x.dtype, "float32")
    return keras.layers.UnitNormalization(dtype=precise)(x)


def _representation(model, layer):
    if layer is not None:
        return model.get_layer(layer).output
    if heads := heads_of(model):
        first, *others = [_representation(one, None) for one in heads.values()]
        if any(x is not first for x in others):
            check_one_head(model, "Finding the features that a head reads, without layer=...,")
        return first
    if getattr(model, "num_classes", None) is not None and hasattr(model, "preprocessing"):
        if not model.num_classes:
            return model.outputs[0]
        read = model.get_layer("head").input
        if not getattr(model.variant, "distillation", False):
            return read
        other = model.get_layer("head_distillation").input
        return keras.layers.Average(dtype=read.dtype)([read, other])
    after = (keras.layers.Activation, keras.layers.Softmax, keras.layers.Dropout)
    ending = list(itertools.takewhile(lambda each: isinstance(each, after), model.layers[::-1]))
    last = model.layers[-1 - len(ending)]
    if isinstance(last, (keras.layers.Dense, keras.layers.EinsumDense)):
        return last.input
    if ending:  # the outputs may be probabilities of classes
        raise ValueError(
            f"{model.name} ends with no Dense layer; name the layer whose output the features are "
            f"with layer=... Received: {last.name!r}, then {[each.name for each in ending[::-1]]}."
        )
    is_graph = isinstance(last, keras.Model) and getattr(last, "outputs", None)
    if is_graph and (read := _representation(last, None)) is not last.outputs[0]:  # it has a head
        parts = model.layers if isinstance(model, keras.Sequential) else model.operations
        x = parts[-2].output if len(parts) > 1 else model.inputs[0]
        return keras.Model(last.inputs, read, name=last.name)(x)
    return model.outputs[0]
