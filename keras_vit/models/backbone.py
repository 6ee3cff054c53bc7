"""The networks of this library inside of any Keras model."""

import collections
import contextlib
import functools
import threading

import keras
import numpy as np

from keras_vit.checks import are_alike
from keras_vit.heads import heads_of
from keras_vit.layers.layer import Layer
from keras_vit.layers.transformer_block import TransformerBlock
from keras_vit.models.bit import BiT, BiTVariant
from keras_vit.models.classifier import Classifier
from keras_vit.models.naflex import NaFlexVisionTransformer
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.text import brief

MODELS = {"VisionTransformer": VisionTransformer, "BiT": BiT}  # the classes with checkpoints


def backbone(model: keras.Model) -> VisionTransformer | BiT:
    """The `VisionTransformer` or `BiT` in a Keras model, by whose layers the model computes.

    It is the model itself, a layer of it or of a model inside, or an attribute of a subclass. Where
    a graph has its layers alone, as `keras.Model(vit.input, head(vit.output))`, the answer is a new
    model that shares them and their weights, with the blocks and the head that are among them.

    Raises:
        ValueError: the model holds none, or several, which are named.
    """
    networks = backbones(model)
    received = f"Received: {type(model).__name__} {getattr(model, 'name', model)!r}"
    if not networks:
        raise ValueError(
            "A model is needed that is a VisionTransformer or a BiT, or has one inside. "
            f"{received}, which has none."
        )
    if len(networks) > 1:
        raise ValueError(
            f"The model has {len(networks)} networks inside, and one is needed. {received}; "
            f"pass the one: {' or '.join(networks)}."
        )
    return next(iter(networks.values()))


def check_model(model, whole=False):
    """The `VisionTransformer` or `BiT` that a model is, or has inside (`backbone`).

    Raises:
        TypeError: the model has none.
        ValueError: the model has several; or, if `whole`, there is more to it than its network.
    """
    inside = backbones(model) if isinstance(model, keras.Model) else {}
    if any(isinstance(each, tuple(MODELS.values())) for each in inside.values()):
        network = backbone(model)
        if whole and not is_whole(model, network):
            others, heads = [v.path for v in outside(model)], ", ".join(map(repr, heads_of(model)))
            more = f"weights {brief(others)}" if others else "changes of images or outputs"
            owner = f" of a model with the heads {heads}" if heads else ""
            raise ValueError(
                f"What stands around the {type(network).__name__} in {model.name!r} has no place "
                f"here. Received: further {more}{owner}; give the network alone, "
                "keras_vit.backbone(model), or keep all with model.save(path)."
            )
        return network
    raise TypeError(
        "The model must be a keras_vit.VisionTransformer or a keras_vit.BiT, or have one inside. "
        f"Received: {model!r}. Take Keras's own load_weights and save_weights for any other model."
    )


def backbones(model):
    """Python's expression for the place of each network in a model -> the network, each once."""
    networks = {}
    _collect(model, "model", networks, {})
    return {place: network for network, place in networks.values()}


def _collect(layer, place, networks, seen):
    """Adds the networks in a layer to `networks`, as id -> (network, place)."""
    if isinstance(layer, (Classifier, NaFlexVisionTransformer)):
        networks[id(layer)] = layer, place
        return
    if id(layer) in seen:
        return
    seen[id(layer)] = layer
    parts = _parts(layer, place)
    first = next((part for part, _ in parts if isinstance(part, Layer) and part.model_record), None)
    if isinstance(layer, keras.Model) and first is not None:
        view = _view(layer, first)
        networks[id(view)] = view, f"keras_vit.backbone({place})" if place != "model" else place
    for part, name in parts:
        _collect(part, name, networks, seen)


def _parts(layer, place):
    """(layer, Python's expression for it) of each layer directly in another one."""
    parts, is_graph = [], getattr(layer, "inputs", None)
    children = getattr(layer, "named_children", dict)()  # of PyTorch's modules, beside `vars`
    for name, value in (vars(layer) | dict(children)).items():
        if is_graph or name.startswith("_"):  # lists that Keras keeps
            continue
        items = [(value, "")]
        if isinstance(value, dict):
            items = [(v, f"[{k!r}]") for k, v in value.items()]
        elif isinstance(value, (list, tuple)):
            items = [(v, f"[{i}]") for i, v in enumerate(value)]
        parts += [(x, f"{place}.{name}{key}") for x, key in items if isinstance(x, keras.Layer)]
    known = {id(part) for part, _ in parts}
    others = [part for part in getattr(layer, "layers", ()) if id(part) not in known]
    return parts + [(part, f"{place}.get_layer({part.name!r})") for part in others]


def _view(graph, first):
    """A model of those layers of a network that a graph has; `first` is the first of them."""
    record, names = first.model_record, tuple(layer.name for layer in graph.layers)
    if (view := record.views.get(names)) is not None:
        return view
    # In the order in which they run.
    layers = {x.name: x for x in graph.layers if type(x).__module__.startswith("keras_vit.")}
    v, classes = record.variant, record.num_classes if "head" in layers else 0
    ends = ["pool", "norm", "pre_logits", "projection", *(["head"] if classes else [])]
    if isinstance(v, BiTVariant):
        trunk = [layer for name, layer in layers.items() if name.startswith("stage_")]
        units = collections.Counter(layer.name.split("_")[1] for layer in trunk)  # of each stage
        v = v.replace(blocks=tuple(units.values()) or v.blocks)
    else:
        trunk = [layer for layer in layers.values() if isinstance(layer, TransformerBlock)]
        depth = len(trunk) // (v.block_layers // v.depth)
        fields = {"class_token": v.class_token}  # which another pool would reset
        if depth < v.depth:  # what follows the last of these blocks was left out
            ends = []
            # No variant has no block, where the graph may have none.
            fields |= {"depth": max(depth, 1), "representation_size": None, "projection": None}
        if "pool" not in layers or not ends:
            fields["pool"] = None
        if "norm" not in layers or not ends:
            fields["final_norm"] = False
        if fields.keys() & {"pool", "final_norm"}:
            fields["norm_after_pool"] = False
        if v.distillation and "pool" in fields:  # without its head the token is one more register
            fields |= {"distillation": False, "registers": v.registers + 1}
        v = v.replace(**fields)
    last = [layers[name] for name in layers if name in ends] or trunk or [*layers.values()]
    last = graph.get_layer("mean") if classes and "mean" in names else last[-1]
    view = record.model_class.__new__(record.model_class)  # whose constructor would make layers
    outputs = keras.tree.flatten(last.output)[0]
    Classifier.__init__(view, first.input, outputs, record, graph.name)
    view.variant, view.num_classes = v, classes
    record.views[names] = view
    return view


