"""The linear map and the LayerNorm that every part of the Transformer is made of."""

import functools

import keras
from keras import ops

from keras_vit.checks import positive_float
from keras_vit.layers import kernels
from keras_vit.layers.initial import initial
from keras_vit.layers.nested import nested


@keras.saving.register_keras_serializable("keras_vit")
class Linear(keras.layers.EinsumDense):
    """`keras.layers.EinsumDense`, computed as one product of two matrices.

    The kernel keeps the axes of the equation (heads, for one), which is what checkpoints and
    sharding rules want to see; the product folds batch and tokens into rows and the kernel into a
    matrix, because the gradient of a product with more axes is slow on some backends. The last
    axes of the input must be the contracted ones, as in `"btd,dhk->bthk"`.

    Initial weights are the authors' unless said otherwise: Xavier-uniform kernel, zero bias.
    An `activation` must be a function of single values.
    LoRA, quantisation and every other ability of `EinsumDense` work as there.
    """

    def add_weight(self, shape=None, initializer=None, *args, **kwargs):
        return super().add_weight(shape, initial(initializer), *args, **kwargs)

    def call(self, inputs, training=None):
        # Next to its product an activation may be computed with it.
        return kernels.linear(inputs, self.kernel, self.bias, self.activation, self._contracted)

    def quantize(self, mode=None, type_check=True, config=None):
        # Keras passes subclasses over, as they might compute something else: this one does not.
        super().quantize(mode, type_check=False, config=config)

    def compute_output_shape(self, input_shape):
        # EinsumDense forgets the number of tokens where its output_shape leaves it open.
        features = len(self.equation.split("->")[0].split(",")[1]) - self._contracted
        return (*input_shape[: -self._contracted], *self.partial_output_shape[-features:])

    @functools.cached_property
    def _contracted(self):
        """The number of axes of the input that the product sums over."""
        inputs, kernel = self.equation.split("->")[0].split(",")
        return sum(axis in inputs for axis in kernel)


def project(x, layers):
    """What several `Linear` layers make of one input.

    Where the devices of a model share it they compute one product, whose gradient for `x` is then
    summed over the devices once and not for each layer. Alone, a device takes longer for it.

    Args:
        x: shape (..., width).
        layers: with kernels of shape (width, heads, features...), the same for all.

    Returns:
        A list with an output of shape (..., heads, features...) for each layer.
    """
    dtype = keras.backend.standardize_dtype(x.dtype)
    is_cut = isinstance(keras.distribution.distribution(), keras.distribution.ModelParallel)
    joins = is_cut and not isinstance(x, keras.KerasTensor)
    if not joins or not all(_is_plain(layer, dtype) for layer in layers):
        return [nested(layer, x) for layer in layers]
    # Within each head, so that a layout that cuts the heads goes on through the product.
    kernel = _stack([layer.kernel for layer in layers], axis=2)
    has_bias = layers[0].bias is not None
    bias = _stack([layer.bias for layer in layers], axis=1) if has_bias else None
    return ops.unstack(kernels.linear(x, kernel, bias), axis=len(x.shape))


def _stack(variables, axis):
    # `ops.stack` fails on Keras variables with TensorFlow, which takes them for its own tensors.
    return ops.concatenate([ops.expand_dims(one, axis) for one in variables], axis)


def _is_plain(layer, dtype):
    """Whether the layer does nothing but its linear map, in the type of its input."""
    changed = layer.lora_enabled or layer.quantization_mode or layer.compute_dtype != dtype
    return type(layer) is Linear and not changed


@keras.saving.register_keras_serializable("keras_vit")
class LayerNorm(keras.layers.Layer):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta over the last axis (Ba et al., 2016).

    Statistics, gamma and beta are float32 at least, under every dtype policy.

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
        self.built = True

    def call(self, inputs):
        outputs = kernels.layer_norm(inputs, self.gamma, self.beta, self.epsilon)
        return ops.cast(outputs, self.compute_dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon}
