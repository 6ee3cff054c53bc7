"""What models have in common: facts that came with the weights, and what keeps float64 exact."""

import keras
import numpy as np

from keras_vit.preprocessing import Preprocessing

FACTS = ("frozen", "preprocessing", "class_names", "label_set")  # of a config, not of __init__


@keras.saving.register_keras_serializable("keras_vit")
class Classifier(keras.Model):
    """A model whose config also holds what is frozen and what came with its weights.

    A subclass sets `preprocessing`, `class_names` and `label_set`, and puts `facts()` into its
    config; `from_config` gives the other entries to its constructor.
    """

    def facts(self):
        """The part of the config that is no argument of the constructor."""
        return {
            "frozen": [v.path for v in self.weights if not v.trainable and not _is_seed(v)],
            "preprocessing": self.preprocessing.to_config(),
            "class_names": self.class_names,
            "label_set": self.label_set,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        facts = {name: config.pop(name, None) for name in FACTS}
        model = cls(**config)
        model.preprocessing = Preprocessing.from_config(facts["preprocessing"] or {})
        model.class_names = facts["class_names"] and tuple(facts["class_names"])
        model.label_set = facts["label_set"]
        _freeze(model, set(facts["frozen"] or ()))
        return model


def _freeze(model, frozen):
    """Whole layers as such, so that `layer.trainable` says so too; then single variables."""
    for layer in model.layers:
        inside = {v.path for v in layer.weights if not _is_seed(v)}
        if inside and inside <= frozen:
            layer.trainable = False
    for variable in model.trainable_variables:
        variable.trainable = variable.path not in frozen


def _is_seed(variable):
    return "seed_generator" in variable.path


def input_dtype(policy):
    """The dtype of the images: half precision would lose digits of pixels before any layer."""
    return "float64" if policy.compute_dtype == "float64" else "float32"


def check_precision(policy):
    """Raises a ValueError where the backend would compute float64 in float32 without a word."""
    given = keras.backend.standardize_dtype(keras.ops.convert_to_tensor(np.zeros(())).dtype)
    if policy.compute_dtype == "float64" != given:
        raise ValueError(
            "The backend cuts float64 down to "
            f"{given}. With JAX, set the environment variable JAX_ENABLE_X64=1 before Python "
            f"starts. Received: dtype policy {policy.name!r}."
        )
