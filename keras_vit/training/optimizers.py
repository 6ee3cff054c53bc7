"""The authors' optimizers: Adam as in optax with decoupled decay, and SGD with their momentum."""

from typing import ClassVar

import keras
from keras import ops

from keras_vit.training import optimizers_tensorflow, optimizers_torch
from keras_vit.training.optimizers_base import DecoupledOptimizer
from keras_vit.training.optimizers_tensorflow import correction
from keras_vit.training.schedules import WarmupCosine

# Names of the variables that are not kernels: the authors decay kernels only.
NO_DECAY = ("bias", "gamma", "beta", "class_token", "embedding", "rows", "columns", "probe")


@keras.saving.register_keras_serializable("keras_vit")
class AdamW(DecoupledOptimizer):
    """Adam with decay of the kernels, as big_vision has it.

        m ← β₁·m + (1 - β₁)·g        v ← β₂·v + (1 - β₂)·g²
        u = m/(1 - β₁ᵗ) / (√(v/(1 - β₂ᵗ)) + ε)

    `keras.optimizers.AdamW` adds ε to the uncorrected √v, which in the first updates is 30 times
    as much, has 1e-7 by default, decays every variable, and forgets exclusions when it is loaded.

    Args:
        learning_rate, weight_decay, decayed, layer_decay, num_blocks, **kwargs: as in
            `DecoupledOptimizer`.
        beta_1, beta_2, epsilon: β₁, β₂ and ε.

    Source: optax's `scale_by_adam`, as called in big_vision/optax.py. The authors keep m in
    bfloat16 (`mu_dtype`); here it has the dtype of the variable.
    """

    slot_names = ("momentum", "velocity")
    fast_updates: ClassVar = {
        "torch": optimizers_torch.adamw,
        "tensorflow": optimizers_tensorflow.adamw,
    }

    def __init__(
        self, learning_rate=1e-3, beta_1=0.9, beta_2=0.999, epsilon=1e-8, weight_decay=0.0, **kwargs
    ):
        super().__init__(learning_rate, weight_decay, **kwargs)
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon

    def direction(self, gradient, slots, step):
        momentum, velocity = slots
        m = self.beta_1 * momentum + (1 - self.beta_1) * gradient
        v = self.beta_2 * velocity + (1 - self.beta_2) * ops.square(gradient)
        self.assign(momentum, m)
        self.assign(velocity, v)
        m = m / correction(self.beta_1, step)
        v = v / correction(self.beta_2, step)
        return m / (ops.sqrt(v) + self.epsilon)

    def get_config(self):
        own = {"beta_1": self.beta_1, "beta_2": self.beta_2, "epsilon": self.epsilon}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable("keras_vit")
class SGDM(DecoupledOptimizer):
    """Gradient descent with the authors' momentum, whose buffer knows no learning rate.

        m ← μ·m + g        u = m

    `keras.optimizers.SGD` keeps the learning rate inside the buffer, v ← μ·v - lr·g: the same
    while the learning rate is constant, and not under a warm-up or a decay.

    Args:
        learning_rate, weight_decay, decayed, layer_decay, num_blocks, **kwargs: as in
            `DecoupledOptimizer`.
        momentum: μ.

    Source: optax's `trace`, as called in big_vision/optax.py, `momentum_hp`; vit_jax/train.py.
    The authors keep m in bfloat16; here it has the dtype of the variable.
    """

    slot_names = ("momentum",)
    fast_updates: ClassVar = {"torch": optimizers_torch.sgdm}

    def __init__(self, learning_rate=0.01, momentum=0.9, weight_decay=0.0, **kwargs):
        super().__init__(learning_rate, weight_decay, **kwargs)
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must be in [0, 1). Received: momentum={momentum}.")
        self.momentum = momentum

    def direction(self, gradient, slots, step):
        m = self.momentum * slots[0] + gradient
        self.assign(slots[0], m)
        return m

    def get_config(self):
        return {**super().get_config(), "momentum": self.momentum}


def adamw(learning_rate, steps, warmup_steps=0, weight_decay=0.0, clip_norm=1.0):
    """AdamW with linear warm-up and cosine decay to zero, as in Table 3 for ImageNet.

    Args:
        learning_rate: the highest, reached after the warm-up.
        steps: updates in the whole run, the warm-up included.
        warmup_steps: updates of the warm-up.
        weight_decay: share of a kernel that is subtracted at each update, times the learning
            rate; other variables do not decay, also after saving and loading.
        clip_norm: limit for the norm of all gradients together, or `None`.

    Raises:
        ValueError: the warm-up is not shorter than the run.
    """
    schedule = WarmupCosine(learning_rate, steps, warmup_steps)
    return AdamW(schedule, weight_decay=weight_decay, global_clipnorm=clip_norm)
