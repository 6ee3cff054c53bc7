"""The networks of this library inside of any Keras model."""

import contextlib
import threading

import keras

from keras_vit.layers.layer import Layer
from keras_vit.layers.transformer_block import TransformerBlock
from keras_vit.models.bit import BiT
from keras_vit.models.classifier import Classifier
from keras_vit.models.naflex import NaFlexVisionTransformer
from keras_vit.models.vit import VisionTransformer
from keras_vit.text import brief

MODELS = {"VisionTransformer": VisionTransformer, "BiT": BiT}  # what checkpoints are of


def backbone(model: keras.Model) -> VisionTransformer | BiT:
    """The `VisionTransformer` or `BiT` in a Keras model, by whose layers the model computes.

    It may be the model itself; a layer of it or of a model in it; an attribute of a subclass; or
    have given its layers, as in `keras.Model(vit.input, head(vit.output))`. Of these a model is
    made, which shares them and their weights: with the blocks that are there, and with its head
    if that is there.

    Args:
        model: any Keras model that holds one.

    Raises:
        ValueError: it holds none, or several, which are named.
    """
    found = backbones(model)
    if len(found) == 1:
        return next(iter(found.values()))
    what = f"{type(model).__name__} {getattr(model, 'name', model)!r}"
    if not found:
        raise ValueError(
            "A model is needed that is a VisionTransformer or a BiT, or has one inside. Received: "
            f"{what}, which has none."
        )
    raise ValueError(
        f"The model has {len(found)} networks inside, and one is needed. Received: {what}; pass "
        f"the one: {' or '.join(found)}."
    )


def check_model(model, whole=False):
    """The `VisionTransformer` or `BiT` that a model is, or has inside (`backbone`).

    Raises:
        TypeError: it has none.
        ValueError: it has several; or, if `whole`, further layers with weights.
    """
    inside = backbones(model) if isinstance(model, keras.Model) else {}
    if any(isinstance(each, tuple(MODELS.values())) for each in inside.values()):
        network = backbone(model)
        if whole and (others := outside(model)):
            raise ValueError(
                f"What stands around the {type(network).__name__} in {model.name!r} has no place "
                f"here. Received: further weights {brief([v.path for v in others])}; give the "
                "network alone, keras_vit.backbone(model), or keep all with model.save(path)."
            )
        return network
    raise TypeError(
        "The model must be a keras_vit.VisionTransformer or a keras_vit.BiT, or have one inside. "
        f"Received: {model!r}. Take Keras's own load_weights and save_weights for any other model."
    )


def backbones(model):
    """Where each network is, as Python says it -> the network, each once."""
    return {place: found for found, place in _found(model, "model", {}).values()}


def _found(layer, place, seen):
    """id of each network that was found -> (network, place)."""
    if isinstance(layer, (Classifier, NaFlexVisionTransformer)):
        return {id(layer): (layer, place)}
    if id(layer) in seen:
        return {}
    seen[id(layer)] = layer
    children, found = _children(layer, place), {}
    ours = [each for each, _ in children if isinstance(each, Layer) and each.origin]
    first = ours[0] if ours else None
    if isinstance(layer, keras.Model) and first is not None:
        view = _view(layer, first)
        found[id(view)] = view, f"keras_vit.backbone({place})" if place != "model" else place
    for each, name in children:
        found |= _found(each, name, seen)
    return found


def _children(layer, place):
    """(layer, how Python calls it) for each layer right in another."""
    if isinstance(getattr(layer, "layers", None), list) and getattr(layer, "inputs", None):
        return [(each, f"{place}.get_layer({each.name!r})") for each in layer.layers]
    found = []
    for name, value in vars(layer).items():
        if name.startswith("_"):  # Keras's own lists
            continue
        items = [(value, f"{place}.{name}")]
        if isinstance(value, dict):
            items = [(v, f"{place}.{name}[{k!r}]") for k, v in value.items()]
        elif isinstance(value, (list, tuple)):
            items = [(v, f"{place}.{name}[{i}]") for i, v in enumerate(value)]
        found += [(each, name) for each, name in items if isinstance(each, keras.Layer)]
    known = {id(each) for each, _ in found}
    others = [each for each in getattr(layer, "layers", ()) if id(each) not in known]
    return found + [(each, f"{place}.get_layer({each.name!r})") for each in others]


