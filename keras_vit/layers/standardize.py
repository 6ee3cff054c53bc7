"""Standardised convolutions and group norm, and the constants in which their users differ."""

import dataclasses

import keras
from keras import ops

from keras_vit.checks import positive_int
from keras_vit.layers import kernels
from keras_vit.layers.initial import initial

GROUPS = 32


@dataclasses.dataclass(frozen=True)
class Numerics:
    """The constants in which the published ResNets differ.

    Attributes:
        of_variance: whether `weight_epsilon` is added to the variance of a kernel, rather than to
            its standard deviation.
        weight_epsilon: keeps a constant kernel from a division by zero.
        norm_epsilon: added to the variance in group norm.
        pool_padding: what surrounds the feature map in front of the max pooling of a v2 root.
    """

    of_variance: bool
    weight_epsilon: float
    norm_epsilon: float
    pool_padding: float = 0.0


NUMERICS = {
    "google": Numerics(False, 1e-5, 1e-6),  # hybrids, and big_vision's bit.py
    "timm": Numerics(True, 1e-8, 1e-5),  # and Hugging Face
    "bit": Numerics(True, 1e-10, 1e-5),  # big_transfer
    "bit_paper": Numerics(True, 1e-10, 1e-5, pool_padding=-float("inf")),  # big_vision
}


def standardize(kernel, numerics):
    """A kernel with mean 0 and deviation 1 for each output channel (Qiao et al., 2019).

    Shapes: (height, width, in, out) -> the same. Computed in float32 at least.
    """
    kernel = ops.cast(kernel, kernels.at_least_float32(kernel.dtype))
    values = kernel.shape[0] * kernel.shape[1] * kernel.shape[2]
    kernel = kernel - ops.sum(kernel, axis=(0, 1, 2), keepdims=True) / values
    variance = ops.sum(kernel * kernel, axis=(0, 1, 2), keepdims=True) / values
    if numerics.of_variance:
        return kernel / ops.sqrt(variance + numerics.weight_epsilon)
    return kernel / (ops.sqrt(variance) + numerics.weight_epsilon)


@keras.saving.register_keras_serializable("keras_vit")
class StdConv2D(keras.layers.Layer):
    """A convolution without bias whose kernel is standardised at every use.

    Shapes: (batch, height, width, channels) -> (batch, ceil(height / stride), ..., filters).

    Args:
        filters: output channels.
        kernel_size: side of the kernel.
        strides: of the convolution.
        explicit_padding: whether (kernel_size - 1) / 2 zeros surround the input, as in BiT,
            rather than what `"same"` needs, which lies more to the right where strides are 2.
        numerics: a name of `NUMERICS`.
        folded: whether the kernel is standardised already.
    """

    def __init__(
        self,
        filters,
        kernel_size,
        strides=1,
        explicit_padding=False,
        numerics="google",
        folded=False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.filters = positive_int(filters, "filters")
        self.kernel_size = positive_int(kernel_size, "kernel_size")
        self.strides, self.explicit_padding = strides, explicit_padding
        self.numerics, self.folded = numerics, folded

    def build(self, input_shape):
        shape = (self.kernel_size, self.kernel_size, input_shape[-1], self.filters)
        # Not rounded to half precision in front of the standardisation, but behind it.
        self.kernel = self.add_weight(shape, initial("lecun_normal"), autocast=False, name="kernel")
        kernels.lay_out(self.kernel)
        self.built = True

    def call(self, x):
        kernel = self.kernel
        if not self.folded:
            kernel = standardize(kernel, NUMERICS[self.numerics])
        kernel = ops.cast(kernel, self.compute_dtype)
        return kernels.conv(x, kernel, self.strides, self.explicit_padding)

    def compute_output_shape(self, input_shape):
        batch, *sides, _ = input_shape
        # Explicit padding of an odd kernel gives as many outputs as "same".
        return (batch, *(s and -(-s // self.strides) for s in sides), self.filters)

    def get_config(self):
        return {
            **super().get_config(),
            "filters": self.filters,
            "kernel_size": self.kernel_size,
            "strides": self.strides,
            "explicit_padding": self.explicit_padding,
            "numerics": self.numerics,
            "folded": self.folded,
        }


@keras.saving.register_keras_serializable("keras_vit")
class GroupNorm(keras.layers.Layer):
    """Normalises 32 groups of channels over the image, then gamma and beta (Wu and He, 2018).

    Shapes: (batch, height, width, channels) -> the same. Statistics are float32 at least.

    Args:
        epsilon: added to the variance.
        gamma: initial value of gamma; zero for the last norm of a v1 unit.
    """

    def __init__(self, epsilon, gamma=1.0, **kwargs):
        super().__init__(autocast=False, **kwargs)
        self.epsilon, self.initial_gamma = epsilon, gamma

    def build(self, input_shape):
        if input_shape[-1] % GROUPS:
            raise ValueError(
                f"Group norm has {GROUPS} groups, which must divide the channels. Received: "
                f"{input_shape[-1]} channels; choose a width factor that is a multiple of 0.5."
            )
        gamma = keras.initializers.Constant(self.initial_gamma)
        self.gamma = self.add_weight(input_shape[-1:], gamma, name="gamma")
        self.beta = self.add_weight(input_shape[-1:], "zeros", name="beta")
        self.built = True

    def call(self, x):
        outputs = kernels.group_norm(x, GROUPS, self.gamma, self.beta, self.epsilon)
        return ops.cast(outputs, self.compute_dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon, "gamma": self.initial_gamma}
