"""With which architecture and arguments timm builds a model that is written for it.

An argument of `None` is as good as none for timm, and classes have no place in a config: what only
an architecture says (the epsilon of the norms, a hidden layer with a gate, the kind of block) is
said by one that has it.
"""

from keras_vit.weights.formats.timm_architectures import ACTIVATIONS, rope_arguments
from keras_vit.weights.tables import key_of

NAMES = {"layer_norm": "layernorm", "rms_norm": "rmsnorm"}
INNER_NORMS = ("qk_norm", "mlp_norm", "attention_norm", "patch_norm", "pre_norm")


def misplaced(v):
    """What of a variant none of timm's classes has a place for, as texts."""
    norms = [f"{n}={getattr(v, n)!r}" for n in INNER_NORMS if getattr(v, n) not in (None, v.norm)]
    texts = [f"{', '.join(norms)} beside norm={v.norm!r}"] * bool(norms)
    if v.patch_bias == (v.pre_norm is not None):
        texts.append(f"patch_bias={v.patch_bias} with pre_norm={v.pre_norm!r}")
    if v.pool == "map" and (v.norm_after_pool or v.norm != "layer_norm"):
        texts.append(f"pool='map' with norm={v.norm!r}, norm_after_pool={v.norm_after_pool}")
    return texts


class _Arguments:
    """Of one class: its architectures, as (condition of a variant, epsilon, name)."""

    rows = ()

    def architecture(self, v):
        """(the name that says the epsilon too or `None`, a name for all the rest)."""
        fitting = [row for row in self.rows if row[0](v)]
        exact = next((name for _, epsilon, name in fitting if epsilon == v.epsilon), None)
        usual = next((name for _, epsilon, name in fitting if epsilon == 1e-6), None)
        return exact, exact or usual

    def misplaced(self, v):
        """What of a variant this class has no place for, as texts."""
        if self.architecture(v)[1] is None:
            return [f"block={v.block!r} with mlp={v.mlp!r}, norm={v.norm!r}, epsilon={v.epsilon}"]
        return []

    def said(self, model):
        """The arguments that all classes have."""
        v = model.variant
        ratio = v.mlp_dim / v.width
        if int(v.width * ratio) != v.mlp_dim:
            ratio = (v.mlp_dim + 0.5) / v.width
        said = {"mlp_ratio": ratio, "num_classes": model.num_classes}
        said["qkv_bias"] = v.qkv_bias and v.has_bias("query")
        if v.layer_scale is not None:
            said["init_values"] = v.layer_scale
        return said


class _VisionTransformer(_Arguments):
    rows = (
        (lambda v: _plain(v) and v.distillation, 1e-6, "deit_base_distilled_patch16_224"),
        (lambda v: _plain(v) and not v.distillation, 1e-6, "vit_base_patch16_224"),
        (lambda v: _plain(v) and not v.distillation and not v.patch_norm
         and v.norm == "layer_norm", 1e-5, "vit_base_patch16_clip_224"),
        (lambda v: _gated(v), 1e-6, "aimv2_large_patch14_224"),
        (lambda v: _gated(v) and v.norm == "rms_norm", 1e-5, "aimv2_large_patch14_224"),
        (lambda v: v.block == "post_norm" and v.mlp == "mlp" and not v.distillation, 1e-6,
         "vit_base_patch16_rpn_224"),
    )  # fmt: skip

    def misplaced(self, v):
        texts, activation = super().misplaced(v), _activation(v)
        same = v.mlp == "mlp" or activation == f"gelu_{v.gelu}"
        if v.pool == "map" and not (same and v.pool_mlp_dim in (None, v.mlp_dim)):
            texts.append(f"pool='map' with {activation=}, pool_mlp_dim={v.pool_mlp_dim}")
        alone = v.class_token and not v.registers and v.pool == "token" and v.position != "none"
        if v.distillation and not alone:
            texts.append("a distillation token with other tokens, pooling or positions than DeiT's")
        return texts

    def said(self, model):
        v = model.variant
        said = super().said(model) | {
            "act_layer": key_of(ACTIVATIONS, _activation(v)),
            "fc_norm": v.norm_after_pool,
            "final_norm": v.final_norm,
            "qk_norm": v.qk_norm is not None,
            "scale_attn_norm": v.attention_norm is not None,
            "scale_mlp_norm": v.mlp_norm is not None,
            "proj_bias": v.has_bias("out"),
            "pre_norm": v.pre_norm is not None,
            "no_embed_class": False,
            # timm leaves them out unless it is told otherwise.
            "pool_include_prefix": v.pool == "map" and v.learned_tokens > 0 and not v.pool_patches,
        }
        if self.architecture(v)[0] is None or v.epsilon == 1e-6:
            said["norm_layer"] = NAMES[v.norm]
            said["embed_norm_layer"] = NAMES[v.norm] if v.patch_norm else ""
        elif not v.patch_norm:
            said["embed_norm_layer"] = ""
        return said


