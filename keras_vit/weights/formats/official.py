"""Files of Meta: of torchvision, and of the authors of DINO, I-JEPA, MAE and MoCo v3 beside timm's.

Weights may lie beside those of a student or a teacher and beside heads of the training, and their
blocks may be numbered in chunks (`blocks.1.7` is the eighth). Nothing beside a file says what its
arrays do not. Without a gated MLP, registers, a teacher or such a head the names are timm's, whose
family reads the file.
"""

import dataclasses
import re

import numpy as np

from keras_vit.extensions import Rotary
from keras_vit.preprocessing import Preprocessing
from keras_vit.weights import tables
from keras_vit.weights.family import Family
from keras_vit.weights.formats import timm
from keras_vit.weights.model_arguments import ARRAYS, CUSTOM, POSITION
from keras_vit.weights.safety import unsupported
from keras_vit.weights.tables import CONV, SAME, Table

PERIODS = "rope_embed.periods"
IMAGENET = Preprocessing(
    mean=(0.485, 0.456, 0.406),
    std=(0.229, 0.224, 0.225),
    resize="shortest",
    crop_fraction=224 / 256,
    interpolation="bicubic",
    library="pillow",
)


class Dino(Family):
    def plain_name(self, name, file):
        """With one number for a block, which is the second of two."""
        return re.sub(r"^blocks\.\d+\.(\d+)\.", r"blocks.\1.", name)

    def single_layers(self, arrays):
        """Biases of q and v where those of k are masked."""
        arrays, masks = dict(arrays), [name for name in arrays if name.endswith(".bias_mask")]
        for name in masks:
            layer, mask = name.removesuffix(".bias_mask"), np.split(arrays.pop(name), 3)
            if not all(np.all(part == value) for part, value in zip(mask, (1, 0, 1))):
                raise unsupported(f"a mask other than that of the key's bias ({name!r})")
            query, _, value = np.split(arrays.pop(f"{layer}.bias"), 3)
            arrays |= {f"{layer}.q.bias": query, f"{layer}.v.bias": value}
        return arrays

    def complete(self, weights, arguments, contents):
        periods = next((a for name, a in contents.arrays.items() if name.endswith(PERIODS)), None)
        if periods is not None:
            arguments.update(rotary=rotary_of(periods), position="none", epsilon=1e-5)
            why = "its rotary periods, four values of a head for each"
            arguments.add(ARRAYS, why, num_heads=arguments["width"] // (4 * max(periods.size, 1)))
        if not arguments["num_classes"]:
            arguments.override(CUSTOM, pool=arguments["pool"])
        if arguments["registers"] and POSITION in weights.arrays:
            arguments["interpolation"] = "bicubic"
            # Positions were added before the registers came.
            at = int(arguments["class_token"])
            weights.add_zero_positions(at=at, count=arguments["registers"])


def rotary_of(periods):
    """The `Rotary` of DINOv3 with periods that are powers of one number, from 1 on."""
    count = max(periods.size, 1)
    base = float(f"{float(periods.flat[-1]) ** (count / (count - 1)):.4g}") if count > 1 else 100.0
    expected = base ** (np.arange(count) / count)
    if periods.shape != expected.shape or not np.allclose(periods, expected, 1e-5, 0):
        raise unsupported(f"rotary periods that are no powers of one base, exactly ({PERIODS!r})")
    return Rotary("centered", base, pairs="halves")


class MocoV3(Family):
    def complete(self, weights, arguments, contents):
        if arguments["width"] == 384:
            why = "MoCo v3's ViT-S has as many, where others have 6"
            arguments.add(CUSTOM, why, num_heads=12)


DINO = Dino(
    name="DINO, I-JEPA and MAE as their authors store them",
    signature=rf"(register|storage)_tokens$|{re.escape(PERIODS)}$|blocks\.\d+\.\d+\."
    r"|decoder_embed\.weight$|blocks\.\d+\.mlp\.(w12|w[123])\.|blocks\.\d+\.attn\.qkv\.bias_mask$",
    training_state=r"(^|\.)(teacher|student|target_encoder|(dino|ibot)_(head|loss))\.",
    table=Table(
        *timm.PLAIN,
        ("[register|storage]_tokens", "patch_encoder/registers", SAME),
        (timm.BLOCK + "attn.qkv.q.bias", "block_{i}/attention/query/bias", SAME),
        (timm.BLOCK + "attn.qkv.v.bias", "block_{i}/attention/value/bias", SAME),
        *tables.torch_linear(timm.BLOCK + "mlp.w12", "block_{i}/mlp/[gate|dense_1]"),
        *tables.torch_mlp(timm.BLOCK + "mlp.", "w1 w2 w3"),
        *tables.torch_norm("norm", "norm"),
    ),
    ignored=(
        r"mask_token|local_cls_norm\..*|decoder_.*",
        re.escape(PERIODS),
        r"((dino|ibot)_)?head\.(mlp|last_layer|prototypes).*",
    ),
    unsupported={r"cls_norm\..*": "a last norm of its own for class token and registers"},
    joined_heads=True,
    defaults={"interpolation": "bicubic_no_antialias", "gelu": "erf", "epsilon": 1e-6},
    preprocessing=IMAGENET,
)
MOCO_V3 = MocoV3(
    name="MoCo v3 as its authors store it",
    training_state=r"(^|\.)(base|momentum)_encoder\.",
    table=DINO.table,
    ignored=(r"head\.\d+\..*",),
    joined_heads=True,
    defaults={"interpolation": "bicubic", "gelu": "erf", "epsilon": 1e-6},
    preprocessing=dataclasses.replace(IMAGENET, interpolation="bilinear"),
)
FAMILIES = (DINO, MOCO_V3)


# ---- torchvision: nothing beside its files says how images are prepared. In the published ones it
# follows from their size, and from their name where an encoder trained on hashtags (SWAG) was kept.

LAYER = "encoder.layers.encoder_layer_{i}."
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
    def images(self, arguments, contents):
        size = (arguments["width"], arguments["patch_size"][0], arguments["image_size"][0])
        is_swag = "swag" in contents.path.name.lower()
        return SWAG if is_swag else PREPROCESSING.get(size, BILINEAR), (), True


TORCHVISION = Torchvision(
    name="torchvision",
    signature=r"conv_proj\.|encoder\.layers\.encoder_layer_\d+\.",
    table=Table(
        ("class_token", "patch_encoder/class_token", SAME),
        *tables.torch_linear("conv_proj", "patch_encoder/projection", CONV),
        ("encoder.pos_embedding", POSITION, SAME),
        *tables.torch_norm(LAYER + "ln_{n}", "block_{i}/norm_{n}"),
        *tables.torch_in_proj(
            LAYER + "self_attention.in_proj", "block_{i}/attention/[query|key|value]"
        ),
        *tables.torch_linear(LAYER + "self_attention.out_proj", "block_{i}/attention/out"),
        *tables.torch_mlp(LAYER + "mlp.", "[0|linear_1] [3|linear_2]"),
        *tables.torch_norm("encoder.ln", "norm"),
        *tables.torch_linear("heads.pre_logits", "pre_logits"),
        *tables.torch_linear("heads.head", "head"),
    ),
    unsupported={r"conv_proj\.conv_bn_relu_.*": "a stem of several convolutions"},
    joined_heads=True,
    defaults={"interpolation": "bicubic_align_corners", "gelu": "erf", "epsilon": 1e-6},
)
