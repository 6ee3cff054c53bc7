"""LayerNorm (Ba et al., 2016)."""

import keras
from keras import ops

from keras_vit.checks import positive_float
from keras_vit.layers import kernels
from keras_vit.layers.layer import Layer


@keras.saving.register_keras_serializable("keras_vit")
class LayerNorm(Layer):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta over the last axis (Ba et al., 2016).

    Computed in float32 at least, under every dtype policy.

    Shapes: (..., width) -> the same.

    Args:
        epsilon: added to the variance; the authors' value is 1e-6, Keras's default is 1e-3.
    """

    def __init__(self, epsilon=1e-6, **kwargs):
        super().__init__(autocast=False, **kwargs)
        self.epsilon = positive_float(epsilon, "epsilon")

    def build(self, input_shape):
        width = input_shape[-1:]
        self.gamma = self.add_weight(width, "ones", name="gamma", autocast=False)
        self.beta = self.add_weight(width, "zeros", name="beta", autocast=False)

    def call(self, inputs):
        # Half precision is read as it is, and float32 under a policy of half precision too.
        x = ops.cast(inputs, "float64") if self.compute_dtype == "float64" else inputs
        outputs = kernels.layer_norm(x, self.gamma, self.beta, self.epsilon)
        return ops.cast(outputs, self.compute_dtype)
