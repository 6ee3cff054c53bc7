"""The ResNets of hybrids (section 3.1) and of BiT (Kolesnikov et al., 2020): what they share.

Roots and units differ: `resnet_v1.py` has those of hybrids, and `resnet_v2.py` those of BiT.
"""

import dataclasses

import keras
from keras import ops

from keras_vit.checks import check_choice, positive_int
from keras_vit.layers import kernels
from keras_vit.layers.layer import Layer

GROUPS = 32  # of group norm
ROOT_FILTERS = 64  # output channels of the root for a width factor of 1


@dataclasses.dataclass(frozen=True)
class Numerics:
    """The constants in which the published ResNets differ."""

    weight_epsilon: float  # keeps a constant kernel from a division by zero
    norm_epsilon: float  # added to the variance in group norm
    epsilon_inside_root: bool = True  # sqrt(variance + ε) instead of sqrt(variance) + ε
    pool_padding: float = 0.0  # around the feature map before the max pooling of a v2 root


NUMERICS = {
    # google-research/vision_transformer (hybrids), and bit.py of google-research/big_vision
    "google": Numerics(weight_epsilon=1e-5, norm_epsilon=1e-6, epsilon_inside_root=False),
    # huggingface/pytorch-image-models and huggingface/transformers
    "timm": Numerics(weight_epsilon=1e-8, norm_epsilon=1e-5),
    # google-research/big_transfer, the published BiT
    "bit": Numerics(weight_epsilon=1e-10, norm_epsilon=1e-5),
    # bit_paper.py of google-research/big_vision, which reads the weights of big_transfer
    "bit_paper": Numerics(weight_epsilon=1e-10, norm_epsilon=1e-5, pool_padding=-float("inf")),
}


def standardize(kernel, numerics):
    """A kernel with mean 0 and deviation 1 for each output channel (Qiao et al., 2019).

    Shapes: (height, width, in, out) -> the same. Computed in float32 at least.
    """
    kernel = ops.cast(kernel, kernels.at_least_float32(kernel.dtype))
    count = kernel.shape[0] * kernel.shape[1] * kernel.shape[2]
    kernel = kernel - ops.sum(kernel, axis=(0, 1, 2), keepdims=True) / count
    variance = ops.sum(kernel * kernel, axis=(0, 1, 2), keepdims=True) / count
    if numerics.epsilon_inside_root:
        return kernel / ops.sqrt(variance + numerics.weight_epsilon)
    return kernel / (ops.sqrt(variance) + numerics.weight_epsilon)


@keras.saving.register_keras_serializable("keras_vit")
class Strided(Layer):
    """A layer whose output has one pixel for every `stride` rows and columns, rounded up.

    A subclass sets `stride`, and `channels`, those of the output.
    """

    def compute_output_spec(self, x):
        batch, *sides, _ = x.shape
        sides = [None if side is None else -(-side // self.stride) for side in sides]
        return self._output((batch, *sides, self.channels))


@keras.saving.register_keras_serializable("keras_vit")
class StdConv2D(Strided):
    """A convolution without bias whose kernel is standardised at every use.

    Shapes: (batch, height, width, channels) -> (batch, ceil(height / stride), ..., filters).

    Args:
        filters, kernel_size, strides: output channels, side of the kernel, and stride.
        explicit_padding: whether to pad by (kernel_size - 1) / 2, as in BiT, or as `"same"` does;
            both give outputs of one size where the kernel's side is odd.
        numerics: constants, a name of `NUMERICS`.
        folded: whether the kernel is standardised already (`keras_vit.fold`).
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
        self.gamma = self.add_weight(channels, initial, name="gamma", autocast=False)
        self.beta = self.add_weight(channels, "zeros", name="beta", autocast=False)

    def call(self, x):
        x = ops.cast(x, kernels.at_least_float32(self.compute_dtype))
        x = kernels.group_norm(x, GROUPS, self.gamma, self.beta, self.epsilon)
        return ops.cast(x, self.compute_dtype)


@keras.saving.register_keras_serializable("keras_vit")
class Part(Strided):
    """A root or a unit, made of convolutions and norms of one `numerics`."""

    explicit_padding = False  # of the convolutions; see `StdConv2D`

    def __init__(self, channels, stride, numerics, folded, **kwargs):
        super().__init__(**kwargs)
        self.channels, self.stride = channels, stride
        self.numerics, self.folded = numerics, folded

    def convolution(self, name, filters, size, strides=1):
        return StdConv2D(
            filters,
            size,
            strides,
            explicit_padding=self.explicit_padding,
            numerics=self.numerics,
            folded=self.folded,
            dtype=self.dtype_policy,
            name=name,
        )

    def group_norm(self, name, gamma=1.0):
        epsilon = NUMERICS[self.numerics].norm_epsilon
        return GroupNorm(epsilon, gamma, dtype=self.dtype_policy, name=name)

    def changes_shape(self, input_shape):
        """Whether the shortcut of a unit needs a convolution, to have the shape of its output."""
        return self.stride != 1 or input_shape[-1] != self.channels


def build_in_turn(layers, input_shape):
    """Builds layers, each for the output of the one before."""
    for layer in layers:
        layer.build(input_shape)
        input_shape = layer.compute_output_shape(input_shape)


def stages(x, blocks, version, *, numerics, width=1.0, folded=False, dtype=None):
    """The feature map of a ResNet, whose layers become part of a Functional graph.

    They are called `root` and `stage_1_unit_1`, `stage_1_unit_2` and so on. The root has stride 4,
    the first stage 1, each other one 2 in its first unit; stages have 256, 512, 1024 and 2048
    channels times `width`.

    Args:
        blocks: units of each stage, such as (3, 4, 6, 3); empty for the root alone.
        version: `resnet_v1` or `resnet_v2`, the module of the root and the units.
        numerics, folded: as in `StdConv2D`.
    """
    options = {"numerics": numerics, "folded": folded, "dtype": dtype}
    filters = int(ROOT_FILTERS * width)
    x = version.Root(filters, **options, name="root")(x)
    for stage, units in enumerate(blocks):
        for unit in range(units):
            strides = 2 if stage > 0 and unit == 0 else 1
            name = f"stage_{stage + 1}_unit_{unit + 1}"
            x = version.Bottleneck(filters * 2**stage, strides=strides, **options, name=name)(x)
    return x
