"""The authors' optimizers: Adam as in optax with decoupled decay, and SGD with their momentum."""

import functools
import math
from typing import Any

import keras
from keras import ops

from keras_vit import checks
from keras_vit.training import fused
from keras_vit.training.keras_optimizer import KerasOptimizer
from keras_vit.training.layer_decay import layer_rates
from keras_vit.training.schedules import WarmupCosine


@keras.saving.register_keras_serializable("keras_vit")
class DecoupledOptimizer(KerasOptimizer):
    """An optimizer whose decay of the weights is no part of the gradient.

    One update, in the order of big_vision's chain:

        g ← mean of the accumulated gradients
        g ← g · min(1, global_clipnorm / ‖all g‖)
        u ← direction(g)                                         what a subclass defines
        w ← w - learning rate · layer's factor · (u + weight_decay · w)
        a ← a + (1 - ema_momentum) · (w - a)                     with `use_ema`

    where only kernels decay. The learning rate multiplies `weight_decay`, as in
    `keras.optimizers.AdamW` and in the names of the published files. In big_vision's configs it
    does not: their `wd` of 1e-4 beside an `lr` of 1e-3 is a `weight_decay` of 0.1.

    With `gradient_accumulation_steps=n`, schedules, the bias correction and the average move once
    per n batches; Keras moves schedules and averages once per batch. A group that is incomplete at
    the end of an epoch goes on in the next one. `gradient_norm`, a float32 variable, holds the norm
    of all gradients of the last update before clipping.

    Args:
        learning_rate: float or a `keras.optimizers.schedules.LearningRateSchedule`.
        weight_decay: share of a decaying variable that is subtracted, times the learning rate.
        decayed: the last part of the paths of the variables that decay, or several.
        layer_decay, num_blocks: of `layer_rates`, whose factors hold for update and decay; the
            depth is needed where blocks are frozen.
        use_ema: whether to keep averages of the weights, see `averaged_weights`.
        ema_momentum: share of the average that an update keeps; the first update makes the
            average equal to the weights.
        **kwargs: of `keras.optimizers.Optimizer`: `global_clipnorm`, `name`,
            `gradient_accumulation_steps` (batches of an update; `None` for one), and so on.

    Raises:
        ValueError: a value is out of range; for `layer_decay` when the variables are known.

    Source: big_vision/optax.py, `make`.
    """

    slot_names = ()  # of what is remembered for each variable
    hyperparameters = ()  # arguments of a subclass

    def __init__(
        self,
        learning_rate,
        weight_decay=0.0,
        decayed=("kernel",),
        layer_decay=None,
        num_blocks=None,
        use_ema=False,
        ema_momentum=0.99,
        **kwargs,
    ):
        if (weight_decay or 0.0) < 0:
            raise ValueError(f"weight_decay must not be negative. Received: {weight_decay=}.")
        if not 0 <= ema_momentum <= 1:
            raise ValueError(f"ema_momentum must be in [0, 1]. Received: {ema_momentum=}.")
        super().__init__(learning_rate, **kwargs)
        self.weight_decay = weight_decay or 0.0
        self.decayed = (decayed,) if isinstance(decayed, str) else tuple(decayed)
        self.layer_decay, self.num_blocks = layer_decay, num_blocks
        # Not Keras's `use_ema`, which averages after each batch and overwrites the weights.
        self.keeps_averages, self.ema_momentum = bool(use_ema), ema_momentum

    def build(self, variables):
        if self.built:
            return
        paths = [getattr(v, "path", v.name) for v in variables]
        self.layer_rates = layer_rates(paths, self.layer_decay, self.num_blocks)
        super().build(variables)
        self.decays = [self.weight_decay * (p.split("/")[-1] in self.decayed) for p in paths]
        self.slots = [self.add_optimizer_variables(variables, name) for name in self.slot_names]
        averaged = variables if self.keeps_averages else ()
        self.averages = self.add_optimizer_variables(averaged, "average")
        options = {"dtype": "float32", "aggregation": "only_first_replica"}
        self.gradient_norm = self.add_variable((), name="gradient_norm", **options)

    def clip(self, gradients):
        """Keeps the norm of all gradients, and scales them down where it exceeds the limit."""
        norm = _norm_of_all([g for g in gradients if g is not None])
        self.gradient_norm.assign(ops.cast(norm, "float32"))
        if not self.global_clipnorm:
            return gradients
        # `ops.minimum` would be shorter, but rounds float64 to float32 on PyTorch.
        limit = self.global_clipnorm
        scale = ops.where(norm <= limit, ops.ones_like(norm), limit / norm)
        return [g if g is None else g * ops.cast(scale, g.dtype) for g in gradients]

    def direction(self, gradient, slots, step):
        """The update before learning rate and decay, and the new slots.

        Args:
            gradient: tensor of at least float32, of one variable or a part of it.
            slots: tensors of the same shape, in the order of `slot_names`.
            step: number of this update, from 1, in the dtype of the gradient.
        """
        raise NotImplementedError

    def descend(self, weight, gradient, slots, step, rate, decay):
        """The new weight and slots; nothing is assigned."""
        update, slots = self.direction(gradient, slots, step)
        return weight - rate * (update + decay * weight), slots

    def average_rate(self):
        """How far this update moves the average towards the weights."""
        return ops.where(ops.equal(self.updates, 0), 1.0, 1.0 - self.ema_momentum)

    def update_step(self, gradient, variable, learning_rate):
        """Updates one variable by the rule."""
        dtype = keras.backend.standardize_dtype(variable.dtype)
        if dtype in ("float16", "bfloat16"):
            dtype = "float32"
        cast = functools.partial(ops.cast, dtype=dtype)
        i = self.index_of(variable)
        slots = [slot[i] for slot in self.slots]
        weight, new_slots = self.descend(
            cast(variable),
            cast(gradient),
            [cast(slot) for slot in slots],
            step=cast(self.updates + 1),
            rate=cast(learning_rate) * self.layer_rates[i],
            decay=self.decays[i],
        )
        self.assign(variable, weight)
        for slot, value in zip(slots, new_slots):
            self.assign(slot, value)
        if self.averages:
            average = self.averages[i]
            self.assign_add(average, cast(self.average_rate()) * (weight - cast(average)))

    def get_config(self):
        names = ("decayed", "layer_decay", "num_blocks", *self.hyperparameters)
        config = super().get_config() | {name: getattr(self, name) for name in names}
        return config | {"use_ema": self.keeps_averages}


def _norm_of_all(gradients):
    if keras.backend.backend() == "torch":
        return fused.norm(gradients)
    # `ops.norm` takes two axes at most on TensorFlow. As one vector, XLA would gather what is cut
    # over devices.
    return ops.sqrt(ops.sum(ops.stack([ops.sum(ops.square(g)) for g in gradients])))


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


# PyTorch computes these two rules for all variables at once; without these lines it runs them as
# they stand above.
fused.add(AdamW, fused.adam)
fused.add(SGDM, fused.sgd)
