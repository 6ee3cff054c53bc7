"""Checkpoints of google-research/vision_transformer.

The files exist in two generations, which number the modules of a block differently (`LayerNorm_2`,
`MlpBlock_3` and `MultiHeadDotProductAttention_1` in the published ones); both are read, and the
published one is written. big_vision uses the second generation's names.
"""

from keras_vit.preprocessing import GOOGLE
from keras_vit.weights.assumptions import add_image_size, add_position
from keras_vit.weights.canonical import (
    CONFIG,
    POSITION,
    PROJECTION,
    Canonical,
    architecture_of,
    channels_of,
    heads_of,
)
from keras_vit.weights.tables import (
    PARTS,
    PATCHES,
    SAME,
    VECTOR,
    Layout,
    Table,
    flax_dense,
    flax_norm,
)

FAMILY = "google-research/vision_transformer"
BLOCK = "Transformer/encoderblock_{i}/"
ATTENTION = BLOCK + "MultiHeadDotProductAttention_[1|0]/"
UNIT = "block{s}/unit{u}/"
GROUP_NORM = Layout(None, VECTOR.read, lambda a, v: a.reshape(1, 1, 1, -1))  # as published

ROWS = (
    ("cls", "patch_encoder/class_token", SAME),
    ("embedding/kernel", PROJECTION, PATCHES),
    ("embedding/bias", "patch_encoder/projection/bias", SAME),
    ("Transformer/posembed_input/pos_embedding", POSITION, SAME),
    *flax_norm(BLOCK + "LayerNorm_0", "block_{i}/norm_1"),
    *(row for p in PARTS for row in flax_dense(ATTENTION + p, "block_{i}/attention/" + p)),
    *flax_norm(BLOCK + "LayerNorm_[2|1]", "block_{i}/norm_2"),
    *flax_dense(BLOCK + "MlpBlock_[3|0]/Dense_0", "block_{i}/mlp/dense_1"),
    *flax_dense(BLOCK + "MlpBlock_[3|0]/Dense_1", "block_{i}/mlp/dense_2"),
    *flax_norm("Transformer/encoder_norm", "norm"),
    *flax_dense("pre_logits", "pre_logits"),
    *flax_dense("head", "head"),
    ("conv_root/kernel", "root/conv/kernel", SAME),
    *flax_norm("gn_root", "root/norm", GROUP_NORM),
    (UNIT + "conv{n}/kernel", "stage_{s}_unit_{u}/conv{n}/kernel", SAME),
    (UNIT + "conv_proj/kernel", "stage_{s}_unit_{u}/conv_proj/kernel", SAME),
    *flax_norm(UNIT + "gn{n}", "stage_{s}_unit_{u}/norm{n}", GROUP_NORM),
    *flax_norm(UNIT + "gn_proj", "stage_{s}_unit_{u}/norm_proj", GROUP_NORM),
)
TABLE = Table(*ROWS)
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
    arrays, origin, _ = TABLE.read(contents.arrays, FAMILY)
    found, assumed = architecture_of(arrays, FAMILY), {}
    *patch_size, patch_channels, _ = contents.arrays["embedding/kernel"].shape
    found.update(
        patch_size=tuple(patch_size),
        channels=channels_of(arrays, patch_channels),
        num_heads=heads_of(arrays),
        interpolation="align_corners",
        gelu="tanh",
        epsilon=1e-6,
    )
    # A config.json counts if it is this model's.
    is_own = contents.config.get("hidden_size") == found["width"]
    config = contents.config if is_own else {}
    if POOLS.get(config.get("classifier"), found["pool"]) != found["pool"]:
        found["pool"], assumed["pool"] = POOLS[config["classifier"]], CONFIG
    add_position(found, assumed, arrays, hints)
    add_image_size(found, assumed, arrays, hints, config.get("image"))
    return Canonical(FAMILY, arrays, origin, found, assumed, preprocessing=GOOGLE)


def write(model, arrays):
    """The arrays of a published file from canonical ones."""
    return TABLE.write(arrays, model.variant)


def impossible(model):
    """What of a model the authors' format has no place for, as texts."""
    v = model.variant
    found = [("pool='map'", v.pool == "map"), (f"registers={v.registers}", v.registers)]
    return [text for text, is_so in found if is_so]


def obstacles(v):
    """What of a variant the authors' code computes otherwise, as texts."""
    found = [
        ("gelu='erf'", v.gelu != "tanh"),
        (f"epsilon={v.epsilon}", v.epsilon != 1e-6),
        ("pool='map'", v.pool == "map"),
        ("pool='mean' with a class token", v.pool == "mean" and v.class_token),
        (f"registers={v.registers}", v.registers),
        (f"stem_numerics={v.stem_numerics!r}", v.stem is not None and v.stem_numerics != "google"),
        ("norm_after_pool=True", v.norm_after_pool),
        ("qkv_bias=False", not v.qkv_bias),
    ]
    return [text for text, is_so in found if is_so]
