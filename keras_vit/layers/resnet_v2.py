"""Root and unit of the ResNets of version 2 (He et al., 2016b), of which BiT is made.

Norms come before convolutions, which pad explicitly. The classes have the names of version 1: in
the files of BiT that users have, the path of a layer's weights begins with the name of its class.
"""

import keras
from keras import ops

from keras_vit.layers import kernels
from keras_vit.layers.resnet import NUMERICS, Part, build_in_turn


@keras.saving.register_keras_serializable("keras_vit", name="RootV2")
class Root(Part):
    """7 x 7 convolution of stride 2, and 3 x 3 max pooling of stride 2.

    The pooling pads by `Numerics.pool_padding`. Shapes and arguments are as in version 1.
    """

    explicit_padding = True

    def __init__(self, filters, numerics="google", folded=False, **kwargs):
        super().__init__(filters, 4, numerics, folded, **kwargs)
        self.conv = self.convolution("conv", filters, 7, strides=2)

    def build(self, input_shape):
        self.conv.build(input_shape)

    def call(self, x):
        value = NUMERICS[self.numerics].pool_padding
        x = ops.pad(self.conv(x), ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=value)
        return kernels.max_pool(x, size=3, strides=2, same=False)


@keras.saving.register_keras_serializable("keras_vit", name="BottleneckV2")
class Bottleneck(Part):
    """A unit with norm and ReLU before each convolution, and nothing after the sum.

    Shapes and arguments are as in version 1.
    """

    explicit_padding = True

    def __init__(self, filters, strides=1, numerics="google", folded=False, **kwargs):
        super().__init__(4 * filters, strides, numerics, folded, **kwargs)
        self.conv1 = self.convolution("conv1", filters, 1)
        self.conv2 = self.convolution("conv2", filters, 3, strides=strides)
        self.conv3 = self.convolution("conv3", 4 * filters, 1)
        self.norm1, self.norm2 = self.group_norm("norm1"), self.group_norm("norm2")
        self.norm3 = self.group_norm("norm3")
        self.conv_proj = None

    def build(self, input_shape):
        parts = [self.norm1, self.conv1, self.norm2, self.conv2, self.norm3, self.conv3]
        build_in_turn(parts, input_shape)
        if self.changes_shape(input_shape):
            self.conv_proj = self.convolution("conv_proj", self.channels, 1, strides=self.stride)
            self.conv_proj.build(input_shape)

    def call(self, x):
        y = ops.relu(self.norm1(x))
        shortcut = x if self.conv_proj is None else self.conv_proj(y)
        y = self.conv2(ops.relu(self.norm2(self.conv1(y))))
        return shortcut + self.conv3(ops.relu(self.norm3(y)))
