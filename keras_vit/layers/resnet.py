"""The ResNet parts of hybrids and BiT: standardised convolutions, group norm, root and units.

Hybrids (section 3.1) put post-activation units, "v1", before the Transformer; BiT (Kolesnikov et
al., 2020) is made of pre-activation units, "v2".
"""

import dataclasses

import keras
from keras import ops

from keras_vit.checks import positive_int
from keras_vit.layers import kernels
from keras_vit.layers.layer import Layer

GROUPS, ROOT_FILTERS = 32, 64


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
        # Standardised in full precision, and rounded to half precision only then.
        self.kernel = self.add_weight(
            shape, kernels.initial("lecun_normal"), autocast=False, name="kernel"
        )
        kernels.lay_out(self.kernel)

    def call(self, x):
        kernel = self.kernel
        if not self.folded:
            kernel = standardize(kernel, NUMERICS[self.numerics])
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
        gamma = keras.initializers.Constant(self.initial_gamma)
        self.gamma = self.add_weight(input_shape[-1:], gamma, name="gamma")
        self.beta = self.add_weight(input_shape[-1:], "zeros", name="beta")

    def call(self, x):
        x = ops.cast(x, kernels.at_least_float32(self.compute_dtype))
        outputs = kernels.group_norm(x, GROUPS, self.gamma, self.beta, self.epsilon)
        return ops.cast(outputs, self.compute_dtype)


@keras.saving.register_keras_serializable("keras_vit")
class Root(Layer):
    """7 x 7 convolution and 3 x 3 max pooling, each with stride 2, in front of the units.

    Shapes: (batch, height, width, channels) -> (batch, ceil(height / 4), ..., filters).

    Args:
        filters: output channels, 64 for a width factor of 1.
        version: `"v1"`, with norm and ReLU between the two, or `"v2"`, without.
        numerics, folded: as in `StdConv2D`.
    """

    def __init__(self, filters, version="v1", numerics="google", folded=False, **kwargs):
        super().__init__(**kwargs)
        self.filters, self.version, self.facts = filters, version, NUMERICS[numerics]
        explicit, kind = version == "v2", {"dtype": self.dtype_policy}
        self.conv = StdConv2D(filters, 7, 2, explicit, numerics, folded, **kind, name="conv")
        if version == "v1":
            self.norm = GroupNorm(self.facts.norm_epsilon, **kind, name="norm")

    def build(self, input_shape):
        self.conv.build(input_shape)
        if self.version == "v1":
            self.norm.build(self.conv.compute_output_shape(input_shape))

    def call(self, x):
        x = self.conv(x)
        if self.version == "v1":
            return kernels.max_pool(ops.relu(self.norm(x)), 3, 2, same=True)
        padding = ((0, 0), (1, 1), (1, 1), (0, 0))
        x = ops.pad(x, padding, constant_values=self.facts.pool_padding)
        return kernels.max_pool(x, 3, 2, same=False)

    def convolutions(self):
        """The standardised convolutions in it."""
        return [self.conv]

    def compute_output_spec(self, x):
        return self._output(_strided(_strided(x.shape, 2, None), 2, self.filters))


