"""The linear map that every part of the Transformer is made of."""

import keras

from keras_vit.layers import kernels
from keras_vit.layers.adaptable import AdaptableDense


@keras.saving.register_keras_serializable("keras_vit")
class Linear(AdaptableDense):
    """activation(x·W + b): `keras.layers.EinsumDense` as one product of two matrices.

    The kernel keeps the axes of the equation (heads, for one), as checkpoints and sharding rules
    need them; the product folds batch and tokens into rows and the kernel into a matrix, because
    the gradient of a product with more axes is slow on some backends. LoRA, quantisation
    and inputs of integers are in `AdaptableDense`, which also makes the weights.

    Args:
        equation: such as `"btd,dhk->bthk"`; the axes that it sums over are the last of the input
            and the first of the kernel.
        output_shape: without the batch, such as (None, heads, head width).
        kernel_initializer: Glorot's uniform distribution, as in the authors' code.
        **kwargs: further arguments of `EinsumDense`; an `activation` must be elementwise.
    """

    ignores_training = True

    def __init_subclass__(cls, **kwargs):  # whose own `call` may look at it
        super().__init_subclass__(**kwargs)
        cls.ignores_training &= "call" not in vars(cls)

    def __init__(self, equation, output_shape, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(equation, output_shape, kernel_initializer=kernel_initializer, **kwargs)
        self.in_axes, self.out_axes = map(len, _axes_of_kernel(equation))

    @classmethod
    def built(cls, equation, output_shape, input_shape, use_bias=True, **kwargs):
        """A built layer, with or without a bias for each output of a token."""
        _, axes = _axes_of_kernel(equation)
        layer = cls(equation, output_shape, bias_axes=axes if use_bias else None, **kwargs)
        layer.build(input_shape)
        return layer

    def call(self, inputs, training=None):
        # `kernels.linear` may fuse the activation with the product.
        return kernels.linear(inputs, self.kernel, self.bias, self.activation, self.in_axes)

    def compute_output_shape(self, input_shape):
        # `EinsumDense` takes the number of tokens from `output_shape`, which has `None` there.
        return (*input_shape[: -self.in_axes], *self.partial_output_shape[-self.out_axes :])


def _axes_of_kernel(equation):
    """The axes that a product sums over, and those that it makes: "btd,dhk->bthk" -> "d", "hk"."""
    inputs, kernel = equation.split("->")[0].split(",")
    summed = sum(axis in inputs for axis in kernel)
    return kernel[:summed], kernel[summed:]
