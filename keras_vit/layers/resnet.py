"""The ResNet parts of hybrids and BiT: the root and the bottleneck units.

Hybrids (section 3.1) put post-activation units, "v1", before the Transformer; BiT (Kolesnikov et
al., 2020) is made of pre-activation units, "v2".
"""

import keras
from keras import ops

from keras_vit.checks import positive_int
from keras_vit.layers import kernels
from keras_vit.layers.standardize import NUMERICS, GroupNorm, StdConv2D


@keras.saving.register_keras_serializable("keras_vit")
class Root(keras.layers.Layer):
    """7 x 7 convolution and 3 x 3 max pooling, each with stride 2, in front of the units.

    Shapes: (batch, height, width, channels) -> (batch, ceil(height / 4), ..., filters).

    Args:
        filters: output channels, 64 for a width factor of 1.
        version: `"v1"`, with norm and ReLU between the two, or `"v2"`, without.
        numerics: a name of `NUMERICS`.
        folded: whether the kernel is standardised already.
    """

    def __init__(self, filters, version="v1", numerics="google", folded=False, **kwargs):
        super().__init__(**kwargs)
        self.filters, self.version, self.numerics = filters, version, numerics
        facts, policy = NUMERICS[numerics], self.dtype_policy
        explicit = version == "v2"
        self.conv = StdConv2D(filters, 7, 2, explicit, numerics, folded, dtype=policy, name="conv")
        if version == "v1":
            self.norm = GroupNorm(facts.norm_epsilon, dtype=policy, name="norm")

    def build(self, input_shape):
        self.conv.build(input_shape)
        if self.version == "v1":
            self.norm.build(self.conv.compute_output_shape(input_shape))
        self.built = True

    def call(self, x):
        x = self.conv(x)
        if self.version == "v1":
            x = ops.relu(self.norm(x))
            return kernels.max_pool(x, 3, 2, same=True)
        padding = NUMERICS[self.numerics].pool_padding
        x = ops.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=padding)
        return kernels.max_pool(x, 3, 2, same=False)

    def convolutions(self):
        """The standardised convolutions in it."""
        return [self.conv]

    def compute_output_shape(self, input_shape):
        batch, *sides, _ = self.conv.compute_output_shape(input_shape)
        return (batch, *(side and -(-side // 2) for side in sides), self.filters)

    def get_config(self):
        return {
            **super().get_config(),
            "filters": self.filters,
            "version": self.version,
            "numerics": self.numerics,
            "folded": self.conv.folded,
        }


@keras.saving.register_keras_serializable("keras_vit")
class Bottleneck(keras.layers.Layer):
    """1 x 1, 3 x 3 and 1 x 1 convolutions around a residual connection (He et al., 2016).

    v1: relu(x' + norm(conv(relu(norm(conv(relu(norm(conv(x)))))))), norms after convolutions.
    v2: x' + conv(relu(norm(conv(relu(norm(conv(relu(norm(x)))))))), norms before them.
    x' is x, or a 1 x 1 convolution of it (with a norm in v1; of the normalised x in v2) where
    channels or size change.

    Shapes: (batch, height, width, channels) -> (batch, ceil(height / strides), ..., 4 * filters).

    Args:
        filters: channels of the 3 x 3 convolution.
        strides: of the 3 x 3 convolution.
        version: `"v1"` or `"v2"`.
        numerics: a name of `NUMERICS`.
        folded: whether the kernels are standardised already.
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
        return StdConv2D(
            filters or self.filters,
            size,
            strides,
            self.version == "v2",
            self.numerics,
            self.folded,
            dtype=self.dtype_policy,
            name=name,
        )

    def _norm(self, name, gamma=1.0):
        epsilon = NUMERICS[self.numerics].norm_epsilon
        return GroupNorm(epsilon, gamma, dtype=self.dtype_policy, name=name)

    def build(self, input_shape):
        inner = (*input_shape[:-1], self.filters)
        self.needs_projection = input_shape[-1] != 4 * self.filters or self.strides != 1
        after = self.version == "v1"
        self.conv1.build(input_shape)
        self.norm1.build(inner if after else input_shape)
        self.conv2.build(inner)
        self.norm2.build(inner)
        self.conv3.build(inner)
        self.norm3.build((*inner[:-1], 4 * self.filters) if after else inner)
        if self.needs_projection:
            self.conv_proj = self._conv("conv_proj", 1, self.strides, 4 * self.filters)
            self.conv_proj.build(input_shape)
            if after:
                self.norm_proj = self._norm("norm_proj")
                self.norm_proj.build((*inner[:-1], 4 * self.filters))
        self.built = True

    def call(self, x):
        return self._post_activation(x) if self.version == "v1" else self._pre_activation(x)

    def _post_activation(self, x):
        y = ops.relu(self.norm1(self.conv1(x)))
        y = ops.relu(self.norm2(self.conv2(y)))
        y = self.norm3(self.conv3(y))
        return ops.relu(y + (self.norm_proj(self.conv_proj(x)) if self.needs_projection else x))

    def _pre_activation(self, x):
        y = ops.relu(self.norm1(x))
        shortcut = self.conv_proj(y) if self.needs_projection else x
        y = self.conv2(ops.relu(self.norm2(self.conv1(y))))
        return shortcut + self.conv3(ops.relu(self.norm3(y)))

    def convolutions(self):
        """The standardised convolutions in it."""
        projection = [self.conv_proj] if self.needs_projection else []
        return [self.conv1, self.conv2, self.conv3, *projection]

    def compute_output_shape(self, input_shape):
        batch, *sides, _ = input_shape
        return (batch, *(s and -(-s // self.strides) for s in sides), 4 * self.filters)

    def get_config(self):
        return {
            **super().get_config(),
            "filters": self.filters,
            "strides": self.strides,
            "version": self.version,
            "numerics": self.numerics,
            "folded": self.folded,
        }
