"""State dicts of timm as they are written, and the `config.json` with which timm builds the model.

An argument of `None` is as good as none for timm, and classes have no place in a config: what only
an architecture says (the epsilon of the norms, a hidden layer with a gate, the order in a block)
is said by one that has it.
"""

import numpy as np

from keras_vit.weights import tables
from keras_vit.weights.formats import timm
from keras_vit.weights.formats.timm_models import ACTIVATIONS, PARTS, RENAMED, rope_arguments
from keras_vit.weights.huggingface_images import OF_TIMM, config_of
from keras_vit.weights.model_arguments import POSITION
from keras_vit.weights.tables import SAME, key_of
from keras_vit.weights.writable import ANY, DIFFERS, WritableFamily

NAMES = {"layer_norm": "layernorm", "rms_norm": "rmsnorm"}
INNER_NORMS = ("qk_norm", "mlp_norm", "attention_norm", "patch_norm", "pre_norm")
# timm makes a stem for these only; what surrounds it may have any size.
HYBRIDS = {
    ((3, 4, 9), (1, 1)): "vit_base_r50_s16_224",
    ((3, 4, 6, 3), (1, 1)): "vit_large_r50_s32_224",
    ((2, 2, 2, 2), (1, 1)): "vit_small_r26_s32_224",
    ((), (8, 8)): "vit_tiny_r_s16_p8_224",
}


class Writer(WritableFamily, timm.Timm):
    """What one of timm's classes has a place for."""

    # (epsilon, name, fields of the variants that are like it; a bool stands for any value or none)
    architectures = ()
    rows = ()  # of the table, with the names that this class has
    flags = "qkv_bias"  # arguments that are true where an array of `PARTS` is there

    def architecture(self, v):
        """The row of a variant: one with its epsilon, else one with 1e-6, or else `None`."""
        values = {**vars(v), "reference": v.rotary and v.rotary.reference}
        fits = lambda n, e: (bool(values[n]) if isinstance(e, bool) else values[n]) == e  # noqa: E731
        rows = [row for row in self.architectures if all(fits(*pair) for pair in row[2].items())]
        return min(rows, key=lambda row: (row[0] != v.epsilon, row[0]), default=None)

    def model_args(self, model):
        """The arguments of the class; those here are of all classes."""
        v = model.variant
        ratio = v.mlp_dim / v.width
        if int(v.width * ratio) != v.mlp_dim:
            ratio = (v.mlp_dim + 0.5) / v.width
        scale = {} if v.layer_scale is None else {"init_values": v.layer_scale}
        names = {variable.path for variable in model.weights}
        names |= set() if v.position == "none" or v.is_relative else {POSITION}
        flags = {flag: PARTS[RENAMED.get(flag, flag)] in names for flag in self.flags.split()}
        return {"mlp_ratio": ratio, "num_classes": model.num_classes, **scale, **flags}

    def write(self, model, arrays):
        file = super().write(model, arrays)
        if model.variant.rotary and model.variant.rotary.learned:
            blocks = [file.pop(f"rope.freqs.{i}") for i in range(model.variant.depth)]
            file["rope.freqs"] = np.stack(blocks, axis=1)
        return file

    def rows_for(self, v):
        rows = []
        if v.block == "parallel" and not v.qkv_bias:  # with which the bias would be joined
            rows += [(timm.BLOCK + "mlp_bias", "block_{i}/mlp/dense_1/bias", SAME)]
        rows += self.rows
        if v.norm_after_pool:
            rows += tables.torch_norm("fc_norm", "norm")
        if v.mlp == "swiglu":
            rows += tables.torch_linear(timm.BLOCK + "mlp.fc1_x", "block_{i}/mlp/dense_1")
        if v.stem == ():
            rows += tables.torch_resnet(timm.BACKBONE + "conv", timm.BACKBONE + "norm", timm.STAGES)
        return rows

    def obstacles(self, model):
        v = model.variant
        norms = {n: getattr(v, n) for n in INNER_NORMS}
        norms = [f"{n}={norm!r}" for n, norm in norms.items() if norm not in (None, v.norm)]
        is_map = v.pool == "map" and (v.norm_after_pool or v.norm != "layer_norm")
        wrong_bias = v.patch_bias == (v.pre_norm is not None)
        parts = f"mlp={v.mlp!r}, norm={v.norm!r}, epsilon={v.epsilon}"
        row = self.architecture(v)
        return super().obstacles(model) | {
            f"stem={v.stem}, stem_width={v.stem_width}": v.stem is not None and not _hybrid_of(v),
            f"{', '.join(norms)} beside norm={v.norm!r}": norms,
            f"patch_bias={v.patch_bias} with pre_norm={v.pre_norm!r}": wrong_bias,
            f"pool='map' with norm={v.norm!r}, norm_after_pool={v.norm_after_pool}": is_map,
            f"block={v.block!r} with {parts}": row is None,
            f"epsilon={v.epsilon}": row and row[0] != v.epsilon and DIFFERS,
        }

    def json_files(self, model):
        v, arguments = model.variant, {**self.config_for(model), **self.model_args(model)}
        arguments.pop("epsilon", None)  # the architecture says it
        name = _hybrid_of(v) or self.architecture(v)[1]
        config = hub_config(model, name, v.width, arguments)
        return {"config.json": {**config, "global_pool": arguments["global_pool"]}}


