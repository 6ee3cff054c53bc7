"""What a model ends with, as its graph tells: a softmax, a sigmoid, logits, networks inside it."""

import keras

from keras_vit.heads import heads_of

# Layers and operations that leave each number as it is.
_PASSING = ("Dropout", "Identity", "Reshape", "Flatten", "Cast", "Squeeze", "ExpandDims")
_PASSING += ("Average", "Mean", "Stack", "Concatenate")  # of members that end alike
# Layers, operations and activations that give probabilities.
_ENDS = {"softmax": "softmax", "sparsemax": "softmax"}
_ENDS |= {"sigmoid": "sigmoid", "hardsigmoid": "sigmoid"}
# Those that leave each class in its place, whatever becomes of its number.
_IN_PLACE = (*_PASSING, "InputLayer", "Activation", "Softmax", "Sigmoid", "LogSoftmax")
_IN_PLACE += ("LogSigmoid", "Rescaling", "Exp", "Log", "Power", "Subtract", "Divide", "TrueDivide")
_IN_PLACE += ("Add", "Maximum", "Minimum", "Multiply")  # of members with the same classes


def end_of(model):
    """What a model ends with: "softmax", "sigmoid", or "linear" of logits; `None` if unknown."""
    ends = {end for end, _ in _branches(model)[0]}
    return ends.pop() if len(ends) == 1 else None


def _branches(model, kept=_PASSING):
    """[(end, network inside or `None`)] of what makes outputs; whether all after them passes."""
    if _is_network(model):
        return [("linear", None)], True  # its head
    branches, left, passing, all_pass = [], 1, True, True
    parts = getattr(model, "layers" if isinstance(model, keras.Sequential) else "operations", ())
    if not parts:  # only its code says what becomes of the outputs of the networks in it
        return [(None, network) for network in _networks_in(model)], False
    for part in reversed(parts):
        name, activation = type(part).__name__, getattr(part, "activation", None)
        called = getattr(activation, "__name__", type(activation).__name__).lower()
        is_linear = name == "Activation" and activation is keras.activations.linear
        known = _ENDS.get(name.lower()) or _ENDS.get(called.replace("_", ""))
        # Layers that compute new outputs, such as `Dense`, have one of Keras's activations.
        is_new = getattr(keras.activations, called, 0) is activation and name != "Activation"
        is_head = part.name == "head" and type(part).__module__.startswith("keras_vit.")
        if isinstance(part, keras.Model) or _networks_in(part):
            if heads := heads_of(part):  # called, with outputs of the same names
                part = heads.get(getattr(model, "head_name", None))
                part = None if part is None or part.output_shape != model.output_shape else part
            branch = (None, None) if part is None else (end_of(part), part)
        elif known and passing and name not in kept:
            branch = known, None
        elif is_head or (is_new and not known):
            # A graph that took the layers of a model, with its head: the first keeps its `Origin`.
            layers = [each for each in model.layers if not isinstance(each, keras.Model)]
            origins = [getattr(layer, "origin", None) for layer in layers if is_head]
            branch = "linear" if is_new else None, next(filter(None, origins), None)
        else:
            passing = passing and (name in kept or is_linear)
            tensors = keras.tree.flatten(getattr(part, "input", None))
            left += max(len({id(tensor) for tensor in tensors}), 1) - 1
            continue
        branches.append((branch[0] if passing else None, branch[1]))
        left, all_pass = left - 1, passing
        if not left:
            break
    return branches, all_pass


def _is_network(layer):
    """Whether a layer is a `Classifier`."""
    return hasattr(layer, "preprocessing") and hasattr(layer, "num_classes")


def _networks_in(layer):
    """Those among the parts of a layer or a model, which it may call in code of its own."""
    return [*filter(_is_network, getattr(layer, "_flatten_layers", list)())]


def inside(model, name, kept=_PASSING):
    """An attribute of each network that makes the outputs; whether all after them is of `kept`."""
    branches, passing = _branches(model, kept)
    values = []
    for end, network in branches:
        value = getattr(network, name, None)
        if value is None and isinstance(network, keras.Layer):
            deeper, passes = inside(network, name, kept)
            values, passing = values + deeper, passing and passes
        else:
            is_read = name == "reading" and network is None and end != "linear"
            values.append(end if is_read else value)
    return values, passing


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
    values, is_in_place = inside(model, name, _IN_PLACE)
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
