"""State dicts of timm's Vision Transformers, and the `config.json` beside them.

timm keeps q, k and v in one matrix and no axis for the heads, stores (out, in), and computes GELU
exactly.

The arrays do not tell the heads, the activation, the kind of block, nor what is pooled. A hub's
config names the architecture and leaves to timm what that name means; where it means something
else than the custom, `ARCHITECTURES` knows.
"""

import dataclasses
import re

import numpy as np

from keras_vit.preprocessing import TIMM
from keras_vit.weights import tables
from keras_vit.weights.canonical import CUSTOM, POSITION, SQUARE
from keras_vit.weights.family import ANY, Family, unsupported
from keras_vit.weights.files import CheckpointError
from keras_vit.weights.settle import find_image_size, shape_of
from keras_vit.weights.tables import CONV, SAME, Table

BLOCK = "blocks.{i}."
BACKBONE = "patch_embed.backbone."
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
POOLS = {"token": "token", "avg": "mean", "map": "map", "": None}
# Key of `pretrained_cfg` -> field of a `Preprocessing`, and its values there where they are named.
PREPROCESSING = {
    "mean": ("mean", None),
    "std": ("std", None),
    "crop_pct": ("crop_fraction", None),
    "crop_mode": ("resize", {"center": "shortest", "squash": "squash"}),
    "interpolation": ("interpolation", {"bilinear": "bilinear", "bicubic": "bicubic"}),
}


class Timm(Family):
    """safetensors files, and files of `torch.save`, with the names of timm."""

    def flat_config(self, contents):
        """Hubs store arguments as `model_args`, and some only as the name of the architecture."""
        config = contents.config
        name = str(config.get("architecture", "")).split(".")[0]
        implied = next((facts for row, facts in ARCHITECTURES if re.fullmatch(row, name)), {})
        flat = {**implied, **config, **config.get("model_args", {})}
        if "num_features" in config:
            flat.setdefault("embed_dim", config["num_features"])
        if "input_size" in config.get("pretrained_cfg", {}):
            flat.setdefault("img_size", list(config["pretrained_cfg"]["input_size"][1:]))
        return flat

    def complete(self, canonical, contents, config, said, hints):
        found, arrays = canonical.architecture, canonical.arrays
        _refuse_by_shape(arrays)
        found["norm_after_pool"] = "fc_norm.weight" in contents.arrays
        if found["class_token"] and found["pool"] != "map" and "pool" not in said:
            found["pool"] = "mean" if found["norm_after_pool"] else "token"
            canonical.assumed["pool"] = CUSTOM
        _refuse_pooled_tokens(found, bool(config.get("pool_include_prefix")))
        _give_learned_tokens_positions(found, arrays, hints, said.get("image_size"))
        canonical.prepare(*preprocessing_of(config.get("pretrained_cfg", {})))

    def write(self, model, arrays):
        v, file = model.variant, super().write(model, arrays)
        if v.norm_after_pool:
            file = {re.sub("^norm", "fc_norm", name): array for name, array in file.items()}
        if v.stem == ():
            file = {name.replace(BACKBONE + "stem.", BACKBONE): a for name, a in file.items()}
        return file

    def impossible(self, model):
        v = model.variant
        unknown = v.stem is not None and _hybrid_of(v) is None
        return super().impossible(model) + [f"stem={v.stem}, stem_width={v.stem_width}"] * unknown

    def json_files(self, model):
        """`config.json` as timm's hub has it: the architecture and its arguments."""
        v, arguments = model.variant, self.config_for(model)
        arguments["mlp_ratio"] = v.mlp_dim / v.width
        arguments["init_values"] = v.layer_scale
        arguments |= {"fc_norm": v.norm_after_pool, "final_norm": True}
        arguments["num_classes"] = model.num_classes
        if v.pool == "map" and v.learned_tokens:  # timm leaves them out unless it is told otherwise
            arguments["pool_include_prefix"] = True
        config = hub_config(model, _hybrid_of(v) or "vit_base_patch16_224", v.width, arguments)
        return {"config.json": {**config, "global_pool": arguments["global_pool"]}}


