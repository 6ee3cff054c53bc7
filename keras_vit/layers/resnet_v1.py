"""Root and unit of the ResNets of version 1 (He et al., 2016), which hybrids have as a stem.

Norms come after convolutions, which pad as `"same"` does.
"""

import keras
from keras import ops

from keras_vit.layers import kernels
from keras_vit.layers.resnet import Part, build_in_turn


@keras.saving.register_keras_serializable("keras_vit")
class Root(Part):
    """7 x 7 convolution of stride 2, norm, ReLU, and 3 x 3 max pooling of stride 2.

    Shapes: (batch, height, width, channels) -> (batch, ceil(height / 4), ..., filters).

    Args:
        filters: output channels.
        numerics, folded: as in `StdConv2D`.
    """

    def __init__(self, filters, numerics="google", folded=False, **kwargs):
        super().__init__(filters, 4, numerics, folded, **kwargs)
        self.conv = self.convolution("conv", filters, 7, strides=2)
        self.norm = self.group_norm("norm")

    def build(self, input_shape):
        build_in_turn([self.conv, self.norm], input_shape)

    def call(self, x):
        x = ops.relu(self.norm(self.conv(x)))
        return kernels.max_pool(x, size=3, strides=2, same=True)


@keras.saving.register_keras_serializable("keras_vit")
class Bottleneck(Part):
    """1 x 1, 3 x 3 and 1 x 1 convolutions around a residual connection (He et al., 2016).

    A norm follows each convolution, and a ReLU the sum.

    Shapes: (batch, height, width, channels) -> (batch, ceil(height / strides), ..., 4 * filters).

    Args:
        filters, strides: of the 3 x 3 convolution.
        numerics, folded: as in `StdConv2D`.
    """

    def __init__(self, filters, strides=1, numerics="google", folded=False, **kwargs):
        super().__init__(4 * filters, strides, numerics, folded, **kwargs)
        self.conv1 = self.convolution("conv1", filters, 1)
        self.conv2 = self.convolution("conv2", filters, 3, strides=strides)
        self.conv3 = self.convolution("conv3", 4 * filters, 1)
        self.norm1, self.norm2 = self.group_norm("norm1"), self.group_norm("norm2")
        self.norm3 = self.group_norm("norm3", gamma=0.0)  # a fresh unit gives relu(shortcut)
        self.conv_proj = self.norm_proj = None

    def build(self, input_shape):
        parts = [self.conv1, self.norm1, self.conv2, self.norm2, self.conv3, self.norm3]
        build_in_turn(parts, input_shape)
        if self.changes_shape(input_shape):
            self.conv_proj = self.convolution("conv_proj", self.channels, 1, strides=self.stride)
            self.norm_proj = self.group_norm("norm_proj")
            build_in_turn([self.conv_proj, self.norm_proj], input_shape)

    def call(self, x):
        y = ops.relu(self.norm1(self.conv1(x)))
        y = ops.relu(self.norm2(self.conv2(y)))
        y = self.norm3(self.conv3(y))
        shortcut = x if self.conv_proj is None else self.norm_proj(self.conv_proj(x))
        return ops.relu(y + shortcut)
