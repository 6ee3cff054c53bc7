"""How the layers of a model were quantised, adapted and frozen, as a part of its config."""

import functools
import json
import operator

import keras

from keras_vit.layers.head import head_policy
from keras_vit.workarounds import policy_at

KEPT = ("dtype", "quantization_config", "lora_rank", "lora_alpha")  # of the config of a layer


def changes_of(model):
    """The changed layers and the frozen variables of a model, as a part of its config."""
    frozen = [v.path for v in model.weights if not v.trainable]
    return {"changed_layers": changed_layers(model), "frozen": frozen}


def apply_changes(model, changed_layers=None, frozen=None):
    """Changes a new model as the one that `changes_of` has described."""
    _change_layers(model, changed_layers or {})
    frozen = set(frozen or ())
    # Whole layers as such, so that `layer.trainable` says so too; then single variables.
    for layer in model.layers:
        inside = {v.path for v in layer.weights}
        if inside and inside <= frozen:
            layer.trainable = False
    for variable in model.trainable_variables:
        variable.trainable = variable.path not in frozen


def changed_layers(model):
    """Path of each layer that was quantised, adapted or given a dtype -> a part of its config."""
    changed = {}
    for path, layer in _layers_with_weights(model).items():
        policy = model.dtype_policy
        if path in ("head", "head_distillation"):
            policy = head_policy(policy)
        present = policy_at(layer.dtype_policy, path)
        if present != policy_at(policy, path) or getattr(layer, "lora_enabled", False):
            config = {**layer.get_config(), "dtype": keras.dtype_policies.serialize(present)}
            changed[path] = {key: config[key] for key in KEPT if config.get(key) is not None}
    return json.loads(json.dumps(changed))  # with lists for tuples, as a file gives it back


def _change_layers(model, changed):
    """Quantises and adapts the layers of `changed_layers` that the model has."""
    layers = _layers_with_weights(model)
    for path in filter(layers.__contains__, changed):
        config, layer = changed[path], layers[path]
        policy = keras.dtype_policies.get(config["dtype"])
        # A layer that the graph holds by itself, such as one of several heads, opens so already.
        if policy.quantization_mode and not layer.quantization_mode:
            quantization = keras.saving.deserialize_keras_object(config.get("quantization_config"))
            # The model does it, because it has to forget the kernel in its own lists too.
            only = functools.partial(operator.is_, layer)
            model.quantize(policy.quantization_mode, quantization, filters=only)
        layer.dtype_policy = policy
        if config.get("lora_rank") and not layer.lora_enabled:
            layer.enable_lora(config["lora_rank"], lora_alpha=config["lora_alpha"])


def _layers_with_weights(model):
    """{path: layer}, outer ones before those in them."""
    layers = model._flatten_layers(include_self=False)
    return {layer.path: layer for layer in layers if layer.weights}
