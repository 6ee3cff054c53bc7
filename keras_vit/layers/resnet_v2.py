"""Root and unit of the ResNets of version 2 (He et al., 2016b), of which BiT is made.

Norms come before convolutions, which pad explicitly. The classes are named as those of version 1,
because Keras's files name the place of a layer's weights by its class.
"""

import keras
from keras import ops

from keras_vit.layers import kernels
from keras_vit.layers.layer import Layer
from keras_vit.layers.resnet import NUMERICS, Part, Unit


@keras.saving.register_keras_serializable("keras_vit", name="RootV2")
class Root(Part, Layer):
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
class Bottleneck(Unit, Layer):
    """A unit with norm and ReLU before each convolution, and nothing after the sum.

    Shapes and arguments are as in version 1.
    """

    explicit_padding = True

    def build(self, input_shape):
        after_1, after_2, _ = self.build_convolutions(input_shape)
        self.norm1.build(input_shape)
        self.norm2.build(after_1)
        self.norm3.build(after_2)

    def call(self, x):
        y = ops.relu(self.norm1(x))
        shortcut = self.conv_proj(y) if self.needs_projection else x
        y = self.conv2(ops.relu(self.norm2(self.conv1(y))))
        return shortcut + self.conv3(ops.relu(self.norm3(y)))