class _Parallel(_VisionTransformer):
    rows = ((lambda v: True, 1e-6, "vit_base_patch16_xp_224"),)


class _Eva(_Arguments):
    rows = (
        (lambda v: v.norm == "layer_norm", 1e-6, "eva_giant_patch14_224"),
        (lambda v: v.norm == "layer_norm" and (v.layer_scale or v.block == "post_norm"), 1e-5,
         "vit_base_patch16_dinov3"),
        (lambda v: v.norm == "layer_norm" and v.rotary and v.rotary.reference, 1e-5,
         "vit_pe_core_base_patch16_224"),
        (lambda v: v.norm == "rms_norm" and v.layer_scale, 1e-6, "vit_base_patch16_sapiens2"),
    )  # fmt: skip

    def misplaced(self, v):
        texts = super().misplaced(v)
        if v.rotary and rope_arguments(v.rotary)["rope_type"] is None:
            texts.append(f"rotary={v.rotary}")
        if v.block == "post_norm" and (v.qk_norm or (v.mlp == "swiglu" and not v.mlp_norm)):
            texts.append(f"block='post_norm' with qk_norm={v.qk_norm!r}, mlp={v.mlp!r}")
        return texts

    def said(self, model):
        v = model.variant
        pooled = v.pool_mlp_dim or v.mlp_dim
        said = super().said(model) | {
            "swiglu_mlp": v.mlp == "swiglu",
            "swiglu_align_to": int(v.mlp == "swiglu"),  # as two matrices
            "scale_mlp": v.mlp_norm is not None,
            "scale_attn_inner": v.attention_norm is not None,
            "qk_norm": v.qk_norm is not None,
            "attn_type": "rope" if v.biases == "all" and v.qkv_bias else "eva",
            "qkv_fused": False,
            "use_abs_pos_emb": v.position != "none",
            "no_embed_class": False,
            "use_post_norm": v.block == "post_norm",
            "use_pre_transformer_norm": v.pre_norm is not None,
            "use_post_transformer_norm": v.final_norm and not v.norm_after_pool,
            "use_fc_norm": v.final_norm and v.norm_after_pool,
            "use_rot_pos_emb": False,
            "dynamic_img_size": False,
            "attn_pool_num_heads": v.pool_heads or v.num_heads,
            "attn_pool_mlp_ratio": (pooled + 0.5) / v.width,
        }
        if v.norm == "rms_norm":
            said |= {"num_kv_heads": v.num_heads, "attn_only_layer_scale": False}
        return said | (rope_arguments(v.rotary) if v.rotary else {})


class _Beit(_Arguments):
    rows = ((lambda v: True, 1e-6, "beit_base_patch16_224"),)

    def misplaced(self, v):
        return ["a bias of the key"] * (v.qkv_bias and v.biases == "all") + super().misplaced(v)

    def said(self, model):
        v = model.variant
        is_relative = v.position == "relative_2d"
        return (
            {"init_values": 0.0}
            | super().said(model)
            | {
                "swiglu_mlp": v.mlp == "swiglu",
                "scale_mlp": v.mlp_norm is not None,
                "use_abs_pos_emb": v.position == "learned_1d",
                "use_rel_pos_bias": is_relative and v.position_at == "every_layer",
                "use_shared_rel_pos_bias": is_relative and v.position_at == "shared",
                "use_fc_norm": v.norm_after_pool,
            }
        )


def _plain(v):
    return v.block == "pre_norm" and v.mlp == "mlp"


def _gated(v):
    return v.block == "pre_norm" and v.mlp == "swiglu" and not v.distillation


def _activation(v):
    """Of the hidden layer, as `keras_vit.extensions.ACTIVATIONS` has it."""
    return v.activation or ("silu" if v.mlp == "swiglu" else f"gelu_{v.gelu}")


VIT, PARALLEL, EVA, BEIT = _VisionTransformer(), _Parallel(), _Eva(), _Beit()
