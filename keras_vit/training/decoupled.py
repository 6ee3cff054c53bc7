"""What the authors' optimizers share: clipping, decoupled decay and averages of the weights."""

import functools

import keras
from keras import ops

from keras_vit.checks import rate, require
from keras_vit.training import fused
from keras_vit.training.layer_decay import layer_rates
from keras_vit.workarounds import sum_over_replicas


@keras.saving.register_keras_serializable("keras_vit")
class DecoupledOptimizer(keras.optimizers.Optimizer):
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
    fused_form = None  # see `fused.computed_by`
    clips_sum = True  # for `TensorFlowDevices.check_model`: Keras's would clip on each replica

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
        weight_decay = weight_decay or 0.0
        require(weight_decay >= 0, "weight_decay must not be negative", received=weight_decay)
        ema_momentum = rate(ema_momentum, "ema_momentum", within="[0, 1]")
        super().__init__(learning_rate, **kwargs)
        self.weight_decay = weight_decay
        self.decayed = (decayed,) if isinstance(decayed, str) else tuple(decayed)
        self.layer_decay, self.num_blocks = layer_decay, num_blocks
        # Not Keras's `use_ema`, which averages after each batch and overwrites the weights.
        self.keeps_averages, self.ema_momentum = bool(use_ema), ema_momentum

    # The update, in the order of the text above.

    def clip(self, gradients):
        """Keeps the norm of all gradients, and scales them down where it exceeds the limit."""
        norm = norm_of_all(gradients)
        self.gradient_norm.assign(ops.cast(norm, "float32"))
        if not self.global_clipnorm:
            return gradients
        # `ops.minimum` would be shorter, but rounds float64 to float32 on PyTorch.
        limit = self.global_clipnorm
        scale = ops.where(norm <= limit, ops.ones_like(norm), limit / norm)
        return [g * ops.cast(scale, g.dtype) for g in gradients]

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

    def ema_rate(self):
        """How far this update moves the averages towards the weights."""
        return ops.where(ops.equal(self.iterations, 0), 1.0, 1.0 - self.ema_momentum)

    def update_step(self, gradient, variable, learning_rate):
        dtype = keras.backend.standardize_dtype(variable.dtype)
        if dtype in ("float16", "bfloat16"):
            dtype = "float32"
        cast = functools.partial(ops.cast, dtype=dtype)
        i = self._get_variable_index(variable)
        slots = [slot[i] for slot in self.slots]
        weight, new_slots = self.descend(
            cast(variable),
            cast(gradient),
            [cast(slot) for slot in slots],
            step=cast(self.iterations + 1),
            rate=cast(learning_rate) * self.layer_rates[i],
            decay=self.weight_decays[i],
        )
        self.assign(variable, weight)
        for slot, value in zip(slots, new_slots):
            self.assign(slot, value)
        if self.ema_weights:
            average = self.ema_weights[i]
            self.assign_add(average, cast(self.ema_rate()) * (weight - cast(average)))

    # What Keras 3.15 calls before `update_step`, in its order. Its `iterations` are updates, of
    # several batches each where gradients accumulate.

    def build(self, variables):
        if self.built:
            return
        paths = [getattr(v, "path", v.name) for v in variables]
        self.layer_rates = layer_rates(paths, self.layer_decay, self.num_blocks)
        is_decayed = [path.split("/")[-1] in self.decayed for path in paths]
        self.weight_decays = [self.weight_decay if each else 0.0 for each in is_decayed]
        super().build(variables)
        self.slots = [self.add_optimizer_variables(variables, name) for name in self.slot_names]
        averaged = variables if self.keeps_averages else ()
        self.ema_weights = self.add_optimizer_variables(averaged, "average")
        options = {"dtype": "float32", "aggregation": "only_first_replica"}
        self.gradient_norm = self.add_variable((), name="gradient_norm", **options)
        self.fused_update = fused.update_for(self, variables)

    def _clip_gradients(self, grads):
        # The sum over all replicas is clipped; Keras would sum what each has clipped.
        grads = self.clip(sum_over_replicas(grads))
        return grads if self.global_clipnorm else super()._clip_gradients(grads)

    def _apply_weight_decay(self, variables):
        """Does nothing, since `descend` decays."""

    def _get_current_learning_rate(self):
        # Keras would count batches.
        if isinstance(self._learning_rate, keras.optimizers.schedules.LearningRateSchedule):
            return self._learning_rate(self.iterations)
        return super()._get_current_learning_rate()

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        if self.fused_update is None:  # Keras calls `update_step` for each variable
            super()._backend_update_step(grads, trainable_variables, learning_rate)
        else:
            fused.update_all(self, grads, trainable_variables, learning_rate)

    def _all_reduce_sum_gradients(self, grads_and_vars):
        return grads_and_vars  # they are summed

    def get_config(self):
        names = ("decayed", "layer_decay", "num_blocks", *self.hyperparameters)
        config = super().get_config() | {name: getattr(self, name) for name in names}
        return config | {"use_ema": self.keeps_averages}

    def exclude_from_weight_decay(self, var_list=None, var_names=None):
        """Refused: Keras forgets such exclusions when an optimizer is loaded."""
        raise ValueError(
            f"{type(self).__name__} decays the variables whose paths end in {self.decayed}. "
            "Received: a call of exclude_from_weight_decay; give `decayed` instead."
        )


def norm_of_all(gradients):
    """The norm of all gradients, as of one vector."""
    if keras.backend.backend() == "torch":
        return fused.norm(gradients)
    # `ops.norm` takes two axes at most on TensorFlow. As one vector, XLA would gather what is cut
    # over devices.
    return ops.sqrt(ops.sum(ops.stack([ops.sum(ops.square(g)) for g in gradients])))
