"""What models have in common: which images they take, facts of the weights, and exact float64."""

import dataclasses

import keras
import numpy as np

from keras_vit.checks import check_choice
from keras_vit.layers import kernels
from keras_vit.preprocessing import Preprocessing

FACTS = ("frozen", "preprocessing", "class_names", "label_set")  # of a config, not of __init__


@keras.saving.register_keras_serializable("keras_vit")
class Classifier(keras.Model):
    """A model of images whose config also holds what is frozen and what came with its weights.

    A subclass sets `variant`, `image_size`, `num_classes`, `channels` and `dtype_policy`, and
    `preprocessing`, `class_names` and `label_set`; it adds what else its constructor takes to the
    config. Images that do not fit its input raise a ValueError.
    """

    # Both, because Keras's own check comes between them, and `predict` skips the first on JAX.
    def __call__(self, inputs, *args, **kwargs):
        self._check_images(inputs)
        return super().__call__(inputs, *args, **kwargs)

    def call(self, inputs, training=None, mask=None):
        self._check_images(inputs)
        inputs = self._with_known_sides(inputs)
        return super().call(inputs, training=training, mask=mask)

    def predict_step(self, *arguments):
        with kernels.staying_here(not self.jit_compile):
            return super().predict_step(*arguments)

    def test_step(self, *arguments):
        with kernels.staying_here(not self.jit_compile):
            return super().test_step(*arguments)

    def train_step(self, *arguments):
        # Keras on PyTorch drops the last gradients only behind the forward pass, at whose end the
        # activations are many: the peak of memory would be higher by the size of all weights.
        if keras.backend.backend() == "torch":
            self.zero_grad()
        return super().train_step(*arguments)

    def make_optimizer(self, name="adamw", learning_rate=None, **options):
        """An optimizer of `keras_vit.training` by its usual name.

        They update as the authors' do and decay kernels only, where Keras's own differ, and take
        less time on PyTorch.

        Args:
            name: `"adamw"`, decay 0.01 unless said otherwise, or `"sgd"`, momentum 0.9.
            learning_rate: float or schedule; 1e-4 or 1e-3 for `None`.
            **options: of `keras_vit.training.AdamW` or `SGDM`.

        Raises:
            ValueError: another name.
        """
        check_choice("name", name, ("adamw", "sgd"))
        # By their registered names: what trains models stands on them, not below them.
        kind, rate, usual = {
            "adamw": ("AdamW", 1e-4, {"weight_decay": 0.01}),
            "sgd": ("SGDM", 1e-3, {}),
        }[name]
        make = keras.saving.get_registered_object(f"keras_vit>{kind}")
        return make(rate if learning_rate is None else learning_rate, **{**usual, **options})

    def _check_images(self, images):
        shape = getattr(images, "shape", None)
        expected = tuple(self.inputs[0].shape[1:])
        if shape is None or _fits(tuple(shape)[1:], expected):
            return
        any_size = None in expected
        sides = [side or name for side, name in zip(expected, ("height", "width", "channels"))]
        raise ValueError(
            f"{self.name} takes images of shape {('batch', *sides)}, channels last. Received: "
            f"shape {tuple(shape)}. {'Reshape' if any_size else 'Resize'} the images, or build the "
            f"model with their {'channels' if any_size else 'image_size and channels'}."
        )

    def _with_known_sides(self, images):
        """The images with a shape that the layers can build on; a pipeline may not know it."""
        return images

    def get_config(self):
        return {
            "image_size": self.image_size,
            "num_classes": self.num_classes,
            "channels": self.channels,
            **dataclasses.asdict(self.variant),
            "name": self.name,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            **self.facts(),
        }

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


def _fits(shape, expected):
    """Whether the sides of a shape are the expected ones, where both are known."""
    pairs = zip(shape, expected)
    return len(shape) == len(expected) and all(a in (None, b) or b is None for a, b in pairs)


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
