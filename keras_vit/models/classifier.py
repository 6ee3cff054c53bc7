"""What `VisionTransformer` and `BiT` have in common: which images they take, and their config."""

import inspect
import warnings

import keras
import numpy as np

from keras_vit.layers import kernels
from keras_vit.layers.changed_layers import apply_changes, changes_of
from keras_vit.layers.layer import Layer, run_within
from keras_vit.models.compiled_loss import record_loss, warn_of_last_loss
from keras_vit.models.record import came_with_weights, recorded
from keras_vit.models.trainer import Trainer
from keras_vit.workarounds import own_policy


@keras.saving.register_keras_serializable("keras_vit")
class Classifier(Trainer, keras.Model):
    """A model of images whose config also holds how it was changed and what came with its weights.

    It can be saved quantised, with LoRA and with frozen parts, and opens as it was. Images of a
    wrong shape raise a ValueError; images of a wrong range of values give a warning.

    Args:
        images, outputs: of the Functional graph.
        record: the `ModelRecord` of the model.
    """

    input_spec = None  # Keras would refuse wrong images first, without saying what to do
    variant_of = None  # a subclass has the function from fields of a config to its variant
    preprocessing, weights_from = recorded("preprocessing"), recorded("weights_from")
    class_names, label_set = recorded("class_names", True), recorded("label_set", True)
    reading, image_size = recorded("reading", True), recorded("image_size")

    def __init__(self, images, outputs, record, name):
        super().__init__(images, outputs, name=name)
        for attribute in ("variant", "num_classes", "channels", "head_bias"):
            setattr(self, attribute, getattr(record, attribute))
        # Functional models ignore dtype as an argument.
        self.model_record, self.dtype_policy = record, own_policy(record.dtype_policy)
        first = next((layer for layer in self.layers if isinstance(layer, Layer)), None)
        if first is not None:
            first.model_record = record

    def call(self, inputs, training=False, mask=None):
        inputs = keras.tree.map_structure(_as_tensor, self.check_images(inputs))
        call = super().call
        return run_within(self.dtype_policy, call, inputs, training=training, mask=mask)

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
        """The images, a tensor or a structure of one tensor; a ValueError if their shape is wrong.

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
        return {**self.model_record.config_of(self), "name": self.name, **changes_of(self)}

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


def _as_tensor(x):
    """Keras would convert an array of NumPy where PyTorch's compiler cannot follow."""
    return kernels.as_tensor(x) if isinstance(x, np.ndarray) else x
