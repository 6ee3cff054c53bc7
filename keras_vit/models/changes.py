"""Layers that are no longer as a model made them: quantised, with LoRA, or of another dtype."""

import functools
import itertools
import json

import keras

_CHANGES = ("dtype", "quantization_config", "lora_rank", "lora_alpha")  # of a layer's config


def changed_layers(model):
    """What makes the layers of a new model those of this one.

    Returns:
        A dict from the path of each changed layer with weights to a part of its config.
    """
    changed = {}
    for path in _layer_paths(model):
        layer = _layer(model, path)
        if layer is None:
            continue
        policy = model.dtype_policy
        if path == "head":  # see `linear_head`
            policy = keras.DTypePolicy(policy.variable_dtype)
        if layer.dtype_policy != policy or getattr(layer, "lora_enabled", False):
            config = layer.get_config()
            changed[path] = {key: config[key] for key in _CHANGES if config.get(key)}
    return json.loads(json.dumps(changed))  # with lists for tuples, as a file gives it back


def change_layers(model, changed):
    """Quantises and adapts layers as `changed_layers` found them; what the model lacks is left out.

    The values of the variables are not those of the other model.

    Args:
        model: a new model.
        changed: what `changed_layers` returned.
    """
    for path, config in changed.items():
        layer = _layer(model, path)
        if layer is None:
            continue
        policy = keras.dtype_policies.get(config["dtype"])
        if policy.quantization_mode:
            how = keras.saving.deserialize_keras_object(config.get("quantization_config"))
            # The model does it, because it has to forget the kernel in its own lists too.
            model.quantize(policy.quantization_mode, how, filters=lambda x, one=layer: x is one)
        layer.dtype_policy = policy
        if config.get("lora_rank"):
            layer.enable_lora(config["lora_rank"], lora_alpha=config["lora_alpha"])


def _layer_paths(model):
    """The paths of the layers with weights, of outer ones before those in them."""
    parts = (variable.path.split("/")[:-1] for variable in model.weights)
    return dict.fromkeys(p for some in parts for p in itertools.accumulate(some, "{}/{}".format))


def _layer(model, path):
    """The layer at a path whose parts are also attributes, or `None`."""
    first, *rest = path.split("/")
    top = {layer.name: layer for layer in model.layers}.get(first)
    found = functools.reduce(lambda layer, name: getattr(layer, name, None), rest, top)
    return found if isinstance(found, keras.Layer) else None
