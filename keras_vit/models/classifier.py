"""What the models have in common: their arguments, which images they take, and their config."""

import functools
import inspect
import json
import operator
import warnings

import keras
import numpy as np

from keras_vit.layers import kernels
from keras_vit.layers.head import head_policy
from keras_vit.layers.layer import Layer
from keras_vit.models.origin import SETTINGS, came_with_weights, of_origin
from keras_vit.models.trainer import Trainer, record_loss
from keras_vit.outputs import warn_of_last_loss
from keras_vit.workarounds import own_policy, policy_at

# The part of a layer's config that `changed_layers` keeps.
CHANGES = ("dtype", "quantization_config", "lora_rank", "lora_alpha")


@keras.saving.register_keras_serializable("keras_vit")
class Classifier(Trainer, keras.Model):
    """A model of images whose config also holds how it was changed and what came with its weights.

    It can be saved quantised, with LoRA and with frozen parts, and opens as it was. Images that do
    not fit its input raise a ValueError; values that it can hardly want are warned of.

    Args:
        images, outputs: of the Functional graph.
        origin: the `Origin` of the model.
    """

    input_spec = None  # Keras would refuse wrong images first, without saying what to do
    variant_of = None  # of a subclass: makes its variant of the fields in a config (`Origin`)
    preprocessing, weights_from = of_origin("preprocessing"), of_origin("weights_from")
    class_names, label_set = of_origin("class_names", True), of_origin("label_set", True)
    reading = of_origin("reading", True)

    def __init__(self, images, outputs, origin, name):
        super().__init__(images, outputs, name=name)
        for attribute in ("variant", *SETTINGS):
            setattr(self, attribute, getattr(origin, attribute))
        # Functional models ignore dtype as an argument. That of layers may change.
        self.origin, self.dtype_policy = origin, own_policy(origin.dtype_policy)
        first = next((layer for layer in self.layers if isinstance(layer, Layer)), None)
        if first is not None:
            first.origin = origin

    def call(self, inputs, training=None, mask=None):
        inputs = keras.tree.map_structure(_as_tensor, self.check_images(inputs))
        return super().call(inputs, training=training, mask=mask)

    def compile(self, *args, **kwargs):
        last = getattr(self, "loss", None)
        super().compile(*args, **kwargs)
        warn_of_last_loss(self, last)
        names = inspect.signature(super().compile).bind(*args, **kwargs).arguments
        record_loss(self, [names.get("metrics"), names.get("weighted_metrics")])

    def compute_output_spec(self, inputs, training=None, mask=None):
        self.check_images(inputs)
        return super().compute_output_spec(inputs, training=training, mask=mask)

    def check_images(self, images):
        """The images, a tensor or what holds it alone, or a ValueError if it does not fit.

        On TensorFlow, sides that are known only when the graph runs are checked then.
        """
        expected = tuple(self.inputs[0].shape)
        shapes = [tuple(getattr(x, "shape", ())) for x in keras.tree.flatten(images)]
        if len(shapes) != 1 or not _fits(shapes[0][1:], expected[1:]):
            received = f"shape {shapes[0]}" if len(shapes) == 1 else f"{len(shapes)} inputs"
            names = ("batch", "height", "width", "channels")
            wanted = tuple(side or name for side, name in zip(expected, names))
            is_any_size = None in expected[1:]
            change, size = ("Reshape", "") if is_any_size else ("Resize", "image_size and ")
            raise ValueError(
                f"{self.name} takes images of shape {wanted}, channels last. Received: {received}. "
                f"{change} the images, or build the model with their {size}channels."
            )
        if keras.backend.backend() == "tensorflow" and None in shapes[0][1:]:
            import tensorflow as tf

            return keras.tree.map_structure(
                lambda x: tf.ensure_shape(x, expected) if tf.is_tensor(x) else x, images
            )
        return images

    def get_config(self):
        return {**self.origin.config_of(self), "name": self.name, **changes_of(self)}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config, attributes = came_with_weights(config)
        changes = {name: config.pop(name, None) for name in ("changed_layers", "frozen")}
        model = cls(**config)
        for name, value in attributes.items():
            try:
                setattr(model, name, value)
            except ValueError as error:  # of a file of a version that did not check
                warnings.warn(f"{model.name} opens without its {name}. {error}", stacklevel=2)
        apply_changes(model, **changes)
        return model


def _fits(shape, expected):
    """Whether the sides of a shape are the expected ones, where both are known."""
    pairs = zip(shape, expected)
    return len(shape) == len(expected) and all(a in (None, b) or b is None for a, b in pairs)


def changes_of(model):
    """How the layers of a model were changed, and what is frozen, as a part of its config."""
    frozen = [v.path for v in model.weights if not v.trainable]
    return {"changed_layers": changed_layers(model), "frozen": frozen}


def apply_changes(model, changed_layers=None, frozen=None):
    """Changes a new model as `changes_of` tells."""
    change_layers(model, changed_layers or {})
    frozen = set(frozen or ())
    # Whole layers as such, so that `layer.trainable` says so too; then single variables.
    for layer in model.layers:
        inside = {v.path for v in layer.weights}
        if inside and inside <= frozen:
            layer.trainable = False
    for variable in model.trainable_variables:
        variable.trainable = variable.path not in frozen


def _as_tensor(x):
    """Keras would convert an array of NumPy where PyTorch's compiler cannot follow."""
    return kernels.as_tensor(x) if isinstance(x, np.ndarray) else x


def changed_layers(model):
    """What makes the layers of a new model those of this one: path -> a part of the config."""
    changed = {}
    for path, layer in _layers_with_weights(model).items():
        policy = model.dtype_policy
        if path in ("head", "head_distillation"):
            policy = head_policy(policy)
        present = policy_at(layer.dtype_policy, path)
        if present != policy_at(policy, path) or getattr(layer, "lora_enabled", False):
            config = {**layer.get_config(), "dtype": keras.dtype_policies.serialize(present)}
            changed[path] = {key: config[key] for key in CHANGES if config.get(key) is not None}
    return json.loads(json.dumps(changed))  # with lists for tuples, as a file gives it back


def change_layers(model, changed):
    """Quantises and adapts the layers that `changed_layers` found, as far as the model has them."""
    layers = _layers_with_weights(model)
    for path in filter(layers.__contains__, changed):
        config, layer = changed[path], layers[path]
        policy = keras.dtype_policies.get(config["dtype"])
        # What stands in the graph itself, such as a head of several, opens quantised and adapted.
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
