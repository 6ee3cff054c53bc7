"""All that the optimizers need to know of Keras's inside; their rule can be read without it."""

import keras
from keras import ops

from keras_vit.training import fused
from keras_vit.workarounds import sum_over_replicas


class KerasOptimizer(keras.optimizers.Optimizer):
    """An optimizer of Keras in which the methods of a subclass decide the whole update.

    A subclass has `clip(gradients)` for all gradients and `update_step(gradient, variable, rate)`
    for each. Keras 3.15 gets there by methods of its inside: those below, in the order in which it
    calls them. Its decay of the weights is off, schedules count updates instead of batches, and
    gradients are summed over replicas before they are clipped, where Keras sums them afterwards.
    """

    clips_sum = True  # for `TensorFlowDevices.check_model`: Keras's would clip on each replica

    def __init__(self, learning_rate, gradient_accumulation_steps=None, **kwargs):
        rate = learning_rate
        if gradient_accumulation_steps and callable(learning_rate):
            rate = _PerUpdate(learning_rate, gradient_accumulation_steps)
        super().__init__(rate, gradient_accumulation_steps=gradient_accumulation_steps, **kwargs)
        self.schedule = learning_rate

    def build(self, variables):
        super().build(variables)
        self.fused_update = fused.update_for(self, variables)

    def _clip_gradients(self, grads):
        grads = self.clip(sum_over_replicas(grads))
        return grads if self.global_clipnorm else super()._clip_gradients(grads)

    def _apply_weight_decay(self, variables):
        """Nothing: the rule decays."""

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        if self.fused_update is None:
            super()._backend_update_step(grads, trainable_variables, learning_rate)
        else:
            fused.update_all(self, grads, trainable_variables, learning_rate)

    def _all_reduce_sum_gradients(self, grads_and_vars):
        """Nothing: they are summed."""
        return grads_and_vars

    def index_of(self, variable):
        """The number of a variable in the order of `build`."""
        return self._get_variable_index(variable)

    @property
    def updates(self):
        """How many updates have been made; an integer tensor."""
        return ops.convert_to_tensor(self.iterations)

    def exclude_from_weight_decay(self, var_list=None, var_names=None):
        """Refused: Keras forgets such exclusions when an optimizer is loaded."""
        raise ValueError(
            f"{type(self).__name__} decays the variables whose paths end in {self.decayed}. "
            "Received: a call of exclude_from_weight_decay; give `decayed` instead."
        )

    def get_config(self):
        config = super().get_config()
        if isinstance(self.schedule, keras.optimizers.schedules.LearningRateSchedule):
            config["learning_rate"] = keras.optimizers.schedules.serialize(self.schedule)
        return config


class _PerUpdate(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule over updates, for Keras, which counts batches."""

    def __init__(self, schedule, batches):
        self.schedule, self.batches = schedule, batches

    def __call__(self, step):
        return self.schedule(ops.floor_divide(step, self.batches))

    def get_config(self):
        return {"schedule": self.schedule, "batches": self.batches}
