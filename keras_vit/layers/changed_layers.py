"""How parts of a model, or of a layer, were quantised, adapted and frozen, for its config."""

import copy
import functools
import json

import keras

from keras_vit.layers import kernels
from keras_vit.workarounds import policy_at

KEPT = ("dtype", "quantization_config", "lora_rank", "lora_alpha")  # of the config of a layer


class Changeable:
    """Lets a layer be saved and cloned as its parts were quantised, adapted and frozen.

    That is no part of its config, which subclasses of users give to constructors of their own: a
    file has it beside the shapes that the layer was built for, a clone gets it with the dict. A
    subclass whose `get_config` makes another dict (`{**super().get_config(), ...}`) is saved as it
    was and cloned without; one with its own `build_from_config` calls that of `super()`.
    """

    def get_build_config(self):
        config = super().get_build_config()
        return config and {**config, **_present(self)}

    def build_from_config(self, config):
        super().build_from_config(config)
        apply_changes(self, config.get("changed_layers"), config.get("frozen"))

    def get_config(self):
        config = _Config(super().get_config())
        config.changes = _present(self)
        return config

    @classmethod
    def from_config(cls, config):
        layer = super().from_config(config)
        if changes := getattr(config, "changes", None):
            build = functools.partial(_build_changed, layer, layer.build, changes)
            layer.build = functools.update_wrapper(build, layer.build)
        return layer


class _Config(dict):
    """The config of a layer, with its changes in the attribute `changes`, also where it is merged.

    A subclass returns `super().get_config() | {...}`, say.
    """

    def __or__(self, other):
        merged = copy.copy(self)
        merged.update(other)
        return merged


def _present(layer):
    changes = changes_of(layer) if layer.built and layer.weights else {}
    return {name: change for name, change in changes.items() if change}


def _build_changed(layer, build, changes, *args, **kwargs):
    build(*args, **kwargs)
    apply_changes(layer, **changes)


def changes_of(model):
    """The changed layers and the frozen variables of a model or a layer, as a part of its config.

    Paths begin below a layer.
    """
    frozen = [path for path, variable in _variables(model).items() if not variable.trainable]
    return {"changed_layers": changed_layers(model), "frozen": frozen}


def apply_changes(model, changed_layers=None, frozen=None):
    """Changes a new model, or a layer just built, as the one that `changes_of` has described."""
    _change_layers(model, changed_layers or {})
    frozen, variables = set(frozen or ()), _variables(model)
    ids = {id(variables[path]) for path in frozen & {*variables}}
    # Whole layers as such, so that `layer.trainable` says so too; then single variables. On
    # TensorFlow, `True` would not reach what is below a layer that says `True` already.
    for layer in model._flatten_layers(include_self=False):
        inside = {id(v) for v in layer.weights}
        if inside and inside <= ids and layer.trainable_variables:  # quantised ones have none
            layer.trainable = False
    for path, variable in variables.items():
        if variable.trainable:
            variable.trainable = path not in frozen


def changed_layers(model):
    """Path of each layer that was quantised, adapted or given a dtype -> a part of its config."""
    from keras_vit.layers.head import head_policy  # which is made of layers

    changed, is_model = {}, isinstance(model, keras.Model)
    for path, layer in _changeable_layers(model).items():
        policy = model.dtype_policy
        if is_model and path in ("head", "head_distillation"):
            policy = head_policy(policy)
        present = policy_at(layer.dtype_policy, layer.path)
        if present != policy_at(policy, layer.path) or getattr(layer, "lora_enabled", False):
            config = {**layer.get_config(), "dtype": keras.dtype_policies.serialize(present)}
            changed[path] = {key: config[key] for key in KEPT if config.get(key) is not None}
    return json.loads(json.dumps(changed))  # with lists for tuples, as a file gives it back


def _change_layers(model, changed):
    """Quantises and adapts the layers of `changed_layers` that the model has."""
    layers = _changeable_layers(model)
    for path in filter(layers.__contains__, changed):
        config, layer = changed[path], layers[path]
        policy = keras.dtype_policies.get(config["dtype"])
        # A layer that the graph holds by itself, such as one of several heads, opens so already.
        if policy.quantization_mode and not layer.quantization_mode:
            quantization = keras.saving.deserialize_keras_object(config.get("quantization_config"))
            layer.quantize(policy.quantization_mode, config=quantization)
            for each in model._flatten_layers() if kernels.BACKEND == "torch" else ():
                each._track_variables()  # without the kernel as it was
        layer.dtype_policy = policy
        if config.get("lora_rank") and not layer.lora_enabled:
            layer.enable_lora(config["lora_rank"], lora_alpha=config["lora_alpha"])


def _changeable_layers(model):
    """{path: layer} of those that compute, outer ones before those in them."""
    layers = [x for x in model._flatten_layers(include_self=False) if x.path]
    layers = [x for x in layers if x.weights or isinstance(x, Changeable)]
    return {_below(model, layer.path): layer for layer in layers}


def _variables(model):
    return {_below(model, variable.path): variable for variable in model.weights}


def _below(model, path):
    """The path of a part, from a layer that it is in; paths in a model do not have its name."""
    return path if isinstance(model, keras.Model) else path.removeprefix(f"{model.path}/")
