"""What is refused of stored checkpoints: arrays and configs that no model here has, by name."""

import numpy as np
import pytest

from tests.weights.stored import changed, refused

pytestmark = pytest.mark.any_backend

BEIT = "beit.encoder.layer.0."
POSITIONS = "beit.embeddings.position_embeddings"
SHARED = "rel_pos_bias.relative_position_bias_table"
PATCHES = "embeddings.patch_embedding.weight"
TRUNK = "visual.trunk.head."


def flat_patches(arrays):
    return {**arrays, PATCHES: arrays[PATCHES].reshape(16, -1)}


def without(word):
    return lambda arrays: {name: array for name, array in arrays.items() if word not in name}


def periods(*values):
    return {"rope_embed.periods": np.array(values, "float32")}


CONFIGS = [  # of Hugging Face
    ("hf_dinov2", {"hidden_act": "relu"}, "hidden_act='relu'"),
    ("hf_dinov2", {"mlp_ratio": 3}, "mlp_ratio=3"),
    ("hf_dinov3", {"rope_parameters": {"rope_type": "yarn"}}, "yarn"),
    ("hf_dinov3", {"query_bias": False}, "of another model"),
    ("hf_beit", {"use_mean_pooling": False}, "use_mean_pooling"),
    ("hf_beit", {"use_mean_pooling": "first"}, "use_mean_pooling='first'"),
    ("hf_beit_shared", {"use_mean_pooling": True}, "use_mean_pooling=True, and the file"),
    ("hf_deit_pooler", {"pooler_act": "relu"}, "relu"),
    ("tower_clip", {"hidden_act": "relu"}, "hidden_act='relu'"),
    ("tower_clip", {"hidden_size": 32}, "hidden_size"),
    ("tower_clip", {"model_type": "siglip"}, "stands for Hugging Face SigLIP"),
    ("tower_siglip", {"vision_use_head": False}, "vision_use_head=False, and the file"),
    ("tower_aimv2", {"is_native": True}, "learned_positions=False, and the file has"),
    ("tower_aimv2", {"mlp_bias": True}, "mlp_bias=True, and the file has no"),
]
ARGUMENTS = [  # of timm
    ("dinov3_plus", {"rope_type": "mrope"}, "rope_type='mrope'"),
    ("dinov3_plus", {"num_kv_heads": 1}, "num_kv_heads=1"),
    ("dinov3_plus", {"attn_only_layer_scale": True}, "attn_only_layer_scale=True"),
    ("eva02", {"rope_type": "mixed"}, "of another model"),
    ("aimv2", {"norm_layer": "simplenorm"}, "norm_layer='simplenorm'"),
    ("aimv2", {"norm_layer": "rmsnorm"}, "epsilons 1e-05 and 1e-06"),
    ("pe_core", {"global_pool": "prr"}, "global_pool='prr'"),
    ("deit3", {"use_naflex": True}, "use_naflex=True"),
    ("deit3", {"qk_norm": True}, "qk_norm=True, and the file has no .*query_norm"),
    ("deit3", {"init_values": 0.0}, r"init_values=0.0, and the file has 'blocks.0.ls1.gamma'"),
    ("deit3", {"fc_norm": True}, "norm=False, and the file has 'norm.weight'"),
    ("deit3", {"global_pool": "map"}, "attention_pooling=True"),
    ("eva02", {"scale_mlp": False}, "scale_mlp_norm=False.*blocks.0.mlp.norm.weight"),
    ("eva02", {"attn_type": "rope"}, "key_bias=True"),
    ("beit", {"use_rel_pos_bias": False}, "use_rel_pos_bias=False"),
    ("clip_quickgelu", {"pre_norm": False}, "pre_norm=False, and the file has 'norm_pre"),
    ("xp", {"qkv_bias": True}, "of another model.*qkv_bias"),
    ("beit", {"num_heads": 4}, r"loaded\. Its arrays contradict each other, or the config"),
    ("rope_mixed_ape", {"num_heads": 4}, r"loaded\. Its arrays contradict each other, or"),
]
ARRAYS = [
    ("hf_beit", {"decode_head.classifier.weight": (3, 3)}, "segments"),
    ("hf_beit", {"layernorm.weight": (16,)}, "Two arrays"),
    ("hf_beit_shared", {"beit.layernorm.weight": (16,)}, "layernorm.weight"),
    ("hf_beit", {BEIT + "attention.attention.key.bias": (16,)}, "key.bias"),
    ("hf_dinov2", without("layer_scale"), "stands for Hugging Face Dinov2, and the arrays"),
    ("hf_deit", {"deit.embeddings.unknown": (1, 1, 16)}, "embeddings.unknown"),
    ("timm_eva02", {"norm.weight": (16,)}, "norm/gamma"),
    ("timm_rope_axial", {f"blocks.{i}.gamma_2": None for i in (0, 1)}, "none after the MLP"),
    ("timm_dinov3_plus", {"blocks.1.attn.gate.weight": (16, 16)}, "a gate after its attention"),
    ("timm_deit3", {"blocks.0.attn.lambda_q1": (16,)}, "differential attention.*lambda_q1"),
    ("timm_deit3", {"blocks.0.attns.0.attn.proj.bias": (16,)}, "several attentions in one block"),
    ("timm_deit3", {"blocks.0.mlp.w12.weight": (1, 1, 16)}, "w12.weight.*which no such array has"),
    ("timm_deit3", {"something.else": (16,)}, "no place in a model of timm.*something.else"),
    ("timm_so150m_map", {"attn_pool.norm.bias": None}, "without a LayerNorm"),
    ("tower_siglip", flat_patches, "NaFlex"),
    ("tower_siglip", without("position"), "positions other than a table"),
    ("tower_aimv2", {"extra.weight": (3,)}, "extra.weight"),
    ("tower_dinov2", {"blocks.0.0.attn.qkv.bias_mask": (48,)}, "mask other than"),
    ("tower_dinov3", {"cls_norm.weight": (16,)}, "last norm of its own"),
    ("tower_dinov3", periods(0.5, 7.0), "rotary periods"),
    ("tower_open_clip", {"visual.attn_pool.query": (16,)}, "CoCa's pooling"),
    ("tower_open_clip", {"visual.transformer.resblocks.0.ln_attn.weight": (16,)}, "custom kind"),
    ("tower_open_clip_trunk", {"visual.head.mlp.fc1.weight": (16,)}, "visual.head.mlp.fc1.weight"),
    ("tower_open_clip_trunk", {TRUNK + "weight": (3, 16), TRUNK + "bias": (3,)}, "two heads"),
]


@pytest.mark.parametrize(
    "case, changes, words",
    [
        *((case, {"config": config}, words) for case, config, words in CONFIGS),
        *((f"timm_{case}", {"arguments": a}, words) for case, a, words in ARGUMENTS),
        *((case, {"arrays": arrays}, words) for case, arrays, words in ARRAYS),
        (
            "hf_beit",
            {
                "arrays": {POSITIONS: (1, 10, 16)},
                "config": {"use_absolute_position_embeddings": True},
            },
            "kinds of positions",
        ),
        (
            "timm_beit",
            {"arrays": {SHARED: (6, 2)}, "arguments": {"use_shared_rel_pos_bias": True}},
            "beside others",
        ),
        (
            "timm_deit_distilled",
            {"arrays": {"reg_token": (1, 1, 16)}, "arguments": {"reg_tokens": 1}},
            "registers beside a distillation token",
        ),
    ],
)
def test_refused_by_name(tmp_path, case, changes, words):
    config = changes.get("config", {})
    folder = changed(case, tmp_path, changes.get("arrays"), changes.get("arguments"), **config)
    heads = {"num_heads": 2} if case.startswith("tower_") else {}  # which some do not say
    refused(words, folder, **heads)
