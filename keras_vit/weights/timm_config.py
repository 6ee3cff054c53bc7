"""The `config.json` beside a timm state dict: what it says, and what is written.

The arrays do not tell the heads, the activation, the kind of block, nor what is pooled. A hub's
config names the architecture and leaves to timm what that name means; where it means something
else than the custom, `ARCHITECTURES` knows.
"""

import re

from keras_vit.preprocessing import TIMM, Preprocessing
from keras_vit.weights.assumptions import gelu_of
from keras_vit.weights.canonical import CONFIG
from keras_vit.weights.files import CheckpointError

# Architectures of timm's vision_transformer.py whose arrays would be taken for those of another.
ARCHITECTURES = (
    (r"vit_base_patch32_siglip_(gap_)?256", {"act_layer": "gelu_tanh"}),
    (r"vit_large_patch16_siglip_(gap_)?512", {"act_layer": "gelu_tanh"}),
    (r"vit_so400m_patch16_siglip_(gap_)?\d+", {"act_layer": "gelu_tanh"}),
    (r"vit_giantopt_patch16_siglip_(gap_)?\d+", {"act_layer": "gelu_tanh", "num_heads": 16}),
    (r"vit_base_patch16_gap_224", {"num_heads": 16}),
    (r"vit_base_patch16_rpn_224", {"block_fn": "ResPostBlock"}),
    (r"test_vit2?", {"num_heads": 2}),
    (r"test_vit3", {"num_heads": 3, "pool_include_prefix": True}),
)
# timm makes a stem for these only; what surrounds it may have any size.
HYBRIDS = {
    ((3, 4, 9), (1, 1)): "vit_base_r50_s16_224",
    ((3, 4, 6, 3), (1, 1)): "vit_large_r50_s32_224",
    ((2, 2, 2, 2), (1, 1)): "vit_small_r26_s32_224",
    ((), (8, 8)): "vit_tiny_r_s16_p8_224",
}
ACTIVATIONS = {"gelu": "erf", "gelu_erf": "erf", "gelu_tanh": "tanh"}
POOLS = {"token": "token", "avg": "mean", "map": "map", "": None}
NORMS = ("layernorm", "LayerNorm", "layernormfp32")  # with an epsilon of 1e-6, all of them
BLOCKS = ("Block",)
NO_CONFIG = "the family's, as no config.json says it"
INTERPOLATIONS = ("bilinear", "bicubic")
CROPS = {"center": "shortest", "squash": "squash"}


def arguments_of(config, found):
    """What a `config.json` says of the model and of its images, if it is this model's.

    Hubs store them as `model_args` and `pretrained_cfg` beside a few others.

    Returns:
        Two dicts with timm's names.

    Raises:
        CheckpointError: the config names a part that no model here has.
    """
    settings = config.get("pretrained_cfg", {})
    name = str(config.get("architecture", "")).split(".")[0]
    implied = next((facts for row, facts in ARCHITECTURES if re.fullmatch(row, name)), {})
    arguments = {**implied, **config, **config.get("model_args", {})}
    width = arguments.get("embed_dim", config.get("num_features"))
    if width is not None and width != found["width"]:
        return {}, {}
    if "input_size" in settings and "img_size" not in arguments:
        arguments["img_size"] = list(settings["input_size"][1:])
    for name, known in (("block_fn", BLOCKS), ("norm_layer", NORMS)):
        if arguments.get(name) not in (None, "", *known):
            raise CheckpointError(
                f"The model of the file was built with {name}={arguments[name]!r} (its "
                f"config.json), which the Vision Transformer of this library has not; expected "
                f"one of {list(known)}."
            )
    return arguments, settings


def choose_gelu(found, assumed, config):
    """Puts `gelu` into `found`, and where it is from into `assumed`."""
    name = config.get("act_layer")
    found["gelu"] = "erf" if name is None else gelu_of(name, ACTIVATIONS)
    assumed["gelu"] = NO_CONFIG if name is None else CONFIG


