"""Names of google-research/vision_transformer checkpoints <-> canonical names.

The files exist in two generations, which number the modules of a block differently
(`LayerNorm_2`, `MlpBlock_3` and `MultiHeadDotProductAttention_1` in the published ones); both are
read, and the published one is written. big_vision uses the second generation's names.
"""

import re

import numpy as np

from keras_vit.preprocessing import GOOGLE
from keras_vit.weights.canonical import (
    CONFIG,
    POSITION,
    PROJECTION,
    Canonical,
    architecture_of,
    check_position,
    rename,
)
from keras_vit.weights.files import CheckpointError
from keras_vit.weights.image_size import add_image_size

FAMILY = "google-research/vision_transformer"
BLOCK = r"Transformer/encoderblock_(\d+)/"
ATTENTION = BLOCK + r"MultiHeadDotProductAttention_[01]/"


UNIT = r"block(\d+)/unit(\d+)/"


def one_axis(array):
    """(1, 1, 1, C), as Flax stored group norms once, -> (C,)."""
    if array.ndim not in (1, 4) or array.size != array.shape[-1]:
        raise ValueError("a group norm has one number per channel")
    return array.reshape(-1)


def flat_kernel(kernel):
    """(P, P, C, D) -> (P²·C, D): a patch is flattened in the same order."""
    if kernel.ndim != 4:
        raise ValueError("a patch kernel has 4 axes")
    return kernel.reshape(-1, kernel.shape[-1])


TABLE = (
    (r"cls", "patch_encoder/class_token", None),
    (r"embedding/kernel", PROJECTION, flat_kernel),
    (r"embedding/bias", "patch_encoder/projection/bias", None),
    (r"Transformer/posembed_input/pos_embedding", POSITION, None),
    (BLOCK + "LayerNorm_0/scale", r"block_\1/norm_1/gamma", None),
    (BLOCK + "LayerNorm_0/bias", r"block_\1/norm_1/beta", None),
    (ATTENTION + "(query|key|value|out)/(kernel|bias)", r"block_\1/attention/\2/\3", None),
    (BLOCK + "LayerNorm_[12]/scale", r"block_\1/norm_2/gamma", None),
    (BLOCK + "LayerNorm_[12]/bias", r"block_\1/norm_2/beta", None),
    (BLOCK + "MlpBlock_[03]/Dense_0/(kernel|bias)", r"block_\1/mlp/dense_1/\2", None),
    (BLOCK + "MlpBlock_[03]/Dense_1/(kernel|bias)", r"block_\1/mlp/dense_2/\2", None),
    (r"Transformer/encoder_norm/scale", "norm/gamma", None),
    (r"Transformer/encoder_norm/bias", "norm/beta", None),
    (r"(pre_logits|head)/(kernel|bias)", r"\1/\2", None),
    (r"conv_root/kernel", "root/conv/kernel", None),
    (r"gn_root/scale", "root/norm/gamma", one_axis),
    (r"gn_root/bias", "root/norm/beta", one_axis),
    (UNIT + r"(conv(?:\d|_proj))/kernel", r"stage_\1_unit_\2/\3/kernel", None),
    (UNIT + r"gn(\d|_proj)/scale", r"stage_\1_unit_\2/norm\3/gamma", one_axis),
    (UNIT + r"gn(\d|_proj)/bias", r"stage_\1_unit_\2/norm\3/beta", one_axis),
)
POOLS = {"token": "token", "gap": "mean", "token_unpooled": None, "unpooled": None}


def recognises(arrays):
    """Whether these are the names of this family."""
    return any(name.startswith("Transformer/") for name in arrays)


def read(contents, hints):
    """The `Canonical` of a file.

    Args:
        contents: a `Contents`.
        hints: dict of what the caller knows, with the constructor's argument names.

    Raises:
        CheckpointError: the arrays are no such model.
    """
    arrays, origin, _ = rename(contents.arrays, TABLE, FAMILY)
    shapes = architecture_of(arrays, FAMILY)
    patch_size, channels = patch_of(contents.arrays)
    check_position(arrays)
    found = {
        **shapes,
        "patch_size": patch_size,
        "channels": channels,
        "num_heads": heads_of(arrays),
        "interpolation": "align_corners",
        "gelu": "tanh",
        "epsilon": 1e-6,
    }
    assumed = {}
    config = _config(contents.config, found)
    if POOLS.get(config.get("classifier"), found["pool"]) != found["pool"]:
        found["pool"] = POOLS[config["classifier"]]
        assumed["pool"] = CONFIG
    add_image_size(found, assumed, arrays, hints, config.get("image"))
    return Canonical(FAMILY, arrays, origin, found, assumed, preprocessing=GOOGLE)


