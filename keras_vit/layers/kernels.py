"""The computations of the network as functions of tensors, written in `keras.ops`.

A faster form for one backend has the same name in `fast_jax`, `fast_tensorflow` or `fast_torch`.

In float64 `keras.ops` goes down to float32 on JAX and PyTorch in `matmul`, `mean`,
`layer_normalization` and `dot_product_attention`, on JAX in `tanh`, `cos` and `sin`, and on
TensorFlow in the constants of GELU, so a float64 model that used them would have float32 digits
without a word. Operators, `einsum`, `sum`, `sigmoid` and `erf` keep the type of their operands.
"""

import importlib
import math

import keras
from keras import ops

BACKEND = keras.backend.backend()
# Imported here, because PyTorch's compiler cannot read an import.
OWN = (
    importlib.import_module(f"keras_vit.layers.fast_{BACKEND}")
    if BACKEND in ("jax", "tensorflow", "torch")
    else None
)


def fast(name):
    """The backend's faster form of a function of this module, or `None`."""
    return getattr(OWN, name, None) if OWN is not None and OWN.applies(name) else None


def initial(initializer):
    """An initializer of Keras, or its name, in a form that the backend compiles fast."""
    own = getattr(OWN, "initial", None)
    return own(initializer) if own else initializer


def linear(x, kernel, bias=None, activation=None, in_axes=1):
    """activation(x·W + b), as one product of two matrices, whatever the axes.

    Shapes: (..., in axes), (in axes, out axes), (out axes) -> (..., out axes); `in_axes` is the
    number of the first. Computed in the type of `x`.
    """
    if own := fast("linear"):
        return own(x, ops.convert_to_tensor(kernel), bias, activation, in_axes)
    kernel = ops.cast(kernel, x.dtype)
    into, out = math.prod(kernel.shape[:in_axes]), kernel.shape[in_axes:]
    shape = (*ops.shape(x)[:-in_axes], *out)
    x, kernel = ops.reshape(x, (-1, into)), ops.reshape(kernel, (into, math.prod(out)))
    own = fast("matmul")
    x = own(x, kernel) if own else x @ kernel
    x = x if bias is None else x + ops.reshape(bias, (-1,))
    return ops.reshape(x if activation is None else activation(x), shape)


def gelu(x, approximate):
    """GELU by its tanh approximation, or exact by erf."""
    if not is_float64(x):
        own = fast("gelu")
        return own(x, approximate) if own else ops.gelu(x, approximate=approximate)
    if approximate:  # (1 + tanh y) / 2 is sigmoid(2 y)
        return x * ops.sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x * x * x))
    return 0.5 * x * (1.0 + ops.erf(x * math.sqrt(0.5)))


@keras.saving.register_keras_serializable("keras_vit")
def gelu_tanh(x):
    return gelu(x, approximate=True)


@keras.saving.register_keras_serializable("keras_vit")
def gelu_erf(x):
    return gelu(x, approximate=False)


@keras.saving.register_keras_serializable("keras_vit")
def quick_gelu(x):
    """x σ(1.702 x), the GELU of CLIP."""
    return x * ops.sigmoid(1.702 * x)


@keras.saving.register_keras_serializable("keras_vit")
def silu(x):
    """x σ(x)."""
    return x * ops.sigmoid(x)


ACTIVATIONS = {f.__name__: f for f in (gelu_tanh, gelu_erf, quick_gelu, silu)}


@keras.saving.register_keras_serializable("keras_vit")
def tanh(x):
    return 2.0 * ops.sigmoid(2.0 * x) - 1.0 if is_float64(x) else ops.tanh(x)


def cos(x):
    return getattr(OWN, "cos", ops.cos)(x)


def sin(x):
    return getattr(OWN, "sin", ops.sin)(x)


def layer_norm(x, gamma, beta, epsilon):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta over the last axis.

    Computed in float32 at least, and returned in the type of `x`.
    """
    precise = at_least_float32(x.dtype)
    gamma, beta = ops.convert_to_tensor(gamma, precise), ops.convert_to_tensor(beta, precise)
    if not is_float64(x):
        if own := fast("layer_norm"):
            return own(x, gamma, beta, epsilon)
        return ops.layer_normalization(x, gamma, beta, axis=-1, epsilon=epsilon)
    width = x.shape[-1]
    x = x - ops.sum(x, axis=-1, keepdims=True) / width
    variance = ops.sum(x * x, axis=-1, keepdims=True) / width
    return x / ops.sqrt(variance + epsilon) * gamma + beta


def conv(x, kernel, strides, explicit_padding):
    """A convolution without bias; the arguments are those of `StdConv2D`.

    Shapes: (batch, height, width, in), (size, size, in, out) ->
    (batch, ceil(height / strides), ceil(width / strides), out).
    """
    if own := fast("conv"):
        return own(x, kernel, strides, explicit_padding)
    if not explicit_padding:
        return ops.conv(x, kernel, strides, "same", data_format="channels_last")
    side = kernel.shape[0] // 2
    x = ops.pad(x, ((0, 0), (side, side), (side, side), (0, 0))) if side else x
    return ops.conv(x, kernel, strides, "valid", data_format="channels_last")


def lay_out(kernel):
    """Orders the values of a variable in memory as the backend's `conv` reads them."""
    if own := fast("lay_out"):
        own(kernel)


def max_pool(x, size, strides, same):
    """The largest value of each window of each channel; `same` pads so that all pixels count.

    Shapes: (batch, height, width, channels) -> (batch, rows of windows, columns, channels).
    """
    if own := fast("max_pool"):
        return own(x, size, strides, same)
    padding = "same" if same else "valid"
    return ops.max_pool(x, size, strides, padding, data_format="channels_last")