def hub_config(model, architecture, features, arguments):
    """`config.json` as timm's hub has it."""
    size = [model.channels, *model.image_size]
    images = {"input_size": size, "num_classes": model.num_classes}
    for key, (field, meanings) in OF_TIMM.items():
        value = getattr(model.preprocessing, field)
        images[key] = value if meanings is None else key_of(meanings, value)
    return {
        "architecture": architecture,
        "num_classes": model.num_classes,
        "num_features": features,
        "model_args": arguments,
        "pretrained_cfg": images,
        **({"label_names": list(model.class_names)} if model.class_names else {}),
        **config_of(model),
    }


PLAIN = {"block": "pre_norm", "mlp": "mlp", "distillation": False}
GATED = {"block": "pre_norm", "mlp": "swiglu", "distillation": False}
NORMAL = {"norm": "layer_norm"}


class VisionTransformerWriter(Writer):
    flags = "qkv_bias proj_bias qk_norm scale_attn_norm scale_mlp_norm pre_norm"
    architectures = (
        (1e-6, "deit_base_distilled_patch16_224", PLAIN | {"distillation": True}),
        (1e-6, "vit_base_patch16_224", PLAIN),
        (1e-5, "vit_base_patch16_clip_224", PLAIN | NORMAL | {"patch_norm": False}),
        (1e-6, "aimv2_large_patch14_224", GATED),
        (1e-5, "aimv2_large_patch14_224", GATED | {"norm": "rms_norm"}),
        (1e-6, "vit_base_patch16_rpn_224", PLAIN | {"block": "post_norm"}),
    )

    def obstacles(self, model):
        v, activation = model.variant, _activation(model.variant)
        same = v.mlp == "mlp" or activation == f"gelu_{v.gelu}"
        is_pooled_so = same and v.pool_mlp_dim in (None, v.mlp_dim)
        alone = v.class_token and not v.registers and v.pool == "token" and v.position != "none"
        return super().obstacles(model) | {
            f"pool='map' with {activation=}, pool_mlp_dim={v.pool_mlp_dim}": v.pool == "map"
            and not is_pooled_so,
            "a distillation token with other tokens, pooling or positions than DeiT's": (
                v.distillation and not alone
            ),
        }

    def model_args(self, model):
        v = model.variant
        arguments = super().model_args(model) | {
            "act_layer": key_of(ACTIVATIONS, _activation(v)),
            "fc_norm": v.norm_after_pool,
            "final_norm": v.final_norm,
            "no_embed_class": False,
            # timm leaves them out unless it is told otherwise.
            "pool_include_prefix": v.pool == "map" and v.learned_tokens > 0 and not v.pool_patches,
        }
        if self.architecture(v)[0] != v.epsilon or v.epsilon == 1e-6:
            arguments["norm_layer"] = arguments["embed_norm_layer"] = NAMES[v.norm]
        return arguments if v.patch_norm else arguments | {"embed_norm_layer": ""}


class ParallelWriter(VisionTransformerWriter):
    rows = timm.PARALLEL
    architectures = ((1e-6, "vit_base_patch16_xp_224", {}),)


