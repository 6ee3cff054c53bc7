"""BiT, the ResNet that the Vision Transformer is compared with (Kolesnikov et al., 2020)."""

import keras
from keras import ops

from keras_vit.checks import pair, positive_int
from keras_vit.layers import kernels
from keras_vit.layers.head import linear_head
from keras_vit.layers.standardize import NUMERICS, GroupNorm
from keras_vit.models.bit_variants import get_bit_variant
from keras_vit.models.classifier import Classifier, check_precision, input_dtype
from keras_vit.models.stages import resnet_stages
from keras_vit.preprocessing import BIT


@keras.saving.register_keras_serializable("keras_vit")
class BiT(Classifier):
    """An image classifier made of a ResNet with standardised weights and group norm.

    A Functional model. Its layers are `root`, `stage_1_unit_1` and so on, `norm` and `relu` (in
    version `"v2"`), `pool` and `head` (with classes). These names and the paths of the variables
    under them are part of the interface.

    What came with the weights is kept in `preprocessing` (how images are prepared), `class_names`
    and `label_set` (what the logits stand for, or `None`).

    Shapes: (batch, height, width, channels), values in [-1, 1], images of any size ->
    (batch, num_classes) logits; (batch, features), the mean of the last feature map, where there
    are no classes.

    Args:
        variant: a name such as `"R50x1"`, a `keras_vit.BiTVariant`, or `None` for R50x1's numbers.
        image_size: int or (height, width), in pixels: what the model is trained at, for its
            preprocessing. It takes images of other sizes too.
        num_classes: K, or 0 for no head.
        include_top: `False` is the same as `num_classes=0`.
        channels: 3 for RGB, 1 for grayscale, any other number.
        head_bias: initial bias of the head, for sigmoid losses.
        name, dtype: as in Keras.
        **architecture: fields of `keras_vit.BiTVariant` to change or to give: `blocks`, `width`,
            `version`, `numerics`.

    Raises:
        ValueError: a value is outside its range.

    Source: bit_tf2/models.py and bit_jax/models.py of google-research/big_transfer.
    """

    def __init__(
        self,
        variant=None,
        image_size=224,
        num_classes=1000,
        include_top=True,
        channels=3,
        head_bias=0.0,
        name=None,
        dtype=None,
        **architecture,
    ):
        v = get_bit_variant(variant, **architecture)
        image_size, channels = pair(image_size, "image_size"), positive_int(channels, "channels")
        num_classes = positive_int(num_classes, "num_classes") if include_top and num_classes else 0
        policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        check_precision(policy)

        images = keras.Input((None, None, channels), dtype=input_dtype(policy), name="images")
        x = resnet_stages(images, v.blocks, v.width, v.version, v.numerics, v.folded, policy)
        if v.version == "v2":  # the units of v1 end with both
            x = GroupNorm(NUMERICS[v.numerics].norm_epsilon, dtype=policy, name="norm")(x)
            x = keras.layers.ReLU(dtype=policy, name="relu")(x)
        x = GlobalMean(dtype=policy, name="pool")(x)
        if num_classes:
            x = linear_head(2, num_classes, head_bias, dtype=policy)(x)
        super().__init__(images, x, name=name)

        self.dtype_policy = policy  # Functional models ignore the argument
        self.variant, self.image_size = v, image_size
        self.num_classes, self.channels, self.head_bias = num_classes, channels, head_bias
        self.preprocessing, self.class_names, self.label_set = BIT, None, None

    def get_config(self):
        return {**super().get_config(), "head_bias": self.head_bias}


@keras.saving.register_keras_serializable("keras_vit")
class GlobalMean(keras.layers.Layer):
    """The mean over height and width, computed in float32 at least.

    Shapes: (batch, height, width, channels) -> (batch, channels).
    """

    def call(self, x):
        batch, height, width, channels = ops.shape(x)
        return kernels.mean(ops.reshape(x, (batch, height * width, channels)), axis=1)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], input_shape[3])
