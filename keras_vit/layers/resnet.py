"""The ResNet parts of hybrids (section 3.1) and of BiT (Kolesnikov et al., 2020)."""

import dataclasses

import keras
from keras import ops

from keras_vit.checks import check_choice, positive_int
from keras_vit.layers import kernels
from keras_vit.layers.layer import Layer

GROUPS = 32  # of group norm
ROOT_FILTERS = 64  # output channels of the root for a width factor of 1
VERSIONS = ("v1", "v2")


@dataclasses.dataclass(frozen=True)
class Numerics:
    """The constants in which the published ResNets differ."""

    weight_epsilon: float  # keeps a constant kernel from a division by zero
    norm_epsilon: float  # added to the variance in group norm
    of_variance: bool = True  # whether weight_epsilon is added to the variance, or to its root
    pool_padding: float = 0.0  # around the feature map before the max pooling of a v2 root


NUMERICS = {
    # google-research/vision_transformer (hybrids) and bit.py of google-research/big_vision
    "google": Numerics(weight_epsilon=1e-5, norm_epsilon=1e-6, of_variance=False),
    "timm": Numerics(weight_epsilon=1e-8, norm_epsilon=1e-5),  # timm and Hugging Face
    "bit": Numerics(weight_epsilon=1e-10, norm_epsilon=1e-5),  # google-research/big_transfer
    # bit_paper.py of google-research/big_vision
    "bit_paper": Numerics(weight_epsilon=1e-10, norm_epsilon=1e-5, pool_padding=-float("inf")),
}


@dataclasses.dataclass(frozen=True)
class ResNetStyle:
    """Version and constants of one of the published ResNets; it makes their convolutions and norms.

    Args:
        version: `"v1"`, of hybrids, whose norms follow convolutions, with padding as `"same"`; or
            `"v2"`, of BiT, whose norms precede convolutions, with explicit padding.
        numerics: constants, a name of `NUMERICS`.
        folded: whether the kernels are standardised already (`keras_vit.fold`).
    """

    version: str = "v1"
    numerics: str = "google"
    folded: bool = False

    def __post_init__(self):
        check_choice("version", self.version, VERSIONS)

    def conv(self, filters, size, **options):
        """A convolution of this style; `options` are further arguments of `StdConv2D`."""
        options |= {"numerics": self.numerics, "folded": self.folded}
        return StdConv2D(filters, size, explicit_padding=self.version == "v2", **options)

    def norm(self, **options):
        """A group norm of this style; `options` are further arguments of `GroupNorm`."""
        return GroupNorm(NUMERICS[self.numerics].norm_epsilon, **options)


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


