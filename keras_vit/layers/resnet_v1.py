"""Root and unit of the ResNets of version 1 (He et al., 2016), which hybrids have as a stem.

Norms come after convolutions, which pad as `"same"` does.
"""

import keras
from keras import ops

from keras_vit.layers import kernels
from keras_vit.layers.layer import Layer
from keras_vit.layers.resnet import Part, Unit


@keras.saving.register_keras_serializable("keras_vit")
class Root(Part, Layer):
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
        self.conv.build(input_shape)
        self.norm.build(self.conv.compute_output_shape(input_shape))

    def call(self, x):
        x = ops.relu(self.norm(self.conv(x)))
        return kernels.max_pool(x, size=3, strides=2, same=True)


@keras.saving.register_keras_serializable("keras_vit")
class Bottleneck(Unit, Layer):
    """1 x 1, 3 x 3 and 1 x 1 convolutions around a residual connection (He et al., 2016).

    A norm follows each convolution, and a ReLU the sum.

    Shapes: (batch, height, width, channels) -> (batch, ceil(height / strides), ..., 4 * filters).

    Args:
        filters, strides: of the 3 x 3 convolution.
        numerics, folded: as in `StdConv2D`.
    """

    last_gamma = 0.0  # a fresh unit gives relu(shortcut)

    def build(self, input_shape):
        after_1, after_2, after_3 = self.build_convolutions(input_shape)
        self.norm1.build(after_1)
        self.norm2.build(after_2)
        self.norm3.build(after_3)
        if self.needs_projection:
            self.norm_proj = self.group_norm("norm_proj")
            self.norm_proj.build(after_3)

    def call(self, x):
        y = ops.relu(self.norm1(self.conv1(x)))
        y = ops.relu(self.norm2(self.conv2(y)))
        y = self.norm3(self.conv3(y))
        shortcut = self.norm_proj(self.conv_proj(x)) if self.needs_projection else x
        return ops.relu(y + shortcut)
