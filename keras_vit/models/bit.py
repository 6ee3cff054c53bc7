"""BiT, the ResNet that the Vision Transformer is compared with (Kolesnikov et al., 2020)."""

import dataclasses
from typing import Any, Unpack

import keras
from keras import ops

from keras_vit import checks
from keras_vit.arguments import BiTFields
from keras_vit.checks import choice
from keras_vit.layers import kernels, resnet, resnet_v1, resnet_v2
from keras_vit.layers.head import linear_head
from keras_vit.layers.layer import Layer
from keras_vit.layers.resnet import GROUPS, NUMERICS, ROOT_FILTERS, GroupNorm
from keras_vit.models.classifier import Classifier
from keras_vit.models.record import ModelRecord, argument_names
from keras_vit.preprocessing import BIT
from keras_vit.text import brief

VERSIONS = {"v1": resnet_v1, "v2": resnet_v2}


@dataclasses.dataclass(frozen=True)
class BiTVariant:
    """The architecture of one BiT ResNet; the defaults are R50x1.

    Args:
        blocks: units of each stage.
        width: factor of the channels, a multiple of 0.5; with 1, stages have 256, 512, 1024 and
            2048.
        version: `"v2"`, of the published BiT, or `"v1"`, of hybrids and of big_vision's `bit.py`.
        numerics, folded: as in `StdConv2D`.
    """

    blocks: tuple[int, ...] = (3, 4, 6, 3)
    width: float = 1.0
    version: str = choice("v2", tuple(VERSIONS), compared=True)
    numerics: str = choice("bit", tuple(NUMERICS), compared=True)
    folded: bool = False

    def __post_init__(self):
        object.__setattr__(self, "blocks", checks.unit_counts(self.blocks, "blocks", least=1))
        object.__setattr__(self, "width", checks.positive_float(self.width, "width"))
        checks.check_choices(self)
        if ROOT_FILTERS * self.width % GROUPS:
            raise ValueError(
                f"width must be a multiple of {GROUPS / ROOT_FILTERS}, because group norm splits "
                f"the channels into {GROUPS} groups. Received: width={self.width}."
            )

    @property
    def features(self):
        """The length of the pooled features: the channels of the last stage."""
        return self.channels[-1]

    @property
    def channels(self):
        """The channels of each stage; the root has a quarter of the first one's."""
        return [4 * int(ROOT_FILTERS * self.width) * 2**stage for stage in range(len(self.blocks))]

    def replace(self, **choices):
        """A copy with the named fields changed."""
        checks.check_names(self, choices)
        return dataclasses.replace(self, **choices)


# R50x2 and R152x1 are in Table 6 of the Vision Transformer's paper, without published files.
BIT_VARIANTS = {
    f"{name}x{width}": BiTVariant(blocks, float(width))
    for name, blocks, widths in (
        ("R50", (3, 4, 6, 3), (1, 2, 3)),
        ("R101", (3, 4, 23, 3), (1, 3)),
        ("R152", (3, 8, 36, 3), (1, 2, 4)),
        ("R200", (3, 24, 36, 3), (3,)),
    )
    for width in widths
}
"""The `BiTVariant` of each BiT of the two papers, by its name, such as `"R50x1"`."""


def get_bit_variant(variant=None, **choices):
    """The `BiTVariant` of a name (`None`: R50x1), or itself, with some fields changed."""
    if variant is None or isinstance(variant, BiTVariant):
        return (variant or BiTVariant()).replace(**choices)
    if str(variant) not in BIT_VARIANTS:
        raise ValueError(
            f"Unknown variant. Received: variant={brief(variant)}; expected one of "
            f"{list(BIT_VARIANTS)}, or a keras_vit.BiTVariant with other blocks or width."
        )
    return BIT_VARIANTS[str(variant)].replace(**choices)


@keras.saving.register_keras_serializable("keras_vit")
class BiT(Classifier):
    """An image classifier made of a ResNet with standardised weights and group norm.

    A Functional model. Its layers are `root`, `stage_1_unit_1` and so on, `norm` and `relu` (in
    version `"v2"`), `pool` and `head` (with classes). These names and the paths of the variables
    under them are part of the interface.

    `preprocessing`, `class_names`, `label_set` and `weights_from` are as in `VisionTransformer`.

    Shapes: (batch, height, width, channels), values in [-1, 1], images of any size ->
    (batch, num_classes) logits; (batch, features), the mean of the last feature map, where there
    are no classes.

    Args:
        variant: a name such as `"R50x1"`, a `keras_vit.BiTVariant`, or `None` for R50x1's numbers.
        image_size: int or (height, width), in pixels: what the model is trained at, for its
            preprocessing. It takes images of other sizes too.
        num_classes, include_top, channels, head_bias: as in `VisionTransformer`.
        name, dtype: as in Keras.
        **architecture: fields of `keras_vit.BiTVariant` to change or to give.

    Source: section 3.1, bit_tf2/models.py and bit_jax/models.py of google-research/big_transfer.
    """

    def __init__(
        self,
        variant: str | BiTVariant | None = None,
        image_size: int | tuple[int, int] = 224,
        num_classes: int = 1000,
        include_top: bool = True,
        channels: int = 3,
        head_bias: float = 0.0,
        name: str | None = None,
        dtype: Any = None,
        **architecture: Unpack[BiTFields],
    ):
        checks.check_names(BiTVariant, architecture, argument_names(BiT))
        v = get_bit_variant(variant, **architecture)
        record = ModelRecord(
            type(self),
            v,
            image_size,
            num_classes=num_classes if include_top else 0,
            channels=channels,
            head_bias=head_bias,
            dtype_policy=dtype,
            preprocessing=BIT,
        )
        policy, images = record.dtype_policy, record.image_input(any_size=True)
        options = {"numerics": v.numerics, "folded": v.folded, "dtype": policy}
        x = resnet.stages(images, v.blocks, VERSIONS[v.version], width=v.width, **options)
        if v.version == "v2":  # units of v1 end with a norm and a ReLU
            x = GroupNorm(NUMERICS[v.numerics].norm_epsilon, dtype=policy, name="norm")(x)
            x = keras.layers.ReLU(dtype=policy, name="relu")(x)
        x = GlobalMean(dtype=policy, name="pool")(x)
        if record.num_classes:
            x = linear_head(x, record.num_classes, bias=head_bias, dtype=policy)
        super().__init__(images, x, record=record, name=name)

    variant_of = staticmethod(get_bit_variant)


@keras.saving.register_keras_serializable("keras_vit")
class GlobalMean(Layer):
    """The mean over height and width, computed in float32 at least.

    Shapes: (batch, height, width, channels) -> (batch, channels).
    """

    def call(self, x):
        batch, height, width, channels = ops.shape(x)
        return kernels.mean(ops.reshape(x, (batch, height * width, channels)), axis=1)

    def compute_output_spec(self, x):
        return self._output((x.shape[0], x.shape[3]))
