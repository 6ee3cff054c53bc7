"""The methods of Keras that the optimizers override; optimizers.py has their rule."""

import keras
from keras import ops

from keras_vit.training import fused
from keras_vit.workarounds import sum_over_replicas


@keras.saving.register_keras_serializable("keras_vit")
class KerasOptimizer(keras.optimizers.Optimizer):
    """An optimizer of Keras in which a subclass decides the whole update.

    A subclass has `clip(gradients)` for all gradients, `update_step(gradient, variable, rate)` for
    each, and `decayed`. Keras 3.15 gets there by the methods below, in this order. Gradients are
    summed over replicas before they are clipped, where Keras sums them afterwards; schedules count
    updates, where Keras counts batches; and Keras's decay of the weights is off.
    """

    clips_sum = True  # for `TensorFlowDevices.check_model`: Keras's would clip on each replica

    def build(self, variables):
        super().build(variables)
        self.fused_update = fused.update_for(self, variables)

    def _clip_gradients(self, grads):
        grads = self.clip(sum_over_replicas(grads))
        return grads if self.global_clipnorm else super()._clip_gradients(grads)

    def _apply_weight_decay(self, variables):
        """Does nothing, since `update_step` decays."""

    def _get_current_learning_rate(self):
        if isinstance(self._learning_rate, keras.optimizers.schedules.LearningRateSchedule):
            return self._learning_rate(self.iterations)
        return super()._get_current_learning_rate()

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        if self.fused_update is None:
            super()._backend_update_step(grads, trainable_variables, learning_rate)
        else:
            fused.update_all(self, grads, trainable_variables, learning_rate)

    def _all_reduce_sum_gradients(self, grads_and_vars):
        return grads_and_vars  # they are summed

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