def _view(graph, first):
    """The model of the layers of a network that are in a graph, of which `first` is one."""
    names = tuple(layer.name for layer in graph.layers)
    view = first.origin.views.get(names)
    if view is not None:
        return view
    origin, layers = first.origin, {layer.name: layer for layer in graph.layers}
    v, classes = origin.variant, origin.common["num_classes"]
    of_library = lambda name: type(layers[name]).__module__.startswith("keras_vit.")  # noqa: E731
    ends = ["mean", "head", "projection", "pre_logits", "norm", "pool"]
    ends = [name for name in ends if name in layers and (name == "mean" or of_library(name))]
    if not classes or "head" not in ends:
        classes, ends = 0, [name for name in ends if name not in ("mean", "head")]
    changes = {"num_classes": classes}
    blocks = [layer for layer in graph.layers if isinstance(layer, TransformerBlock)]
    if hasattr(v, "block_layers"):
        count = len(blocks) // (v.block_layers // v.depth)
        if count < v.depth:  # the rest, and what follows, was left out
            ends = []
            changes["variant"] = v.replace(depth=count, final_norm=False, pool=None,
                representation_size=None, projection=None)  # fmt: skip
        else:
            lacks = {} if "pool" in layers or v.pool is None else {"pool": None}
            lacks |= {} if "norm" in layers or not v.final_norm else {"final_norm": False}
            changes["variant"] = v.replace(**lacks)
    outputs = layers[ends[0]].output if ends else keras.tree.flatten(blocks[-1].output)[0]
    if "norm" in ends[:1] and "pool" in layers and not v.norm_after_pool:
        reads_many = v.pool in ("mean", "token_mean", "map", "probe")
        outputs = layers["pool"].output if reads_many else layers["norm"].output
    view = origin.model_class.of_graph(first.input, outputs, origin, graph.name, **changes)
    origin.views[names] = view
    return view


def count_blocks(model):
    """The blocks of the network in a model, frozen ones too; `None` where there is none.

    Raises:
        ValueError: networks of different depths.
    """
    found = {
        place: sum(layer.name.startswith("block_") for layer in network.layers)
        for place, network in (backbones(model) if model is not None else {}).items()
    }
    if len(set(found.values())) > 1:
        raise ValueError(
            "layer_decay counts the blocks of one depth. Received: a model with blocks "
            f"{found}; leave layer_decay out, or give an optimizer to each network."
        )
    return next(iter(found.values()), 0) or None


def outside(model):
    """The variables of a model that belong to none of its networks."""
    inner = {id(v) for network in backbones(model).values() for v in network.variables}
    return [v for v in model.variables if id(v) not in inner and "seed_generator" not in v.path]


class _Reached(BaseException):
    """Ends a call of a model as soon as it has come to a layer."""


@contextlib.contextmanager
def replaced(calls):
    """Within it, layers compute other functions, in this thread: {layer: function}.

    A function takes the arguments of the layer's `call`.
    """
    thread = threading.get_ident()

    def here(own, function):
        return lambda *a, **k: (function if threading.get_ident() == thread else own)(*a, **k)

    for layer, function in calls.items():
        layer.call = here(layer.call, function)
    try:
        yield
    finally:
        for layer in calls:
            del layer.call


def entering(model, network, images):
    """What enters a network when the model around it is called with images.

    Args:
        model: any Keras model of one tensor of images.
        network: one of its `backbones`.
        images: an array (images, height, width, channels).

    Raises:
        ValueError: the model does not call the network on images.
    """
    if model is network or network.inputs[0] in getattr(model, "inputs", ()):
        return images
    is_view = any(view is network for view in network.origin.views.values())
    first = network.layers[1] if is_view else network
    reached = []

    def stop(x, *args, **kwargs):
        reached.append(x)
        raise _Reached

    with contextlib.suppress(_Reached), replaced({first: stop}):
        model(images, training=False)
    if not reached:
        raise ValueError(
            f"{model.name!r} does not call {network.name!r} on its images; look into the network "
            "itself, keras_vit.backbone(model)."
        )
    return keras.ops.convert_to_numpy(keras.tree.flatten(reached[0])[0])