class Strided:
    """What layers of maps with a `stride` share: the shape of their outputs, rounded up.

    Explicit padding of an odd kernel gives as many outputs as "same".
    """

    def compute_output_spec(self, x):
        batch, *sides, _ = x.shape
        sides = [None if side is None else -(-side // self.stride) for side in sides]
        return self._output((batch, *sides, self.channels))


@keras.saving.register_keras_serializable("keras_vit")
class StdConv2D(Strided, Layer):
    """A convolution without bias whose kernel is standardised at every use.

    Shapes: (batch, height, width, channels) -> (batch, ceil(height / stride), ..., filters).

    Args:
        filters, kernel_size, strides: output channels, side of the kernel, and stride.
        explicit_padding: whether to pad by (kernel_size - 1) / 2, as in BiT, or as `"same"` does.
        numerics, folded: as in `ResNetStyle`.
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
        self.channels = positive_int(filters, "filters")
        self.kernel_size = positive_int(kernel_size, "kernel_size")
        check_choice("numerics", numerics, tuple(NUMERICS))
        self.stride, self.explicit_padding = strides, explicit_padding
        self.numerics, self.folded = numerics, folded

    def build(self, input_shape):
        shape = (self.kernel_size, self.kernel_size, input_shape[-1], self.channels)
        initial = kernels.initial("lecun_normal")
        # Standardised in full precision, and rounded to half precision only then.
        self.kernel = self.add_weight(shape, initial, autocast=False, name="kernel")
        kernels.lay_out(self.kernel)

    def call(self, x):
        kernel = self.kernel if self.folded else standardize(self.kernel, NUMERICS[self.numerics])
        kernel = ops.cast(kernel, self.compute_dtype)
        return kernels.conv(x, kernel, self.stride, self.explicit_padding)


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
class Root(Strided, Layer):
    """7 x 7 convolution and 3 x 3 max pooling, each with stride 2, in front of the units.

    Shapes: (batch, height, width, channels) -> (batch, ceil(height / 4), ..., filters).

    Version 1 has a norm and ReLU between the two; version 2 pads by `Numerics.pool_padding`.

    Args:
        filters: output channels.
        version, numerics, folded: as in `ResNetStyle`.
    """

    stride = 4

    def __init__(self, filters, version="v1", numerics="google", folded=False, **kwargs):
        super().__init__(**kwargs)
        self.channels, self.style = filters, ResNetStyle(version, numerics, folded=folded)
        self.conv = self.style.conv(filters, 7, strides=2, dtype=self.dtype_policy, name="conv")
        if version == "v1":
            self.norm = self.style.norm(dtype=self.dtype_policy, name="norm")

    def build(self, input_shape):
        self.conv.build(input_shape)
        if self.style.version == "v1":
            self.norm.build(self.conv.compute_output_shape(input_shape))

    def call(self, x):
        x = self.conv(x)
        if self.style.version == "v1":
            return kernels.max_pool(ops.relu(self.norm(x)), size=3, strides=2, same=True)
        value = NUMERICS[self.style.numerics].pool_padding
        x = ops.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=value)
        return kernels.max_pool(x, size=3, strides=2, same=False)


@keras.saving.register_keras_serializable("keras_vit")
class Bottleneck(Strided, Layer):
    """1 x 1, 3 x 3 and 1 x 1 convolutions around a residual connection (He et al., 2016).

    Shapes: (batch, height, width, channels) -> (batch, ceil(height / strides), ..., 4 * filters).

    Args:
        filters, strides: of the 3 x 3 convolution.
        version, numerics, folded: as in `ResNetStyle`.
    """

    def __init__(self, filters, strides=1, version="v1", numerics="google", folded=False, **kwargs):
        super().__init__(**kwargs)
        self.style = style = ResNetStyle(version, numerics, folded=folded)
        dtype = self.dtype_policy
        self.conv1 = style.conv(filters, 1, dtype=dtype, name="conv1")
        self.conv2 = style.conv(filters, 3, strides=strides, dtype=dtype, name="conv2")
        self.conv3 = style.conv(4 * filters, 1, dtype=dtype, name="conv3")
        self.channels, self.stride = 4 * filters, strides
        self.norm1 = style.norm(dtype=dtype, name="norm1")
        self.norm2 = style.norm(dtype=dtype, name="norm2")
        # A fresh unit of version 1 gives relu(shortcut).
        self.norm3 = style.norm(gamma=0.0 if version == "v1" else 1.0, dtype=dtype, name="norm3")

    def build(self, input_shape):
        # Only the number of channels, which is last, matters to the layers inside.
        inner = (*input_shape[:-1], self.conv1.channels)
        outer = (*input_shape[:-1], self.channels)
        is_v1, dtype = self.style.version == "v1", self.dtype_policy
        normed = (inner, inner, outer) if is_v1 else (input_shape, inner, inner)
        for conv, shape in zip((self.conv1, self.conv2, self.conv3), (input_shape, inner, inner)):
            conv.build(shape)
        for norm, shape in zip((self.norm1, self.norm2, self.norm3), normed):
            norm.build(shape)
        # The shortcut has a convolution where channels or size change.
        self.needs_projection = input_shape[-1] != self.channels or self.stride != 1
        if self.needs_projection:
            options = {"strides": self.stride, "dtype": dtype, "name": "conv_proj"}
            self.conv_proj = self.style.conv(self.channels, 1, **options)
            self.conv_proj.build(input_shape)
            if is_v1:
                self.norm_proj = self.style.norm(dtype=dtype, name="norm_proj")
                self.norm_proj.build(outer)

    def call(self, x):
        return self.norms_last(x) if self.style.version == "v1" else self.norms_first(x)

    def norms_last(self, x):
        """Version 1: a norm follows each convolution, and a ReLU the sum."""
        y = ops.relu(self.norm1(self.conv1(x)))
        y = ops.relu(self.norm2(self.conv2(y)))
        y = self.norm3(self.conv3(y))
        shortcut = self.norm_proj(self.conv_proj(x)) if self.needs_projection else x
        return ops.relu(y + shortcut)

    def norms_first(self, x):
        """Version 2: norm and ReLU precede each convolution, and nothing follows the sum."""
        y = ops.relu(self.norm1(x))
        shortcut = self.conv_proj(y) if self.needs_projection else x
        y = self.conv2(ops.relu(self.norm2(self.conv1(y))))
        return shortcut + self.conv3(ops.relu(self.norm3(y)))


def resnet_stages(x, blocks, *, width, style, dtype):
    """The feature map of a ResNet, whose layers become part of a Functional graph.

    They are called `root` and `stage_1_unit_1`, `stage_1_unit_2` and so on. The root has stride 4,
    the first stage 1, each other one 2 in its first unit; stages have 256, 512, 1024 and 2048
    channels times `width`. `blocks` are the units of each stage, such as (3, 4, 6, 3); empty for
    the root alone.
    """
    options, filters = {**dataclasses.asdict(style), "dtype": dtype}, int(ROOT_FILTERS * width)
    x = Root(filters, **options, name="root")(x)
    for stage, units in enumerate(blocks):
        for unit in range(units):
            strides = 2 if stage > 0 and unit == 0 else 1
            name = f"stage_{stage + 1}_unit_{unit + 1}"
            x = Bottleneck(filters * 2**stage, strides=strides, **options, name=name)(x)
    return x