class EvaWriter(Writer):
    rows = timm.EVA
    flags = """qkv_bias swiglu_mlp scale_mlp scale_attn_inner qk_norm use_abs_pos_emb
    use_pre_transformer_norm"""
    architectures = (
        (1e-6, "eva_giant_patch14_224", NORMAL),
        (1e-5, "vit_base_patch16_dinov3", NORMAL | {"layer_scale": True}),
        (1e-5, "vit_base_patch16_dinov3", NORMAL | {"block": "post_norm"}),
        (1e-5, "vit_pe_core_base_patch16_224", NORMAL | {"reference": True}),
        (1e-6, "vit_base_patch16_sapiens2", {"norm": "rms_norm", "layer_scale": True}),
    )

    def obstacles(self, model):
        v = model.variant
        no_place = v.rotary and rope_arguments(v.rotary)["rope_type"] is None
        is_other = v.qk_norm or (v.mlp == "swiglu" and not v.mlp_norm)
        return super().obstacles(model) | {
            f"rotary={v.rotary}": no_place,
            f"block='post_norm' with qk_norm={v.qk_norm!r}, mlp={v.mlp!r}": (
                v.block == "post_norm" and is_other
            ),
        }

    def model_args(self, model):
        v = model.variant
        arguments = super().model_args(model) | {
            "swiglu_align_to": int(v.mlp == "swiglu"),  # as two matrices
            "attn_type": "rope" if v.biases == "all" and v.qkv_bias else "eva",
            "qkv_fused": False,
            "no_embed_class": False,
            "use_post_norm": v.block == "post_norm",
            "use_post_transformer_norm": v.final_norm and not v.norm_after_pool,
            "use_fc_norm": v.final_norm and v.norm_after_pool,
            "use_rot_pos_emb": False,
            "dynamic_img_size": False,
            "attn_pool_num_heads": v.pool_heads or v.num_heads,
            "attn_pool_mlp_ratio": ((v.pool_mlp_dim or v.mlp_dim) + 0.5) / v.width,
        }
        if v.norm == "rms_norm":
            arguments |= {"num_kv_heads": v.num_heads, "attn_only_layer_scale": False}
        return arguments | (rope_arguments(v.rotary) if v.rotary else {})


class BeitWriter(Writer):
    rows = timm.BEIT
    flags = """qkv_bias swiglu_mlp scale_mlp use_abs_pos_emb use_rel_pos_bias
    use_shared_rel_pos_bias"""
    architectures = ((1e-6, "beit_base_patch16_224", {}),)

    def obstacles(self, model):
        has_bias = model.variant.qkv_bias and model.variant.biases == "all"
        return super().obstacles(model) | {"a bias of the key": has_bias}

    def model_args(self, model):
        use_fc_norm = model.variant.norm_after_pool
        return {"init_values": 0.0, **super().model_args(model), "use_fc_norm": use_fc_norm}


def _activation(v):
    """Of the hidden layer, as `keras_vit.extensions.ACTIVATIONS` has it."""
    return v.activation or ("silu" if v.mlp == "swiglu" else f"gelu_{v.gelu}")


def _hybrid_of(v):
    """timm's name of a model with this stem, or `None`."""
    return HYBRIDS.get((v.stem, v.patch_size)) if v.stem_width == 1 else None


AS_TIMM, ERF = {"stem_numerics": ("timm",)}, {"gelu": ("erf",)}
HOLDS = {
    "pool": tuple(timm.POOLS.values()),
    "representation_size": (None,),
    "block": ("pre_norm", "post_norm"),
    "biases": ("all", "qkv", "none"),
    **dict.fromkeys(("norm", "mlp", "activation", "layer_scale", *INNER_NORMS), ANY),
    **dict.fromkeys(("patch_bias", "final_norm", "distillation", "pool_patches"), ANY),
}
PARALLEL_HOLDS = HOLDS | {
    "block": ("parallel",),
    "mlp": ("mlp",),
    "biases": ("all",),
    "distillation": (False,),
    **dict.fromkeys(("mlp_norm", "attention_norm"), (None,)),
}
EVA_HOLDS = HOLDS | {
    "biases": ("all", "no_key"),
    **dict.fromkeys(("pool_patches", "distillation"), (False,)),
    **dict.fromkeys(("activation", "stem", "patch_norm"), (None,)),
    **dict.fromkeys(("rotary", "pool_heads", "pool_mlp_dim"), ANY),
}
BEIT_HOLDS = {
    "pool": ("token", "mean", None),
    **dict.fromkeys(("representation_size", "stem"), (None,)),
    "class_token": (True,),
    "registers": (0,),
    "position": ("relative_2d", "learned_1d", "none"),
    "biases": ("no_key", "all"),
    **dict.fromkeys(("position_at", "mlp", "layer_scale", "mlp_norm"), ANY),
}
EVA_KEYS = timm.KEYS | {"class_token": "class_token", "num_reg_tokens": "registers"}
WRITERS = (
    VisionTransformerWriter.with_fields_of(timm.FAMILY, can_store=HOLDS, can_compute=AS_TIMM),
    ParallelWriter.with_fields_of(timm.FAMILY, can_store=PARALLEL_HOLDS, can_compute=AS_TIMM),
    EvaWriter.with_fields_of(timm.FAMILY, can_store=EVA_HOLDS, can_compute=ERF, config=EVA_KEYS),
    BeitWriter.with_fields_of(timm.FAMILY, can_store=BEIT_HOLDS, can_compute=ERF, config=timm.KEYS),
)