def count_blocks(model):
    """The number of blocks of the networks in a model, which agree; `None` for no blocks.

    Raises:
        ValueError: networks of different depths.
    """
    counts = {
        place: sum(layer.name.startswith("block_") for layer in network.layers)
        for place, network in (backbones(model) if model is not None else {}).items()
    }
    if len(set(counts.values())) > 1:
        raise ValueError(
            "layer_decay counts the blocks of one depth. Received: a model with blocks "
            f"{counts}; leave layer_decay out, or give an optimizer to each network."
        )
    return next(iter(counts.values()), 0) or None


def outside(model):
    """The variables of a model that belong to none of its networks."""
    inner = {id(v) for network in backbones(model).values() for v in network.variables}
    return [v for v in model.variables if id(v) not in inner and "seed_generator" not in v.path]


def is_whole(model, network):
    """Whether a model hands images to its network, and that one's outputs on, as they are."""
    if model is network or outside(model):
        return model is network
    image, shape = _random_image(model, network), [side or 1 for side in network.output_shape]
    # In place of the network's: negative ones, which no usual activation leaves as they are.
    outputs = -np.random.default_rng(1).integers(1, 9, shape).astype("float32")
    is_view = network.inputs[0] in getattr(model, "inputs", ())
    last = network.outputs[0]._keras_history.operation if is_view else network
    try:
        with replaced({last: lambda *args, **kwargs: keras.ops.convert_to_tensor(outputs)}):
            (given,) = keras.tree.flatten(model(image, training=False))
        return are_alike(entering(model, network, image), image) and are_alike(given, outputs)
    except Exception:  # of other inputs or outputs, or of the user's code
        return False


class _Reached(BaseException):
    """Ends a call of a model as soon as it has come to a layer."""


@contextlib.contextmanager
def replaced(calls):
    """Within it, `call` of layers is another function, in this thread: {layer: function}."""
    thread = threading.get_ident()

    def choose(call, function, *args, **kwargs):
        return (function if threading.get_ident() == thread else call)(*args, **kwargs)

    for layer, function in calls.items():
        layer.call = functools.partial(choose, layer.call, function)
    try:
        yield
    finally:
        for layer in calls:
            del layer.call


def entering(model, network, images):
    """What enters a network, one of the `backbones` of a model, in a call of the model on images.

    Raises:
        ValueError: the model does not call the network on images.
    """
    if model is network or network.inputs[0] in getattr(model, "inputs", ()):
        return images
    is_view = any(view is network for view in network.model_record.views.values())
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


def image_shape_of(model):
    """(height, width, channels) of the images of a model, each `None` where it is unknown."""
    shape = getattr(model, "input_shape", None)
    return shape[1:] if isinstance(shape, tuple) and len(shape) == 4 else (None, None, None)


def prepares_bytes(model):
    """Whether a model says how its images are prepared; one whose layers prepare them does not."""
    return hasattr(model, "preprocessing") or network_of_images(model, False) is not None


def owner_of_images(model):
    """The model, or the network in it, that says how the images of the model are prepared."""
    if hasattr(model, "preprocessing") or not getattr(model, "built", False):
        return model
    try:
        return network_of_images(model, required=False) or model
    except Exception:  # a model of the user's, which may refuse any image, is judged where it runs
        return model


def _random_image(model, network):
    """One that a model with this network in it takes."""
    of_network = (*network.image_size, network.channels)
    size = [side or its for side, its in zip(image_shape_of(model), of_network)]
    return np.random.default_rng(0).uniform(-1, 1, (1, *size)).astype("float32")


def network_of_images(model, required=True):
    """The network inside of a model that says how images are prepared, or `None`.

    Networks that want different images are a ValueError. So are layers that change pixels before a
    network, but if the network is not `required` they give `None`.
    """
    networks = backbones(model) if isinstance(model, keras.Model) else {}
    networks = {place: each for place, each in networks.items() if hasattr(each, "preprocessing")}
    if not networks:
        return None
    first = next(iter(networks.values()))
    advice = "Set model.preprocessing to what the model takes, or pass preprocessing=..."
    wanted = {(each.preprocessing, each.image_size, each.channels) for each in networks.values()}
    if len(wanted) > 1:
        text = "; ".join(f"{place}: {each.preprocessing}" for place, each in networks.items())
        raise ValueError(f"{model.name!r} has networks of different images: {text}. {advice}")
    image = _random_image(model, first)
    for place, each in networks.items():
        if not are_alike(entering(model, each, image), image):
            if not required:
                return None
            raise ValueError(
                f"{model.name!r} changes pixels before they reach {place}, and nothing says which "
                f"it takes. {advice}"
            )
    return first
