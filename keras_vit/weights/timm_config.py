"""What the `config.json` beside a timm state dict says, and what its architecture implies.

The arrays do not tell the heads, the activation, the epsilon, the kind of block, nor what is
pooled. A hub's config names the architecture and leaves to timm what that name means; where it
means something else than the custom, `ARCHITECTURES` knows.
"""

import re

from keras_vit.preprocessing import TIMM, Preprocessing
from keras_vit.weights.canonical import CONFIG, gelu_of
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
ACTIVATIONS = {"gelu": "erf", "gelu_erf": "erf", "gelu_tanh": "tanh"}
POOLS = {"token": "token", "avg": "mean", "map": "map", "": None}
NORMS = ("layernorm", "LayerNorm", "layernormfp32")  # with an epsilon of 1e-6, all of them
BLOCKS = ("Block",)
NO_CONFIG = "the family's, as no config.json says it"
INTERPOLATIONS = ("bilinear", "bicubic")
CROPS = {"center": "shortest", "squash": "squash"}


def settings_of(config, found):
    """Arguments of the model and facts about its images, if `config.json` is this model's.

    Hubs store them as `model_args` and `pretrained_cfg` beside a few others.

    Args:
        config: what the file says; may be empty.
        found: what the arrays say, arguments of `VisionTransformer`.

    Returns:
        Two dicts with timm's names.

    Raises:
        CheckpointError: the config names a part that no model here has.
    """
    settings = config.get("pretrained_cfg", {})
    arguments = {**_implied(config), **config, **config.get("model_args", {})}
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


def _implied(config):
    name = str(config.get("architecture", "")).split(".")[0]
    return next((facts for row, facts in ARCHITECTURES if re.fullmatch(row, name)), {})


def choose_gelu(found, assumed, config):
    """Puts `gelu` into `found`, and where it is from into `assumed`."""
    name = config.get("act_layer")
    found["gelu"] = "erf" if name is None else gelu_of(name, ACTIVATIONS)
    assumed["gelu"] = NO_CONFIG if name is None else CONFIG


def choose_pool(found, assumed, config):
    """Puts `pool` into `found`, and where it is from into `assumed`.

    Raises:
        CheckpointError: the model pools as none here does.
    """
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
    _check_what_is_pooled(found, bool(config.get("pool_include_prefix")))


def _check_what_is_pooled(found, with_learned_tokens):
    """Here the mean is over patches alone, and attention pooling looks at all tokens."""
    if not found["class_token"] and not found["registers"]:
        return
    if (found["pool"], with_learned_tokens) in (("map", False), ("mean", True)):
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
