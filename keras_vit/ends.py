"""What a model ends with, as its graph tells: a softmax, a sigmoid, logits, networks inside it."""

import re
import types
from collections.abc import Mapping

import keras

from keras_vit.heads import OF_HEADS, heads_of, of_head

# Layers and operations that leave each number as it is.
_PASSING = ("Dropout", "Identity", "Reshape", "Flatten", "Cast", "Squeeze", "ExpandDims")
_PASSING += ("Average", "Mean", "Stack", "Concatenate")  # of members that end alike
# Layers, operations and activations that give probabilities.
_ENDS = {"softmax": "softmax", "sparsemax": "softmax"}
_ENDS |= {"sigmoid": "sigmoid", "hardsigmoid": "sigmoid"}
# Other functions, after which outputs are no logits.
_FUNCTIONS = {
    "absolute",
    "exp",
    "prelu",
    *(name.replace("_", "") for name in dir(keras.activations)),
}
_FUNCTIONS -= {*_ENDS, "linear", "logsoftmax"}
# Those that leave each class in its place, whatever becomes of its number.
IN_PLACE = (*_PASSING, "InputLayer", "Activation", "Softmax", "Sigmoid", "LogSoftmax")
IN_PLACE += ("LogSigmoid", "Rescaling", "Exp", "Log", "Power", "Subtract", "Divide", "TrueDivide")
IN_PLACE += ("Add", "Maximum", "Minimum", "Multiply")  # of members with the same classes
IN_PLACE += ("UnitNormalization", "BatchNormalization", "LayerNormalization", "Normalize", "Norm")
# The layers of a network before its head, by name, and layers that take or average its tokens.
_BEFORE_HEAD = re.compile(
    r"patch_encoder|block_\d+|root|stage_\d+_unit_\d+|(pre_)?norm|pool|pre_logits|projection"
)
_POOLS = ("TokenPool", "ReLU", "GetItem", "GlobalAveragePooling1D", "GlobalAveragePooling2D")


def end_of(model):
    """What ends a model: "softmax", "sigmoid", "linear", another "function"; `None` if unknown."""
    ends = {end for end, _ in _branches(model)[0]}
    return ends.pop() if len(ends) == 1 else None


def _branches(model, kept=_PASSING):
    """[(end, network or head, or `None`)] of what makes outputs; whether all after it passes."""
    if _is_network(model):
        return [("linear", None)], True  # its head
    branches, left, passing, all_pass, changed, learned = [], 1, True, True, None, False
    parts = _parts_of(model)
    if not parts:  # only its code says what becomes of the outputs of the networks in it
        return [(None, network) for network in _networks_in(model)], False
    for part in reversed(parts):
        name, activation = type(part).__name__, getattr(part, "activation", None)
        called = getattr(activation, "__name__", type(activation).__name__).lower()
        is_linear = name == "Activation" and activation is keras.activations.linear
        # Layers that compute new outputs, such as `Dense`, have one of Keras's activations.
        is_new = getattr(keras.activations, called, 0) is activation and name != "Activation"
        called, own = called.replace("_", ""), name.lower()
        known = _ENDS.get(own) or _ENDS.get(called)
        is_head = part.name == "head" and type(part).__module__.startswith("keras_vit.")
        if isinstance(part, keras.Model) or _networks_in(part):
            makers = [(each and end_of(each), each) for each in _called(model, part, parts)]
        elif known and passing and name not in kept:
            makers = [(known, None)]
        elif known == "sigmoid" and left == 1 and not (learned or name in kept):
            makers, changed = [(known, None)], "function"  # such as percent
        elif is_head or (is_new and not known):
            end = "function" if called in _FUNCTIONS else "linear" if is_new else None
            makers = [(end, _record_of(model, part))]
        else:
            if passing and not is_new and name not in kept and {own, called} & _FUNCTIONS:
                changed = "function"
            learned = learned or bool(getattr(part, "weights", ()))
            passing = passing and (name in kept or is_linear)
            tensors = keras.tree.flatten(getattr(part, "input", None))
            left += max(len({id(tensor) for tensor in tensors}), 1) - 1
            continue
        branches += [(end if passing else changed, network) for end, network in makers]
        left, all_pass = left - len(makers), passing
        if left <= 0:
            break
    return branches, all_pass


def _parts_of(model):
    """The layers and operations of a graph in the order in which they run; () without a graph."""
    return getattr(model, "layers" if isinstance(model, keras.Sequential) else "operations", ())