def group_norm(x, groups, gamma, beta, epsilon):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, each group of channels by itself.

    Shapes: (batch, height, width, channels) -> the same, in float32 at least.
    """
    x = ops.cast(x, at_least_float32(x.dtype))
    gamma, beta = ops.cast(gamma, x.dtype), ops.cast(beta, x.dtype)
    if own := fast("group_norm"):
        return own(x, groups, gamma, beta, epsilon)
    x = x - _mean_of_groups(x, groups)
    deviation = ops.sqrt(_mean_of_groups(x * x, groups) + epsilon)
    return x * (gamma / deviation) + beta


def _mean_of_groups(x, groups):
    """The mean over pixels and the channels of a group: shape (batch, 1, 1, channels)."""
    batch, height, width, channels = ops.shape(x)
    size = channels // groups
    total = ops.sum(ops.reshape(ops.sum(x, axis=(1, 2)), (batch, groups, size)), axis=2)
    means = ops.repeat(total / ops.cast(height * width * size, x.dtype), size, axis=1)
    return ops.reshape(means, (batch, 1, 1, channels))


def rotate(x, rotation, pairs="halves"):
    """Turns pairs of the values of a head by angles (Su et al., 2021).

    Shapes: (batch, tokens, heads, D_h) -> the same. `rotation` holds cosines, then sines: (2,
    tokens, heads, D_h), with 1 for heads that are turned alike; `None` leaves `x` as it is.

    Args:
        pairs: `"halves"`, the first value of a head with the first of its second half, or
            `"adjacent"`, the first with the second.
    """
    if rotation is None:
        return x
    if pairs == "halves":
        first, second = ops.split(x, 2, axis=-1)
        turned = ops.concatenate([-second, first], axis=-1)
    else:
        turned = ops.stack([-x[..., 1::2], x[..., ::2]], axis=-1)
        turned = ops.reshape(turned, ops.shape(x))
    return x * rotation[0] + turned * rotation[1]


def attention(query, key, value, bias=None):
    """softmax(q kᵀ / √D_h + bias) v (Eq. 6 and 7).

    Shapes: (batch, T, heads, D_h), (batch, S, heads, D_h) twice, a bias that fits (batch, heads, T,
    S) -> (batch, T, heads, D_h).
    """
    if is_float64(query) or BACKEND == "tensorflow":  # for which no kernel is fused
        return weighted_sum(attention_weights(query, key, bias), value)
    flash = keras.config.is_flash_attention_enabled()  # True, False, or None: where it can
    while bias is not None and len(bias.shape) < 4:
        bias = bias[None]  # the fused kernels want all axes
    for name, is_wanted in (("attention", not flash), ("attention_on_gpu", flash is not False)):
        own = fast(name) if is_wanted else None
        y = own(query, key, value, bias) if own else None
        if y is not None:
            return y
    return ops.dot_product_attention(query, key, value, bias=bias, flash_attention=flash)


def attention_weights(query, key, bias=None):
    """A = softmax(q kᵀ / √D_h + bias) (Eq. 6) in float32 at least; shapes as in `attention`.

    Returns shape (batch, heads, T, S).
    """
    scores = ops.einsum("bthd,bshd->bhts", query * query.shape[-1] ** -0.5, key)
    scores = scores if bias is None else scores + ops.cast(bias, scores.dtype)
    return ops.softmax(ops.cast(scores, at_least_float32(scores.dtype)), axis=-1)


def weighted_sum(weights, value):
    """A v (Eq. 7): (batch, heads, T, S), (batch, S, heads, D_h) -> (batch, T, heads, D_h)."""
    return ops.einsum("bhts,bshd->bthd", ops.cast(weights, value.dtype), value)


def as_tensor(array):
    """An array of NumPy as a tensor of its type."""
    own = fast("as_tensor")
    return own(array) if own else ops.convert_to_tensor(array)


class Constant:
    """An array of NumPy with which a layer computes."""

    def __init__(self, array):
        self.array = array

    def tensor(self, like, dtype=None):
        """The array beside the tensor `like`, in `dtype`, or in its own type."""
        tensor = ops.convert_to_tensor(self.array)
        return tensor if dtype is None else ops.cast(tensor, dtype)


Constant = getattr(OWN, "Constant", Constant)


def computed(function, *arguments, like, dtype):
    """The array that `function(*arguments)` gives, as `Constant.tensor` of this module has it."""
    if own := fast("computed"):
        return own(function, arguments, like, dtype)
    return Constant(function(*arguments)).tensor(like, dtype)


def uniform(shape, seeds, like):
    """Numbers from 0 to 1 in float32, drawn by a generator of seeds, for use with `like`."""
    own = fast("uniform")
    return own(shape, seeds, like) if own else keras.random.uniform(shape, 0, 1, "float32", seeds)


def remat(function):
    """A function of tensors whose backward pass runs it again, instead of keeping values."""
    own = fast("remat")
    return own(function) if own else keras.remat(function)


def mean(x, axis, keepdims=False):
    """The mean in float32 at least, returned in the type of `x`."""
    if not is_float64(x):
        x32 = ops.cast(x, "float32")
        return ops.cast(ops.mean(x32, axis=axis, keepdims=keepdims), x.dtype)
    total = ops.sum(x, axis=axis, keepdims=keepdims)
    return total / ops.cast(ops.shape(x)[axis], x.dtype)


def is_float64(x):
    return keras.backend.standardize_dtype(x.dtype) == "float64"


def at_least_float32(dtype):
    """`dtype`, or float32 where it is shorter."""
    return "float64" if keras.backend.standardize_dtype(dtype) == "float64" else "float32"
