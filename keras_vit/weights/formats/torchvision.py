"""State dicts of torchvision's `VisionTransformer`.

Its files come alone and do not say how images are prepared. In the published ones it follows from
their size, and from their name where the encoder was trained on hashtags (SWAG) and kept as it was.
"""

import dataclasses
import math

from keras_vit.weights import tables
from keras_vit.weights.family import Family
from keras_vit.weights.formats.official import IMAGENET
from keras_vit.weights.model_arguments import POSITION
from keras_vit.weights.tables import CONV, SAME, Table

BLOCK = "encoder.layers.encoder_layer_{i}."
SWAG = dataclasses.replace(IMAGENET, crop_fraction=1.0)
BILINEAR = dataclasses.replace(IMAGENET, interpolation="bilinear")
# (width, sides of patch and image in pixels) of published files -> their preprocessing, where it
# is not that of the others, `BILINEAR`.
PREPROCESSING = {
    (768, 16, 384): SWAG,
    (1024, 16, 512): SWAG,
    (1280, 14, 224): SWAG,
    (1280, 14, 518): SWAG,
    (1024, 16, 224): dataclasses.replace(BILINEAR, crop_fraction=224 / 242),
}


class Torchvision(Family):
    def complete(self, canonical, contents):
        arguments, patches = canonical.arguments, canonical.arrays[POSITION].shape[1] - 1
        patch = arguments["patch_size"][0]
        size = (arguments["width"], patch, patch * math.isqrt(max(patches, 0)))
        is_swag = "swag" in contents.path.name.lower()
        canonical.preprocessing = SWAG if is_swag else PREPROCESSING.get(size, BILINEAR)


FAMILY = Torchvision(
    name="torchvision",
    sign=r"conv_proj\.|encoder\.layers\.encoder_layer_\d+\.",
    table=Table(
        ("class_token", "patch_encoder/class_token", SAME),
        *tables.torch_linear("conv_proj", "patch_encoder/projection", CONV),
        ("encoder.pos_embedding", POSITION, SAME),
        *tables.torch_norm(BLOCK + "ln_{n}", "block_{i}/norm_{n}"),
        *tables.torch_in_proj(BLOCK + "self_attention.in_proj", "block_{i}/attention"),
        *tables.torch_linear(BLOCK + "self_attention.out_proj", "block_{i}/attention/out"),
        *tables.torch_linear(BLOCK + "mlp.[0|linear_1]", "block_{i}/mlp/dense_1"),
        *tables.torch_linear(BLOCK + "mlp.[3|linear_2]", "block_{i}/mlp/dense_2"),
        *tables.torch_norm("encoder.ln", "norm"),
        *tables.torch_linear("heads.pre_logits", "pre_logits"),
        *tables.torch_linear("heads.head", "head"),
    ),
    unsupported={r"conv_proj\.conv_bn_relu_.*": "a stem of several convolutions"},
    joined_heads=True,
    defaults={"interpolation": "bicubic_align_corners", "gelu": "erf", "epsilon": 1e-6},
)