def _called(model, part, parts):
    """What a graph takes of a model that it calls: the model, or those of its heads."""
    if not (heads := heads_of(part)):
        return [part]
    names = heads if not isinstance(part.output, Mapping) else sorted(heads)  # as Keras flattens
    tensors = keras.tree.flatten([model.outputs, [getattr(p, "input", None) for p in parts]])
    histories = [tensor._keras_history for tensor in tensors if tensor is not None]
    taken = {each.tensor_index for each in histories if each.operation is part}
    return [heads[name] for place, name in enumerate(names) if place in taken] or [None]


def _record_of(model, head):
    """What the `ModelRecord` of a network says of its head, or of one of several; `None` of others.

    The first layer keeps it where a graph took the layers of the network.
    """
    layers = [each for each in model.layers if not isinstance(each, keras.Model)]
    record = next(filter(None, (getattr(layer, "model_record", None) for layer in layers)), None)
    if record is None or not type(head).__module__.startswith("keras_vit."):
        return None
    if head.name == "head":
        return record
    values = {name: getattr(record, name) for name in OF_HEADS}
    if not any(isinstance(value, Mapping) for value in values.values()):
        return None
    values = {name: of_head(value, head.name) for name, value in values.items()}
    return types.SimpleNamespace(head_name=head.name, **values)


def _is_network(layer):
    """Whether a layer is a `Classifier`."""
    return hasattr(layer, "preprocessing") and hasattr(layer, "num_classes")


def _networks_in(layer):
    """Those among the parts of a layer or a model, which it may call in code of its own."""
    return [*filter(_is_network, getattr(layer, "_flatten_layers", list)())]


def inside(model, name, kept=_PASSING, otherwise=lambda network: None):
    """An attribute of each network that makes the outputs; whether all after them is of `kept`.

    `otherwise` gives it of a network or model inside that has none.
    """
    branches, passing = _branches(model, kept)
    values = []
    for end, network in branches:
        value = getattr(network, name, None)
        value = otherwise(network) if value is None else value
        if value is None and isinstance(network, keras.Layer):
            deeper, passes = inside(network, name, kept, otherwise)
            values, passing = values + deeper, passing and passes
        else:
            is_read = name == "reading" and network is None and end in _ENDS.values()
            values.append(end if is_read else value)
    return values, passing


def is_cut_before_head(model):
    """Whether a graph took the layers of a network up to one before its head, and only scales it.

    Other layers behind it, such as a product with prototypes of classes, may be a head.
    """
    for part in reversed(_parts_of(model)):
        if type(part).__module__.startswith("keras_vit.") and _BEFORE_HEAD.fullmatch(part.name):
            return True
        if type(part).__name__ not in (*IN_PLACE, *_POOLS):
            return False
    return False


def networks_at_end(model):
    """The networks with classes, or their records, that only activations and arithmetic follow.

    Those that are frozen are left out, as training changes nothing of them.
    """
    branches, is_in_place = _branches(model, IN_PLACE)
    networks = []
    own = [layer for layer in getattr(model, "layers", ()) if not isinstance(layer, keras.Model)]
    for _, network in branches if is_in_place else ():
        layers = [network] if isinstance(network, keras.Layer) else own  # of a record
        if not any(layer.trainable_weights for layer in layers):
            continue
        if getattr(network, "num_classes", None):
            networks.append(network)
        elif isinstance(network, keras.Layer):
            networks += networks_at_end(network)
    return networks


def known_of_end(model, name):
    """`class_names` or `label_set` of a model, or of the network inside whose classes it gives.

    These are classes in the same places: nothing but activations and arithmetic follows the
    network.

    Raises:
        ValueError: networks that are put together have different ones.
    """
    value = getattr(model, name, None)
    if value is not None or hasattr(model, "num_classes"):
        return value
    values, is_in_place = inside(model, name, IN_PLACE)
    values = {value if isinstance(value, str) else tuple(value) for value in values if value}
    if not is_in_place:
        return None
    if len(values) > 1:
        raise ValueError(
            f"The networks inside {model.name!r} must have the same {name}, in one order. "
            f"Received: {' and '.join(f'{value!r:.80}' for value in sorted(values))}; set "
            f"model.{name} to those of its outputs."
        )
    if not values:
        return None
    value, outputs = values.pop(), model.output_shape[-1]
    counts = (1, 2) if outputs == 1 else (outputs,)  # a single sigmoid may name its two classes
    return value if name != "class_names" or len(value) in counts else None
