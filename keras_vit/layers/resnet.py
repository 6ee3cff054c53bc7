"""The ResNet parts of hybrids (section 3.1) and of BiT (Kolesnikov et al., 2020).

In version 1, which hybrids have, norms follow convolutions; in version 2, BiT's, they precede them.
"""

import dataclasses

import keras
from keras import ops

from keras_vit.checks import check_choice, positive_int
from keras_vit.layers import kernels
from keras_vit.layers.layer import Layer

GROUPS, ROOT_FILTERS = 32, 64  # of group norm, and of the root for a width factor of 1
VERSIONS = ("v1", "v2")


@dataclasses.dataclass(frozen=True)
class Numerics:
    """The constants in which the published ResNets differ."""

    of_variance: bool  # weight_epsilon is added to the variance, not to the standard deviation
    weight_epsilon: float  # keeps a constant kernel from a division by zero
    norm_epsilon: float  # added to the variance in group norm
    pool_padding: float = 0.0  # around the feature map before the max pooling of a v2 root


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
class StdConv2D(Layer):
    """A convolution without bias whose kernel is standardised at every use.

    Shapes: (batch, height, width, channels) -> (batch, ceil(height / stride), ..., filters).

    Args:
        filters: output channels.
        kernel_size: side of the kernel.
        strides: of the convolution.
        explicit_padding: whether to pad by (kernel_size - 1) / 2, as in BiT, or as `"same"` does.
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
        # Standardised in full precision, and rounded to half precision only then.
        self.kernel = self.add_weight(
            shape, kernels.initial("lecun_normal"), autocast=False, name="kernel"
        )
        kernels.lay_out(self.kernel)

    def call(self, x):
        kernel = self.kernel if self.folded else standardize(self.kernel, NUMERICS[self.numerics])
        kernel = ops.cast(kernel, self.compute_dtype)
        return kernels.conv(x, kernel, self.strides, self.explicit_padding)

    def compute_output_spec(self, x):
        # Explicit padding of an odd kernel gives as many outputs as "same".
        return self._output(_strided(x.shape, self.strides, self.filters))


def _strided(shape, strides, channels):
    batch, *sides, _ = shape
    return (batch, *(side and -(-side // strides) for side in sides), channels)


@keras.saving.register_keras_serializable("keras_vit")
class GroupNorm(Layer):
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
        initial, channels = keras.initializers.Constant(self.initial_gamma), input_shape[-1:]
        self.gamma = self.add_weight(channels, initial, name="gamma")
        self.beta = self.add_weight(channels, "zeros", name="beta")

    def call(self, x):
        x = ops.cast(x, kernels.at_least_float32(self.compute_dtype))
        x = kernels.group_norm(x, GROUPS, self.gamma, self.beta, self.epsilon)
        return ops.cast(x, self.compute_dtype)


@keras.saving.register_keras_serializable("keras_vit")
class Root(Layer):
    """7 x 7 convolution and 3 x 3 max pooling, each with stride 2, in front of the units.

    Shapes: (batch, height, width, channels) -> (batch, ceil(height / 4), ..., filters).

    Args:
        filters: output channels.
        version: `"v1"`, with norm and ReLU between the two, or `"v2"`, with
            `Numerics.pool_padding` around what is pooled.
        numerics, folded: as in `StdConv2D`.
    """

    def __init__(self, filters, version="v1", numerics="google", folded=False, **kwargs):
        super().__init__(**kwargs)
        check_choice("version", version, VERSIONS)
        self.filters, self.version = filters, version
        self.numerics, self.folded = numerics, folded
        self.conv = _conv(self, "conv", filters, 7, strides=2)

    def build(self, input_shape):
        self.conv.build(input_shape)
        if self.version == "v1":
            self.norm = _norm(self, "norm")
            self.norm.build(self.conv.compute_output_shape(input_shape))

    def call(self, x):
        x = self.conv(x)
        if self.version == "v1":
            return kernels.max_pool(ops.relu(self.norm(x)), size=3, strides=2, same=True)
        value = NUMERICS[self.numerics].pool_padding
        x = ops.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=value)
        return kernels.max_pool(x, size=3, strides=2, same=False)

    def convolutions(self):
        """The standardised convolutions in it."""
        return [self.conv]

    def compute_output_spec(self, x):
        return self._output(_strided(_strided(x.shape, 2, None), 2, self.filters))


@keras.saving.register_keras_serializable("keras_vit")
class Bottleneck(Layer):
    """1 x 1, 3 x 3 and 1 x 1 convolutions around a residual connection (He et al., 2016).

    Shapes: (batch, height, width, channels) -> (batch, ceil(height / strides), ..., 4 * filters).

    Args:
        filters, strides: of the 3 x 3 convolution.
        version: `"v1"`, whose norms follow the convolutions, or `"v2"`, whose norms precede them.
        numerics, folded: as in `StdConv2D`.
    """

    def __init__(self, filters, strides=1, version="v1", numerics="google", folded=False, **kwargs):
        super().__init__(**kwargs)
        check_choice("version", version, VERSIONS)
        self.filters, self.strides = positive_int(filters, "filters"), strides
        self.version, self.numerics, self.folded = version, numerics, folded
        self.conv1 = _conv(self, "conv1", filters, 1)
        self.conv2 = _conv(self, "conv2", filters, 3, strides=strides)
        self.conv3 = _conv(self, "conv3", 4 * filters, 1)
        self.norm1, self.norm2 = _norm(self, "norm1"), _norm(self, "norm2")
        # A fresh unit of version 1 is the identity.
        self.norm3 = _norm(self, "norm3", gamma=0.0 if version == "v1" else 1.0)

    def build(self, input_shape):
        inner, outer = ((*input_shape[:-1], self.filters * factor) for factor in (1, 4))
        self.conv1.build(input_shape)
        self.conv2.build(inner)
        self.conv3.build(inner)
        self.norm1.build(inner if self.version == "v1" else input_shape)
        self.norm2.build(inner)
        self.norm3.build(outer if self.version == "v1" else inner)
        # The shortcut has a convolution where channels or size change.
        self.needs_projection = input_shape[-1] != outer[-1] or self.strides != 1
        if self.needs_projection:
            self.conv_proj = _conv(self, "conv_proj", outer[-1], 1, strides=self.strides)
            self.conv_proj.build(input_shape)
            if self.version == "v1":
                self.norm_proj = _norm(self, "norm_proj")
                self.norm_proj.build(outer)

    def call(self, x):
        return self.norms_last(x) if self.version == "v1" else self.norms_first(x)

    def norms_last(self, x):
        """relu(x' + norm(conv(relu(norm(conv(relu(norm(conv(x))))))))), x' = x, norm(conv(x))."""
        y = ops.relu(self.norm1(self.conv1(x)))
        y = ops.relu(self.norm2(self.conv2(y)))
        y = self.norm3(self.conv3(y))
        shortcut = self.norm_proj(self.conv_proj(x)) if self.needs_projection else x
        return ops.relu(y + shortcut)

    def norms_first(self, x):
        """x' + conv(relu(norm(conv(relu(norm(conv(y))))))), y = relu(norm(x)), x' = x, conv(y)."""
        y = ops.relu(self.norm1(x))
        shortcut = self.conv_proj(y) if self.needs_projection else x
        y = self.conv2(ops.relu(self.norm2(self.conv1(y))))
        return shortcut + self.conv3(ops.relu(self.norm3(y)))

    def convolutions(self):
        """The standardised convolutions in it."""
        shortcut = [self.conv_proj] if self.needs_projection else []
        return [self.conv1, self.conv2, self.conv3, *shortcut]

    def compute_output_spec(self, x):
        return self._output(_strided(x.shape, self.strides, 4 * self.filters))


def _conv(layer, name, filters, size, strides=1):
    return StdConv2D(
        filters,
        size,
        strides=strides,
        explicit_padding=layer.version == "v2",
        numerics=layer.numerics,
        folded=layer.folded,
        dtype=layer.dtype_policy,
        name=name,
    )


def _norm(layer, name, gamma=1.0):
    epsilon = NUMERICS[layer.numerics].norm_epsilon
    return GroupNorm(epsilon, gamma, dtype=layer.dtype_policy, name=name)


def resnet_stages(x, blocks, *, width, **options):
    """The feature map of a ResNet, whose layers become part of a Functional graph.

    They are called `root` and `stage_1_unit_1`, `stage_1_unit_2` and so on. The root has stride 4,
    the first stage 1, each other one 2 in its first unit; stages have 256, 512, 1024 and 2048
    channels times `width`.

    Args:
        x: images, shape (batch, height, width, channels).
        blocks: number of units of each stage, such as (3, 4, 6, 3); empty for the root alone.
        width: factor of all channels.
        **options: `version`, `numerics`, `folded` and `dtype` of the layers.
    """
    filters = int(ROOT_FILTERS * width)
    x = Root(filters, **options, name="root")(x)
    for stage, units in enumerate(blocks):
        for unit in range(units):
            strides = 2 if stage > 0 and unit == 0 else 1
            name = f"stage_{stage + 1}_unit_{unit + 1}"
            x = Bottleneck(filters * 2**stage, strides=strides, **options, name=name)(x)
    return x