def choose_pool(found, assumed, config):
    """Puts `pool` into `found`, and where it is from into `assumed`."""
    pool = config.get("global_pool")
    if pool is not None and pool not in POOLS:
        raise CheckpointError(
            f"The model of the file pools with global_pool={pool!r} (its config.json), which the "
            f"Vision Transformer of this library has not; expected one of {sorted(POOLS)}."
        )
    if found["pool"] == "map":  # the arrays say so
        pass
    elif pool is not None:
        found["pool"], assumed["pool"] = POOLS[pool], CONFIG
    elif found["class_token"]:
        found["pool"] = "mean" if found["norm_after_pool"] else "token"
        assumed["pool"] = NO_CONFIG
    # Here the mean is over patches alone, and attention pooling looks at all tokens.
    with_learned_tokens = bool(config.get("pool_include_prefix"))
    has_learned_tokens = found["class_token"] or found["registers"]
    wrong = (found["pool"], with_learned_tokens) in (("map", False), ("mean", True))
    if has_learned_tokens and wrong:
        which = "also over" if with_learned_tokens else "without looking at"
        raise CheckpointError(
            f"The model of the file pools (pool={found['pool']!r}) {which} its class token and "
            f"registers, as pool_include_prefix={with_learned_tokens} says or implies; the Vision "
            "Transformer of this library does not. Where the file was built otherwise, put its "
            "config.json beside it."
        )


def preprocessing_of(settings):
    """How images are prepared, by a `pretrained_cfg`; timm's defaults for the rest.

    Returns:
        A `Preprocessing`, and a tuple of texts: what no recipe here can say.
    """
    names = ("mean", "std", "crop_pct", "interpolation", "crop_mode")
    given = {name: settings[name] for name in names if settings.get(name) is not None}
    known = given.get("interpolation") in INTERPOLATIONS
    recipe = Preprocessing(
        mean=tuple(given.get("mean", TIMM.mean)),
        std=tuple(given.get("std", TIMM.std)),
        resize=CROPS.get(given.get("crop_mode"), "shortest"),
        crop_fraction=given.get("crop_pct", TIMM.crop_fraction),
        interpolation=given["interpolation"] if known else "bicubic",
        library="pillow",
    )
    allowed = {"interpolation": INTERPOLATIONS, "crop_mode": CROPS}
    unsaid = [n for n in allowed if n in given and given[n] not in allowed[n]]
    return recipe, tuple(f"{name}={given[name]!r} of the preprocessing" for name in unsaid)


def config(model):
    """`config.json` as timm's hub has it: the architecture and its arguments."""
    v, (pool,) = model.variant, (name for name, ours in POOLS.items() if ours == model.variant.pool)
    return {
        "architecture": HYBRIDS.get(stem_of(v), "vit_base_patch16_224"),
        "num_classes": model.num_classes,
        "num_features": v.width,
        "global_pool": pool,
        "model_args": {
            "img_size": list(model.image_size),
            "patch_size": v.patch_size[0] if len(set(v.patch_size)) == 1 else list(v.patch_size),
            "in_chans": model.channels,
            "embed_dim": v.width,
            "depth": v.depth,
            "num_heads": v.num_heads,
            "mlp_ratio": v.mlp_dim / v.width,
            "qkv_bias": v.qkv_bias,
            "class_token": v.class_token,
            "reg_tokens": v.registers,
            "pos_embed": "none" if v.position == "none" else "learn",
            "fc_norm": v.norm_after_pool,
            "final_norm": True,
            "global_pool": pool,
            "num_classes": model.num_classes,
            "act_layer": "gelu_tanh" if v.gelu == "tanh" else "gelu",
            # Attention pooling looks at all tokens here; timm leaves out the learned ones.
            **({"pool_include_prefix": True} if v.pool == "map" and v.learned_tokens else {}),
        },
        "pretrained_cfg": pretrained_cfg(model),
    }


def pretrained_cfg(model):
    """What timm's `config.json` says about images and classes."""
    facts = model.preprocessing
    return {
        "input_size": [model.channels, *model.image_size],
        "mean": list(facts.mean),
        "std": list(facts.std),
        "crop_pct": facts.crop_fraction,
        "crop_mode": "squash" if facts.resize == "squash" else "center",
        "interpolation": "bicubic" if facts.interpolation == "bicubic" else "bilinear",
        "num_classes": model.num_classes,
    }


def stem_of(variant):
    """The key of `HYBRIDS` for a stem that timm makes, else `None`."""
    key = (variant.stem, variant.patch_size)
    return key if key in HYBRIDS and variant.stem_width == 1.0 else None