def _config(config, found):
    """The `config.json` beside the file, if it is this model's."""
    return config if config.get("hidden_size") == found["width"] else {}


def patch_of(arrays):
    """((height, width), channels) of the patches; in a hybrid the root has the image's channels."""
    height, width, channels, _ = arrays["embedding/kernel"].shape
    root = arrays.get("conv_root/kernel")
    return (height, width), channels if root is None else root.shape[2]


def heads_of(arrays):
    """The number of heads, which these formats keep as an axis."""
    kernel = arrays["block_0/attention/query/kernel"]
    if kernel.ndim != 3:
        raise CheckpointError(
            "'query/kernel' must have 3 axes (width, heads, head width). Received: shape "
            f"{kernel.shape}; the file is damaged or of another format."
        )
    return kernel.shape[1]


PUBLISHED = (
    (r"patch_encoder/class_token", "cls"),
    (r"patch_encoder/projection/(kernel|bias)", r"embedding/\1"),
    (POSITION, "Transformer/posembed_input/pos_embedding"),
    (r"block_(\d+)/norm_1/", r"Transformer/encoderblock_\1/LayerNorm_0/"),
    (r"block_(\d+)/norm_2/", r"Transformer/encoderblock_\1/LayerNorm_2/"),
    (r"block_(\d+)/attention/", r"Transformer/encoderblock_\1/MultiHeadDotProductAttention_1/"),
    (r"block_(\d+)/mlp/dense_1/", r"Transformer/encoderblock_\1/MlpBlock_3/Dense_0/"),
    (r"block_(\d+)/mlp/dense_2/", r"Transformer/encoderblock_\1/MlpBlock_3/Dense_1/"),
    (r"norm/", "Transformer/encoder_norm/"),
    (r"root/conv/", "conv_root/"),
    (r"root/norm/", "gn_root/"),
    (r"stage_(\d+)_unit_(\d+)/norm", r"block\1/unit\2/gn"),
    (r"stage_(\d+)_unit_(\d+)/", r"block\1/unit\2/"),
)


def write(model, arrays):
    """The arrays of a published file from canonical ones.

    Args:
        model: a `VisionTransformer`.
        arrays: dict from canonical name to array.
    """
    file = {}
    for name, array in arrays.items():
        if name == PROJECTION:
            array = array.reshape(*model.variant.patch_size, -1, array.shape[-1])
        if re.search("(root|unit_.*)/norm", name):
            array = array.reshape(1, 1, 1, -1)  # as published
        for pattern, target in PUBLISHED:
            name = re.sub("^" + pattern, target, name)
        if re.search("Norm|encoder_norm|gn", name):
            name = name.replace("/gamma", "/scale").replace("/beta", "/bias")
        file[name] = np.ascontiguousarray(array)
    return file


def obstacles(variant):
    """What of `variant` the authors' code cannot compute, as texts."""
    found = [
        ("gelu='erf'", variant.gelu != "tanh"),
        (f"epsilon={variant.epsilon}", variant.epsilon != 1e-6),
        ("pool='map'", variant.pool == "map"),
        ("pool='mean' with a class token", variant.pool == "mean" and variant.class_token),
        (f"registers={variant.registers}", variant.registers),
        (
            f"stem_numerics={variant.stem_numerics!r}",
            variant.stem is not None and variant.stem_numerics != "google",
        ),
        ("norm_after_pool=True", variant.norm_after_pool),
        ("qkv_bias=False", not variant.qkv_bias),
    ]
    return [text for text, is_so in found if is_so]


def impossible(model):
    """What of a model the authors' format has no place for, as texts."""
    v = model.variant
    found = [("pool='map'", v.pool == "map"), (f"registers={v.registers}", v.registers)]
    return [text for text, is_so in found if is_so]
