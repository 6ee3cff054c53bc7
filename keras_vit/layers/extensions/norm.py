"""RMSNorm in place of LayerNorm, and LayerScale after a branch."""

import keras
from keras import ops

from keras_vit.checks import positive_float
from keras_vit.layers import kernels
from keras_vit.layers.layer import Identity, Layer
from keras_vit.layers.norm import LayerNorm


@keras.saving.register_keras_serializable("keras_vit")
class RMSNorm(LayerNorm):
    """x / sqrt(mean(x²) + epsilon) * gamma over the last axis (Zhang and Sennrich, 2019).

    Computed in float32 at least, under every dtype policy.

    Shapes: (..., width) -> the same.
    """

    def build(self, input_shape):
        self.gamma = self.add_weight(input_shape[-1:], "ones", name="gamma", autocast=False)

    def call(self, inputs):
        precise = kernels.at_least_float32(self.compute_dtype)
        x, gamma = ops.cast(inputs, precise), ops.cast(self.gamma, precise)
        x = x * ops.rsqrt(kernels.mean(x * x, axis=-1, keepdims=True) + self.epsilon)
        return ops.cast(x * gamma, self.compute_dtype)


@keras.saving.register_keras_serializable("keras_vit")
class LayerScale(Layer):
    """gamma * x, a learned factor for each channel of a residual branch (Touvron et al., 2021).

    Shapes: (..., width) -> the same.

    Args:
        initial: value of every factor at first.
    """

    def __init__(self, initial, **kwargs):
        super().__init__(**kwargs)
        self.initial = positive_float(initial, "initial")

    def build(self, input_shape):
        initializer = keras.initializers.Constant(self.initial)
        self.gamma = self.add_weight(input_shape[-1:], initializer, name="gamma")

    def call(self, inputs):
        return inputs * self.gamma


# Names of `keras_vit.Extensions.norm`; `None` where there is no norm.
NORMS = {"layer_norm": LayerNorm, "rms_norm": RMSNorm, None: Identity}
