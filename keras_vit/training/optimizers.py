"""The authors' optimizers: Adam as in optax with decoupled decay, and SGD with their momentum."""

import math
from typing import Any

import keras
from keras import ops

from keras_vit import checks
from keras_vit.training import fused
from keras_vit.training.decoupled import DecoupledOptimizer
from keras_vit.training.schedules import WarmupCosine


@fused.computed_by(fused.adam)
@keras.saving.register_keras_serializable("keras_vit")
class AdamW(DecoupledOptimizer):
    """Adam with decay of the kernels, as big_vision has it.

        m ← β₁·m + (1 - β₁)·g        v ← β₂·v + (1 - β₂)·g²
        u = m/(1 - β₁ᵗ) / (√(v/(1 - β₂ᵗ)) + ε)

    `keras.optimizers.AdamW` adds ε to the uncorrected √v, which in the first updates is 30 times
    as much, has 1e-7 by default, decays every variable, and forgets exclusions when it is loaded.

    Args:
        learning_rate, weight_decay, **kwargs: as in `DecoupledOptimizer`.
        beta_1, beta_2, epsilon: β₁, β₂ and ε.

    Source: optax's `scale_by_adam`, as called in big_vision/optax.py. The authors keep m in
    bfloat16 (`mu_dtype`); here it has the dtype of the variable.
    """

    slot_names = ("momentum", "velocity")
    hyperparameters = ("beta_1", "beta_2", "epsilon")

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-08,
        weight_decay: float = 0.0,
        **kwargs: Any,
    ):
        super().__init__(learning_rate, weight_decay, **kwargs)
        self.beta_1, self.beta_2 = checks.rate(beta_1, "beta_1"), checks.rate(beta_2, "beta_2")
        self.epsilon = epsilon

    def direction(self, gradient, slots, step):
        m, v = slots
        m = self.beta_1 * m + (1 - self.beta_1) * gradient
        v = self.beta_2 * v + (1 - self.beta_2) * ops.square(gradient)
        corrected_m = m / _correction(self.beta_1, step)
        corrected_v = v / _correction(self.beta_2, step)
        return corrected_m / (ops.sqrt(corrected_v) + self.epsilon), [m, v]


def _correction(beta, step):
    """1 - βᵗ, without the loss of digits that a float32 power has where β is 0.999."""
    return -ops.expm1(step * math.log(beta)) if beta else 1.0


@fused.computed_by(fused.sgd)
@keras.saving.register_keras_serializable("keras_vit")
class SGDM(DecoupledOptimizer):
    """Gradient descent with the authors' momentum, whose buffer is free of the learning rate.

        m ← μ·m + g        u = m

    `keras.optimizers.SGD` keeps the learning rate inside the buffer, v ← μ·v - lr·g: the same
    while the learning rate is constant, and not under a warm-up or a decay.

    Args:
        learning_rate, weight_decay, **kwargs: as in `DecoupledOptimizer`.
        momentum: μ.

    Source: optax's `trace`, as called in big_vision/optax.py, `momentum_hp`; vit_jax/train.py.
    The authors keep m in bfloat16; here it has the dtype of the variable.
    """

    slot_names = ("momentum",)
    hyperparameters = ("momentum",)

    def __init__(
        self,
        learning_rate: Any = 0.01,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        **kwargs: Any,
    ):
        super().__init__(learning_rate, weight_decay, **kwargs)
        self.momentum = checks.rate(momentum, "momentum")

    def direction(self, gradient, slots, step):
        m = self.momentum * slots[0] + gradient
        return m, [m]


def adamw(
    learning_rate: float,
    steps: int,
    warmup_steps: int = 0,
    weight_decay: float = 0.0,
    clip_norm: float | None = 1.0,
) -> AdamW:
    """`AdamW` with linear warm-up and cosine decay to zero, as in Table 3 for ImageNet.

    Args:
        learning_rate, steps, warmup_steps: as in `WarmupCosine`.
        weight_decay: as in `AdamW`; only kernels decay, also after saving and loading.
        clip_norm: limit for the norm of all gradients together, or `None`.
    """
    schedule = WarmupCosine(learning_rate, steps, warmup_steps)
    return AdamW(schedule, weight_decay=weight_decay, global_clipnorm=clip_norm)
