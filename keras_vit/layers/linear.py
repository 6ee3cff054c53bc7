"""The linear map and the LayerNorm that every part of the Transformer is made of."""

import math

import keras
from keras import ops

from keras_vit.layers import kernels


@keras.saving.register_keras_serializable("keras_vit")
class Linear(keras.layers.EinsumDense):
    """`keras.layers.EinsumDense`, computed as one product of two matrices.

    The kernel keeps the axes of the equation (heads, for one), which is what checkpoints and
    sharding rules want to see; the product folds batch and tokens into rows and the kernel into a
    matrix, because the gradient of a product with more axes is slow on some backends. The last
    axes of the input must be the contracted ones, as in `"btd,dhk->bthk"`.

    Initial weights are the authors' unless said otherwise: Xavier-uniform kernel, zero bias.
    LoRA, quantisation and every other ability of `EinsumDense` work as there.
    """

    def call(self, inputs, training=None):
        kernel = self.kernel
        contracted = self._num_contracted_axes()
        into, out = kernel.shape[:contracted], kernel.shape[contracted:]
        x = ops.reshape(inputs, (-1, math.prod(into)))
        x = kernels.linear(x, ops.reshape(kernel, (math.prod(into), math.prod(out))), self.bias)
        x = ops.reshape(x, (*ops.shape(inputs)[:-contracted], *out))
        return x if self.activation is None else self.activation(x)

    def _num_contracted_axes(self):
        inputs, kernel = self.equation.split("->")[0].split(",")
        return sum(axis in inputs for axis in kernel)


@keras.saving.register_keras_serializable("keras_vit")
class LayerNorm(keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization` over the last axis, with the authors' epsilon of 1e-6.

    Statistics are float32 at least, under every dtype policy.
    """

    def __init__(self, epsilon=1e-6, **kwargs):
        super().__init__(epsilon=epsilon, **kwargs)

    def call(self, inputs):
        return kernels.layer_norm(inputs, self.gamma, self.beta, self.epsilon)