@keras.saving.register_keras_serializable("keras_vit")
class Bottleneck(Layer):
    """1 x 1, 3 x 3 and 1 x 1 convolutions around a residual connection (He et al., 2016).

    v1: relu(x' + norm(conv(relu(norm(conv(relu(norm(conv(x)))))))), norms after convolutions.
    v2: x' + conv(relu(norm(conv(relu(norm(conv(relu(norm(x)))))))), norms before them.
    x' is x, or a 1 x 1 convolution of it (with a norm in v1; of the normalised x in v2) where
    channels or size change.

    Shapes: (batch, height, width, channels) -> (batch, ceil(height / strides), ..., 4 * filters).

    Args:
        filters, strides: of the 3 x 3 convolution.
        version: `"v1"` or `"v2"`.
        numerics, folded: as in `StdConv2D`.
    """

    def __init__(self, filters, strides=1, version="v1", numerics="google", folded=False, **kwargs):
        super().__init__(**kwargs)
        self.filters, self.strides = positive_int(filters, "filters"), strides
        self.version, self.numerics, self.folded = version, numerics, folded
        self.conv1, self.conv2 = self._conv("conv1", 1), self._conv("conv2", 3, strides)
        self.conv3 = self._conv("conv3", 1, filters=4 * filters)
        self.norm1, self.norm2 = self._norm("norm1"), self._norm("norm2")
        # A fresh v1 unit is the identity, as the norm that ends its branch gives zero.
        self.norm3 = self._norm("norm3", gamma=0.0 if version == "v1" else 1.0)

    def _conv(self, name, size, strides=1, filters=None):
        choices = (self.version == "v2", self.numerics, self.folded)
        kind = {"dtype": self.dtype_policy, "name": name}
        return StdConv2D(filters or self.filters, size, strides, *choices, **kind)

    def _norm(self, name, gamma=1.0):
        epsilon = NUMERICS[self.numerics].norm_epsilon
        return GroupNorm(epsilon, gamma, dtype=self.dtype_policy, name=name)

    def build(self, input_shape):
        inner, outer = ((*input_shape[:-1], self.filters * factor) for factor in (1, 4))
        after = self.version == "v1"
        self.conv1.build(input_shape)
        self.conv2.build(inner)
        self.conv3.build(inner)
        self.norm1.build(inner if after else input_shape)
        self.norm2.build(inner)
        self.norm3.build(outer if after else inner)
        self.needs_projection = input_shape[-1] != outer[-1] or self.strides != 1
        if self.needs_projection:
            self.conv_proj = self._conv("conv_proj", 1, self.strides, outer[-1])
            self.conv_proj.build(input_shape)
            if after:
                self.norm_proj = self._norm("norm_proj")
                self.norm_proj.build(outer)

    def call(self, x):
        shortcut = x
        if self.version == "v1":
            y = ops.relu(self.norm1(self.conv1(x)))
            y = ops.relu(self.norm2(self.conv2(y)))
            y = self.norm3(self.conv3(y))
            if self.needs_projection:
                shortcut = self.norm_proj(self.conv_proj(x))
            return ops.relu(y + shortcut)
        y = ops.relu(self.norm1(x))
        if self.needs_projection:
            shortcut = self.conv_proj(y)
        y = self.conv2(ops.relu(self.norm2(self.conv1(y))))
        return shortcut + self.conv3(ops.relu(self.norm3(y)))

    def convolutions(self):
        """The standardised convolutions in it."""
        projection = [self.conv_proj] if self.needs_projection else []
        return [self.conv1, self.conv2, self.conv3, *projection]

    def compute_output_spec(self, x):
        return self._output(_strided(x.shape, self.strides, 4 * self.filters))


def resnet_stages(x, blocks, width, version, numerics, folded, policy):
    """Adds a ResNet without its head to a Functional graph.

    Layers are called `root` and `stage_1_unit_1`, `stage_1_unit_2` and so on. The root has stride
    4, the first stage 1, each other one 2 in its first unit; stages have 256, 512, 1024 and 2048
    channels times `width`.

    Args:
        x: images, shape (batch, height, width, channels).
        blocks: number of units of each stage, such as (3, 4, 6, 3); empty for the root alone.
        width: factor of all channels.
        version, numerics, folded: as in `Bottleneck`.
        policy: dtype policy of the layers.

    Returns:
        The feature map.
    """
    filters, choices = int(ROOT_FILTERS * width), (version, numerics, folded)
    x = Root(filters, *choices, dtype=policy, name="root")(x)
    for stage, units in enumerate(blocks):
        for unit in range(units):
            strides = 2 if stage and not unit else 1
            name = f"stage_{stage + 1}_unit_{unit + 1}"
            x = Bottleneck(filters * 2**stage, strides, *choices, dtype=policy, name=name)(x)
    return x
