"""Canonical arrays -> timm's names, and the arguments with which timm builds the same model."""

import re

import numpy as np

from keras_vit.weights import torch_stem
from keras_vit.weights.canonical import POSITION, PROJECTION

NAMES = (
    (r"patch_encoder/class_token", "cls_token"),
    (r"patch_encoder/registers", "reg_token"),
    (POSITION, "pos_embed"),
    (r"patch_encoder/projection/", "patch_embed.proj."),
    (r"block_(\d+)/norm_([12])/", r"blocks.\1.norm\2."),
    (r"block_(\d+)/attention/out/", r"blocks.\1.attn.proj."),
    (r"block_(\d+)/attention/qkv/", r"blocks.\1.attn.qkv."),
    (r"block_(\d+)/mlp/dense_([12])/", r"blocks.\1.mlp.fc\2."),
    (r"pool/probe", "attn_pool.latent"),
    (r"pool/attention/query/", "attn_pool.q."),
    (r"pool/attention/kv/", "attn_pool.kv."),
    (r"pool/attention/out/", "attn_pool.proj."),
    (r"pool/norm/", "attn_pool.norm."),
    (r"pool/mlp/dense_([12])/", r"attn_pool.mlp.fc\1."),
    (r"norm/", "norm."),
    (r"head/", "head."),
)
KINDS = (("gamma", "weight"), ("beta", "bias"), ("kernel", "weight"))
# timm makes a stem for these only; what surrounds it may have any size.
HYBRIDS = {
    ((3, 4, 9), (1, 1)): "vit_base_r50_s16_224",
    ((3, 4, 6, 3), (1, 1)): "vit_large_r50_s32_224",
    ((2, 2, 2, 2), (1, 1)): "vit_small_r26_s32_224",
    ((), (8, 8)): "vit_tiny_r_s16_p8_224",
}
POOLS = {"token": "token", "mean": "avg", "map": "map", None: ""}


def write(model, arrays):
    """The arrays of a state dict from canonical ones."""
    arrays = joined(flat_heads(arrays))
    file = {}
    for name, array in arrays.items():
        if torch_stem.is_stem(name):
            name, array = torch_stem.write(name, array, *_stem_names(model.variant))
            file[name] = array
            continue
        array = torch_layout(name, array, model)
        for pattern, target in NAMES:
            name = re.sub("^" + pattern, target, name)
        if model.variant.norm_after_pool:
            name = re.sub("^norm", "fc_norm", name)
        file[torch_kind(name)] = array
    return file


def _stem_names(variant):
    root = "patch_embed.backbone." + ("stem." if variant.stem else "")
    return f"{root}conv", f"{root}norm", "patch_embed.backbone.stages.{}.blocks.{}."


def torch_kind(name):
    """gamma and kernel are `weight` there, beta is `bias`."""
    for ours, theirs in KINDS:
        name = re.sub(rf"\.{ours}$", f".{theirs}", name)
    return name


def torch_layout(name, array, model):
    """(in, out) -> (out, in); (P²·C, D) -> (D, C, P, P)."""
    if name == PROJECTION:
        grid = array.reshape(*model.variant.patch_size, -1, array.shape[-1])
        return np.ascontiguousarray(grid.transpose(3, 2, 0, 1))
    return np.ascontiguousarray(array.T) if name.endswith("/kernel") else array


def flat_heads(arrays):
    """The matrices of the attention without their axis of heads."""
    flat = {}
    for name, array in arrays.items():
        if re.search(r"/attention/(query|key|value)/", name):
            array = array.reshape(*array.shape[:-2], -1)
        elif name.endswith("/attention/out/kernel"):
            array = array.reshape(-1, array.shape[-1])
        flat[name] = array
    return flat


def joined(arrays):
    """q, k and v in one matrix; in attention pooling k and v."""
    arrays = dict(arrays)
    for name in [n for n in arrays if "/attention/key/" in n]:
        in_pool = name.startswith("pool/")
        parts = ("key", "value") if in_pool else ("query", "key", "value")
        whole = [arrays.pop(name.replace("/key/", f"/{part}/")) for part in parts]
        target = name.replace("/key/", "/kv/" if in_pool else "/qkv/")
        arrays[target] = np.concatenate(whole, axis=-1)
    return arrays


def config(model):
    """`config.json` as timm's hub has it: the architecture and its arguments."""
    v = model.variant
    return {
        "architecture": HYBRIDS.get(_stem_of(v), "vit_base_patch16_224"),
        "num_classes": model.num_classes,
        "num_features": v.width,
        "global_pool": POOLS[v.pool],
        "model_args": {
            "img_size": list(model.image_size),
            "patch_size": list(v.patch_size)
            if v.patch_size[0] != v.patch_size[1]
            else v.patch_size[0],
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
            "global_pool": POOLS[v.pool],
            "num_classes": model.num_classes,
            "act_layer": "gelu_tanh" if v.gelu == "tanh" else "gelu",
            # Attention pooling looks at all tokens here; timm leaves out the learned ones.
            **({"pool_include_prefix": True} if v.pool == "map" and v.learned_tokens else {}),
        },
        "pretrained_cfg": pretrained_cfg(model),
    }


def pretrained_cfg(model):
    """What timm's `config.json` says about images and classes; `timm_config` reads it."""
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


def _stem_of(variant):
    """The key of `HYBRIDS` for a stem that timm makes, else `None`."""
    key = (variant.stem, variant.patch_size)
    return key if key in HYBRIDS and variant.stem_width == 1.0 else None


def impossible(model):
    """What of a model timm's Vision Transformer has no place for, as texts."""
    v = model.variant
    found = [
        (f"representation_size={v.representation_size}", v.representation_size),
        (f"stem={v.stem}, stem_width={v.stem_width}", v.stem is not None and _stem_of(v) is None),
    ]
    return [text for text, is_so in found if is_so]


def obstacles(variant):
    """What of `variant` timm computes otherwise, as texts."""
    found = [
        (f"epsilon={variant.epsilon}", variant.epsilon != 1e-6),
        (
            f"stem_numerics={variant.stem_numerics!r}",
            variant.stem is not None and variant.stem_numerics != "timm",
        ),
    ]
    return [text for text, is_so in found if is_so]
