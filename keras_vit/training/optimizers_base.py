"""What the optimizers share: the order of clipping, averaging, update, decay and learning rate."""

from typing import ClassVar

import keras
from keras import ops

from keras_vit.training import optimizers_torch
from keras_vit.training.ema import average_rate
from keras_vit.training.layer_decay import layer_rates


@keras.saving.register_keras_serializable("keras_vit")
class DecoupledOptimizer(keras.optimizers.Optimizer):
    """An optimizer whose decay of the weights is no part of the gradient.

    One update, in the order of big_vision:

        g ← mean of the accumulated gradients
        g ← g · min(1, global_clipnorm / ‖all g‖)
        u ← direction(g)                                         what a subclass defines
        w ← w - learning rate · layer's factor · (u + weight_decay · w)

    where the last summand is for kernels only. big_vision writes its `wd` without the learning
    rate: `weight_decay` here is its `wd / lr`, so that its 1e-4 with a learning rate of 1e-3 is
    0.1, as in the names of the published files and in `keras.optimizers.AdamW`.

    Updates are what is counted: with `gradient_accumulation_steps=n`, schedules, the bias
    correction and the moving average move once per n batches. (Keras itself would move schedules
    and average once per batch.) A group that is incomplete at the end of an epoch goes on in the
    next one; what is left at the end of the training is not used.

    Args:
        learning_rate: float or a `keras.optimizers.schedules.LearningRateSchedule`.
        weight_decay: share of a decaying variable that is subtracted, times the learning rate.
        decayed: last parts of the paths of the variables that decay.
        layer_decay: layer-wise factor of the learning rate, see `keras_vit.training.layer_rates`;
            it holds for the update and the decay.
        num_blocks: depth of the model, where `layer_decay` cannot see it because blocks are
            frozen.
        **kwargs: of `keras.optimizers.Optimizer`: `global_clipnorm`, `use_ema`, `ema_momentum`,
            `gradient_accumulation_steps`, `loss_scale_factor`, `name`, and so on.

    Raises:
        ValueError: a value is out of range; for `layer_decay` when the variables are known.

    Source: big_vision/optax.py, `make`.
    """

    slot_names = ()  # of what is remembered for each variable
    # By backend: (optimizer, gradients, variables, learning rate) -> whether it updated them.
    fast_updates: ClassVar = {}

    def __init__(
        self,
        learning_rate,
        weight_decay=0.0,
        decayed=("kernel",),
        layer_decay=None,
        num_blocks=None,
        **kwargs,
    ):
        weight_decay = weight_decay or 0.0
        if weight_decay < 0:
            raise ValueError(
                f"weight_decay must not be negative. Received: weight_decay={weight_decay}."
            )
        super().__init__(learning_rate, weight_decay=weight_decay, **kwargs)
        self.decayed = tuple(decayed)
        self.layer_decay, self.num_blocks = layer_decay, num_blocks

    def build(self, variables):
        if self.built:
            return
        paths = [getattr(v, "path", v.name) for v in variables]
        self.layer_rates = layer_rates(paths, self.layer_decay, self.num_blocks)
        super().build(variables)
        self.may_decay = tuple(path.split("/")[-1] in self.decayed for path in paths)
        self._slots = [self.add_optimizer_variables(variables, name) for name in self.slot_names]

    def direction(self, gradient, slots, step):
        """The update before learning rate and decay; writes the new state into `slots`.

        Args:
            gradient: tensor, at least float32.
            slots: variables, in the order of `slot_names`.
            step: number of this update, from 1, in the dtype of the gradient.
        """
        raise NotImplementedError

    def update_step(self, gradient, variable, learning_rate):
        i = self._get_variable_index(variable)
        dtype = keras.backend.standardize_dtype(variable.dtype)
        dtype = "float32" if dtype in ("float16", "bfloat16") else dtype
        slots = [slot[i] for slot in self._slots]
        update = self.direction(ops.cast(gradient, dtype), slots, ops.cast(self.updates + 1, dtype))
        if self.decays(i):
            update = update + self.weight_decay * ops.cast(variable, dtype)
        self.assign_sub(variable, ops.cast(learning_rate, dtype) * self.layer_rates[i] * update)

    @property
    def updates(self):
        """How many updates have been made; an integer tensor."""
        return ops.convert_to_tensor(self.iterations)

    def decays(self, i):
        """Whether the i-th variable decays: a kernel that nobody excluded."""
        return (
            self.weight_decay > 0
            and self.may_decay[i]
            and self._use_weight_decay(self._trainable_variables[i])
        )

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        update_all = self._fast_update(trainable_variables)
        if not (update_all and update_all(self, grads, trainable_variables, learning_rate)):
            super()._backend_update_step(grads, trainable_variables, learning_rate)

    def _fast_update(self, variables):
        """What computes `update_step` for all variables at once, or `None`.

        It stands beside the `direction` that it computes: a subclass with one of its own, or with
        another `update_step`, has it no more.
        """
        kind = type(self)
        dtypes = {keras.backend.standardize_dtype(v.dtype) for v in variables}
        if dtypes not in ({"float32"}, {"float64"}):
            return None
        if kind.update_step is not DecoupledOptimizer.update_step:
            return None
        rule = next(c for c in kind.__mro__ if "direction" in vars(c))
        return vars(rule).get("fast_updates", {}).get(keras.backend.backend())

    def _clip_gradients(self, grads):
        if not self.global_clipnorm:
            return super()._clip_gradients(grads)
        norm = optimizers_torch.global_norm(grads)
        if norm is None:
            norm = ops.sqrt(sum(ops.sum(ops.square(g)) for g in grads if g is not None))
        # `ops.minimum` would be shorter, but rounds float64 to float32 on PyTorch.
        limit = self.global_clipnorm
        scale = ops.where(norm <= limit, ops.ones_like(norm), limit / norm)
        return [g if g is None else g * ops.cast(scale, g.dtype) for g in grads]

    def _apply_weight_decay(self, variables):
        """Nothing: `update_step` decays, because only there a layer has its own learning rate."""

    def _get_current_learning_rate(self):
        if isinstance(self._learning_rate, keras.optimizers.schedules.LearningRateSchedule):
            return self._learning_rate(self.iterations)
        return super()._get_current_learning_rate()

    def _update_model_variables_moving_average(self, trainable_variables):
        rate = average_rate(self)
        for variable, average in zip(trainable_variables, self._model_variables_moving_average):
            if average is not None:
                value = ops.convert_to_tensor(variable)
                self.assign_add(average, ops.cast(rate, value.dtype) * (value - average))

    def finalize_variable_values(self, var_list):
        """Nothing: Keras would replace the weights by the averages, on JAX after Ctrl-C too.

        `keras_vit.training.EvaluateAverages` does so where `fit` comes to its end.
        """

    def get_config(self):
        return {
            **super().get_config(),
            "decayed": self.decayed,
            "layer_decay": self.layer_decay,
            "num_blocks": self.num_blocks,
        }