FAMILY = Timm(
    name="timm",
    sign=r"patch_embed\.proj\.weight$|blocks\.",
    table=Table(
        ("cls_token", "patch_encoder/class_token", SAME),
        ("reg_token", "patch_encoder/registers", SAME),
        ("pos_embed", POSITION, SAME),
        *tables.torch_linear("patch_embed.proj", "patch_encoder/projection", CONV),
        *tables.torch_norm(BLOCK + "norm{n}", "block_{i}/norm_{n}"),
        *tables.torch_linear(BLOCK + "attn.qkv", "block_{i}/attention/[query|key|value]"),
        *tables.torch_linear(BLOCK + "attn.proj", "block_{i}/attention/out"),
        *tables.torch_linear(BLOCK + "mlp.fc{n}", "block_{i}/mlp/dense_{n}"),
        (BLOCK + "ls{n}.gamma", "block_{i}/layer_scale_{n}/gamma", SAME),
        *tables.torch_norm("[|fc_]norm", "norm"),
        ("attn_pool.latent", "pool/probe", SAME),
        *tables.torch_linear("attn_pool.q", "pool/attention/query"),
        *tables.torch_linear("attn_pool.kv", "pool/attention/[key|value]"),
        *tables.torch_linear("attn_pool.proj", "pool/attention/out"),
        *tables.torch_norm("attn_pool.norm", "pool/norm"),
        *tables.torch_linear("attn_pool.mlp.fc{n}", "pool/mlp/dense_{n}"),
        *tables.torch_linear("head", "head"),
        # A stem without stages is the backbone itself.
        *tables.torch_resnet(
            BACKBONE + "[stem.|]conv", BACKBONE + "[stem.|]norm", BACKBONE + "stages.{s}.blocks.{u}"
        ),
    ),
    ignored=("mask_token",),
    unsupported={
        r"dist_token|head_dist\..*": "a distillation token",
        r".*\.attn\.[qk]_norm\..*": "normalised queries and keys",
        r".*\.mlp\.(w12|w3|fc1_g|fc1_x|norm)\..*": "a gated MLP",
        r"norm_pre\..*": "a norm before the blocks",
    },
    joined_heads=True,
    defaults={"interpolation": "bicubic", "gelu": "erf", "epsilon": 1e-6, "stem_numerics": "timm"},
    config={
        "img_size": "image_size",
        "patch_size": "patch_size",
        "in_chans": "channels",
        "embed_dim": "width",
        "depth": "depth",
        "num_heads": "num_heads",
        "qkv_bias": "qkv_bias",
        "class_token": "class_token",
        "reg_tokens": "registers",
        "pos_embed": ("position", {"learn": None, "none": "none", "": None}),
        "global_pool": ("pool", POOLS),
        "act_layer": ("gelu", {"gelu": "erf", "gelu_erf": "erf", "gelu_tanh": "tanh"}),
        "block_fn": (None, {"": None, "Block": None}),
        # All of them with an epsilon of 1e-6.
        "norm_layer": (None, dict.fromkeys(("", "layernorm", "LayerNorm", "layernormfp32"))),
    },
    preprocessing=TIMM,
    holds={"layer_scale": ANY, "pool": tuple(POOLS.values()), "representation_size": (None,)},
    computes={"epsilon": (1e-6,), "stem_numerics": ("timm",)},
)


def hub_config(model, architecture, features, arguments):
    """`config.json` as timm's hub has it."""
    return {
        "architecture": architecture,
        "num_classes": model.num_classes,
        "num_features": features,
        "model_args": arguments,
        "pretrained_cfg": pretrained_cfg(model),
    }


def _hybrid_of(variant):
    """timm's name of a model with this stem, or `None`."""
    is_known = variant.stem_width == 1.0
    return HYBRIDS.get((variant.stem, variant.patch_size)) if is_known else None


def _refuse_by_shape(arrays):
    """Raises a CheckpointError for a part that shows only in half a shape."""
    hidden = arrays["block_0/mlp/dense_1/kernel"].shape[-1]
    second = arrays.get("block_0/mlp/dense_2/kernel")
    if second is not None and second.shape[0] * 2 == hidden:
        raise unsupported("a gated MLP")


def _refuse_pooled_tokens(found, with_learned_tokens):
    """Here the mean is over patches alone, and attention pooling looks at all tokens."""
    wrong = (found["pool"], with_learned_tokens) in (("map", False), ("mean", True))
    if wrong and (found["class_token"] or found["registers"]):
        which = "also over" if with_learned_tokens else "without looking at"
        raise unsupported(
            f"a head that pools (pool={found['pool']!r}) {which} its class token and registers, "
            f"as pool_include_prefix={with_learned_tokens} says or implies",
            ". Where the file was built otherwise, put its config.json beside it",
        )


def _give_learned_tokens_positions(found, arrays, hints, configured):
    """In models with `no_embed_class` positions are added before the learned tokens come."""
    learned, shape = int(found["class_token"]) + found["registers"], shape_of(found)
    if POSITION not in arrays or not learned:
        return
    positions = arrays[POSITION].shape[1]
    try:
        find_image_size(positions - learned, shape, hints, configured)
    except CheckpointError as error:
        size, source = find_image_size(positions, shape, hints, configured)
        if source == SQUARE and learned == 1:
            # 25 positions may be 5 x 5 patches, or a class token and 4 x 6
            raise CheckpointError(
                f"{error} Or all {positions} positions are of patches, none of the class token "
                f"(timm's no_embed_class): then it is file_image_size={size}."
            ) from error
        arrays[POSITION] = np.pad(arrays[POSITION], ((0, 0), (learned, 0), (0, 0)))


def preprocessing_of(settings):
    """The `Preprocessing` of a `pretrained_cfg`, and texts for what no recipe here can say."""
    facts, unsaid = {}, []
    for key, (field, meanings) in PREPROCESSING.items():
        value = settings.get(key)
        if value is not None and (meanings is None or value in meanings):
            facts[field] = value if meanings is None else meanings[value]
        elif value is not None:
            unsaid.append(f"{key}={value!r} of the preprocessing")
    return dataclasses.replace(TIMM, **facts), tuple(unsaid)


def pretrained_cfg(model):
    """What timm's `config.json` says about images and classes."""
    said = {"input_size": [model.channels, *model.image_size], "num_classes": model.num_classes}
    for key, (field, meanings) in PREPROCESSING.items():
        value = getattr(model.preprocessing, field)
        said[key] = value if meanings is None else tables.key_of(meanings, value)
    return said
