"""What the names of timm's architectures imply, and which of timm's arguments are understood.

A hub's config names an architecture and gives the arguments that differ from it. What it says is
here, for `VisionTransformer`, `VisionTransformerDistilled`, `Eva` and `Beit` of timm 1.0: what the
arrays do not show, and which arrays there are, by which a config of another model is noticed.
`tests/oracles/make_timm.py --check` compares it with every architecture that timm has.
"""

import re

from keras_vit.extensions import Rotary
from keras_vit.weights.safety import unsupported

VIT = {
    "class": "VisionTransformer",
    "num_heads": 12,
    "global_pool": "token",
    "act_layer": "gelu",
    "epsilon": 1e-6,
    "embed_epsilon": 1e-6,
    "reg_tokens": 0,
    "attn_type": "rope",  # whose keys have a bias too
    "block_fn": "Block",
    "norm_layer": "layernorm",
    "embed_norm_layer": "",
    **dict.fromkeys("class_token use_abs_pos_emb qkv_bias proj_bias final_norm".split(), True),
    **dict.fromkeys("no_embed_class pool_include_prefix distilled pre_norm".split(), False),
    **dict.fromkeys("use_rel_pos_bias use_shared_rel_pos_bias swiglu_mlp".split(), False),
    **dict.fromkeys("qk_norm scale_attn_norm scale_mlp_norm".split(), False),
    **dict.fromkeys(("init_values", "fc_norm")),
}
BEIT = VIT | {"class": "Beit", "global_pool": "avg", "attn_type": "eva"}
EVA = BEIT | {
    "class": "Eva",
    "final_norm": None,
    "rope_type": "cat",
    "rope_temperature": 10_000.0,
    "rope_grid_indexing": "ij",
    "rope_grid_offset": 0.0,
    "rope_rotate_half": False,
    "ref_feat_shape": None,
}
DINOV3 = {"rope_type": "dinov3", "rope_temperature": 100.0, "rope_rotate_half": True}
TURNED = {"use_rot_pos_emb": True}
NAVER = {"rope_temperature": 100.0, "rope_grid_indexing": "xy", "global_pool": "token"}
PE = {"rope_grid_indexing": "xy", "rope_grid_offset": 1.0, "ref_feat_shape": (32, 32)}
# (pattern of "_name_", what it implies): all that fit count, and later ones more than earlier ones.
RULES = (
    (r"^_(vit|deit3?|flexivit|eva|beit3|aimv2|test)_", VIT),
    (r"^_(eva02|eva_giant)_|^_vit_.*_(dinov3|lingbot|sapiens2|pe|rope)_|^_vit_pe_", EVA),
    (r"^_beit(v2)?_", BEIT),
    # heads
    (r"_tiny_|_test_vit[34]_", {"num_heads": 3}),
    (r"_test_vit2?_", {"num_heads": 2}),
    (r"_(xsmall|d?p?wee)_", {"num_heads": 4}),
    (r"_d?little_", {"num_heads": 5}),
    (r"_small_", {"num_heads": 6}),
    (r"_mediumd?_", {"num_heads": 8}),
    (r"_betwixt_", {"num_heads": 10}),
    (r"_so150m2_", {"num_heads": 13}),
    (r"_so150m_|_patch\d+_plus_", {"num_heads": 14}),
    (r"_(large|huge|giant|giantopt|gigantic|enormous|so400m|intern300m)_", {"num_heads": 16}),
    (r"_vit_base_patch16_gap_|_aimv2_1b_", {"num_heads": 16}),
    (r"_huge_plus_", {"num_heads": 20}),
    (r"_vit_giant_.*_(radio|dinov2|tipsv2|lingbot|sapiens2)_|_aimv2_3b_", {"num_heads": 24}),
    (r"_[57]b_", {"num_heads": 32}),
    (r"_aimv2_large_", {"num_heads": 8}),
    (r"_aimv2_huge_", {"num_heads": 12}),
    # pooling
    (r"_(siglip|map|pe_core)_|_test_vit3_", {"global_pool": "map"}),
    (r"_(gap|rpn|aimv2|beit3|eva_large)_|_test_vit[24]_", {"global_pool": "avg"}),
    (r"_eva.*_clip_|_lingbot_|_sapiens2_", {"global_pool": "token"}),
    (r"_test_vit3_", {"pool_include_prefix": True}),
    (r"_pe_core_", {"attn_pool_num_heads": 8}),
    # positions
    (r"_deit3_|_flexivit_|_xp_|_radio_|_d?p?wee_|_d?little_", {"no_embed_class": True}),
    (r"_reg\d_(gap|tipsv2|dinov2)_", {"no_embed_class": True}),
    (r"_so150m2?_|_rope_reg\d_", {"no_embed_class": False}),
    (r"^_eva02_(?!enormous)|_(dinov3|lingbot|sapiens2|rope|pe)_", TURNED),
    (r"^_eva02_|_rope_reg\d_", {"ref_feat_shape": (16, 16)}),
    (r"_(dinov3|lingbot|sapiens2)_", DINOV3),
    (r"_rope_(?!reg)", NAVER),
    (r"_rope_mixed_", {"rope_type": "mixed", "rope_temperature": 10.0}),
    (r"_rope_(mixed_)?ape_", {"no_embed_class": True}),
    (r"_pe_", PE),
    (r"_pe_(\w+_)?gigantic_", {"rope_grid_offset": 0.0}),
    (r"_pe_core_(?!gigantic)", {"ref_feat_shape": (24, 24)}),
    (r"_pe_core_base_", {"ref_feat_shape": (14, 14)}),
    # norms, activations and blocks
    (r"^(?!_eva).*_clip_|_(beit3|dinov3|lingbot|pe)_", {"epsilon": 1e-5}),
    (r"_aimv2_", {"epsilon": 1e-5, "embed_epsilon": 1e-5, "act_layer": "silu"}),
    (r"_quickgelu_", {"act_layer": "quick_gelu"}),
    (r"_vit_giant_.*_(dinov2|tipsv2)_", {"act_layer": "silu"}),
    (r"_(giantopt|so400m)_patch16_siglip_|_base_patch32_siglip_", {"act_layer": "gelu_tanh"}),
    (r"_large_patch16_siglip_(gap_)?512_", {"act_layer": "gelu_tanh"}),
    (r"_vit_base_patch16_rpn_|_eva02_enormous_", {"block_fn": "ResPostBlock"}),
    # what the arrays show: tokens and positions
    (r"_(siglip|gap|aimv2|so150m2?|rpn)_|_pe_\w*gigantic_|_test_vit[234]_", {"class_token": False}),
    (r"_reg1_|_test_vit[234]_", {"reg_tokens": 1}),
    (r"_reg4_|_(dinov3|lingbot)_", {"reg_tokens": 4}),
    (r"_radio_v3_", {"reg_tokens": 7}),
    (r"_sapiens2_", {"reg_tokens": 8}),
    (r"_radio_v4_", {"reg_tokens": 9}),
    (r"_distilled_", {"distilled": True}),
    (r"^_beit(v2)?_|_(dinov3|lingbot|sapiens2|rope)_", {"use_abs_pos_emb": False}),
    (r"_ape_", {"use_abs_pos_emb": True}),
    (r"^_beit(v2)?_", {"use_rel_pos_bias": True}),
    # biases and norms of the attention, gates
    (r"_(aimv2|xp|rpn|so150m2|miil)_|_(betwixt|medium)_patch\d+_gap_", {"qkv_bias": False}),
    (r"_mediumd_patch16_rope_|_giant_.*lingbot_|_dinov3_(?!qkvb)", {"qkv_bias": False}),
    (r"_(pe|sapiens2)_|_rope_(?!reg)", {"attn_type": "rope"}),
    (r"_aimv2_", {"proj_bias": False}),
    (r"_(xp|sapiens2)_", {"qk_norm": True}),
    (r"_beit3_|_eva02_(base|large)_", {"scale_mlp_norm": True}),
    (r"_beit3_|_eva02_.*_clip_", {"scale_attn_norm": True}),
    (r"_(aimv2|sapiens2)_|^_eva02_|_(plus|7b)_patch\d+_dinov3_", {"swiglu_mlp": True}),
    (r"_vit_giant_.*_(dinov2|tipsv2|lingbot)_", {"swiglu_mlp": True}),
    (r"_eva02_enormous_", {"scale_attn_norm": False, "swiglu_mlp": False}),
    # LayerScale and the norms around the blocks
    (r"^_beit(v2)?_|_(deit3|dinov[23]|tipsv2|lingbot|sapiens2|rope|intern300m|rpn|so150m2|36x1)_"
     r"|_test_vit[234]_|_(betwixt|mediumd?|p?wee|little)_|_(base|large)_.*_radio_|_pe_lang_"
     r"|_pe_spatial_gigantic_|_plus_\d", {"init_values": 1e-5}),
    (r"_clip_", {"init_values": None}),
    (r"_(xp|pwee)_", {"block_fn": "ParallelScalingBlock"}),
    (r"_(xp|aimv2|sapiens2)_|_test_vit4_", {"norm_layer": "rmsnorm"}),
    (r"_aimv2_", {"embed_norm_layer": "rmsnorm"}),
    (r"^(?!_eva).*_clip_|_(xp|pe)_", {"pre_norm": True}),
    (r"_(radio|intern300m)_|_pe_(lang|spatial)_", {"final_norm": False}),
    (r"_(siglip|patch\d+)_gap_|_so150m_.*_gap_|_(aimv2|sapiens2|lingbot|dinov3)_"
     r"|_pe_(lang|spatial)_|_base_patch16_rope_224_", {"fc_norm": False}),
)  # fmt: skip
# What arguments stand for (`shown`) -> an array that is there just then.
PARTS = {
    "class_token": "patch_encoder/class_token",
    "reg_tokens": "patch_encoder/registers",
    "distilled": "patch_encoder/distillation_token",
    "use_abs_pos_emb": "patch_encoder/position/embedding",
    "use_rel_pos_bias": "position_0/table",
    "use_shared_rel_pos_bias": "position/table",
    "learned_rope": "rotary_0/frequencies",
    "qkv_bias": "block_0/attention/query/bias",
    "key_bias": "block_0/attention/key/bias",
    "proj_bias": "block_0/attention/out/bias",
    "qk_norm": "block_0/attention/query_norm/gamma",
    "scale_attn_norm": "block_0/attention/norm/gamma",
    "scale_mlp_norm": "block_0/mlp/norm/gamma",
    "swiglu_mlp": "block_0/mlp/gate/kernel",
    "init_values": "block_0/layer_scale_1/gamma",
    "gamma_1": "blocks.0.gamma_1",
    "one_branch_after_another": "block_0/norm_2/gamma",
    "embed_norm_layer": "patch_encoder/norm/gamma",
    "pre_norm": "pre_norm/gamma",
    "norm": "norm.weight",
    "fc_norm": "fc_norm.weight",
    "attention_pooling": "pool/probe",
}
# Names of `Eva` and `Beit` -> those of `VisionTransformer`.
RENAMED = {
    "num_reg_tokens": "reg_tokens",
    "scale_mlp": "scale_mlp_norm",
    "scale_attn_inner": "scale_attn_norm",
    "use_pre_transformer_norm": "pre_norm",
    "use_post_transformer_norm": "final_norm",
    "use_fc_norm": "fc_norm",
}
# timm's name of an activation -> that of `Extensions`.
ACTIVATIONS = {
    **dict.fromkeys(("gelu", "", "gelu_erf"), "gelu_erf"),
    "gelu_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    **dict.fromkeys(("silu", "swish"), "silu"),
}
# Arguments that are read, that the arrays show, and that count in training or for other sizes.
UNDERSTOOD = {*EVA, *RENAMED} | set(
    """img_size patch_size in_chans embed_dim depth pos_embed use_rot_pos_emb use_post_norm
    attn_pool_num_heads attn_pool_mlp_ratio num_classes mlp_ratio swiglu_align_to qkv_fused
    drop_rate pos_drop_rate patch_drop_rate proj_drop_rate attn_drop_rate drop_path_rate weight_init
    fix_init head_init_scale rope_shift_coords rope_jitter_coords rope_rescale_coords
    dynamic_img_size dynamic_img_pad strict_img_size pretrained_strict""".split()
)
# Arguments that have to be as here; any other one has to be absent or false.
FIXED = {"attn_layer": ("attn",), "mlp_layer": ("Mlp", "SwiGLU", "SwiGLUPacked")}


def implied(name):
    """What the name of an architecture says that arrays do not; empty for an unknown name."""
    padded = f"_{name.split('.')[0]}_"
    arguments = {}
    for pattern, further in RULES:
        if re.search(pattern, padded):
            arguments |= further
    return arguments if "class" in arguments else {}


def arguments_of(config):
    """A config.json of timm as one dict, with what its architecture implies.

    Keys are those of `VisionTransformer`, also where `Eva` calls it otherwise; `class` is the name
    of the class, `epsilon` that of its norms, and `embed_epsilon` that of the norm of the patches.
    """
    # timm's factory leaves out what is `None`.
    stated = {k: v for k, v in (config.get("model_args") or {}).items() if v is not None}
    flat = {**implied(str(config.get("architecture", ""))), **config, **stated}
    usual = {"num_kv_heads": flat.get("num_heads")}
    for key, value in stated.items():
        known = key in UNDERSTOOD or value in FIXED.get(key, ())
        if value and not known and value != usual.get(key):
            raise unsupported(f"been built with {key}={value!r} (its config)")
    if not flat.get("class") and "use_rot_pos_emb" in stated:
        flat = {**EVA, **flat}
    if "num_features" in config:
        flat.setdefault("embed_dim", config["num_features"])
    if "input_size" in config.get("pretrained_cfg", {}):
        flat.setdefault("img_size", list(config["pretrained_cfg"]["input_size"][1:]))
    flat |= {RENAMED[key]: value for key, value in stated.items() if key in RENAMED}
    if flat.get("use_post_norm"):
        flat["block_fn"] = "ResPostBlock"
    if "mlp_layer" in stated:
        flat["swiglu_mlp"] = stated["mlp_layer"] != "Mlp"
    if stated.get("pos_embed", "learn") in ("none", ""):
        flat["use_abs_pos_emb"] = False
    if flat.get("use_abs_pos_emb") is False:
        flat["pos_embed"] = "none"
    for key, epsilon in (("norm_layer", "epsilon"), ("embed_norm_layer", "embed_epsilon")):
        if key in stated:  # by its name alone a norm has timm's epsilon
            flat[epsilon] = 1e-6
            flat[key] = str(stated[key]).replace("_", "").lower()
    return {**flat, **(shown(flat) if VIT.keys() <= flat.keys() else {})}


def rotary_of(flat):
    """The `Rotary` of a model with these arguments, or `None`."""
    if not flat.get("use_rot_pos_emb"):
        return None
    rope_type, indexing = flat["rope_type"], flat["rope_grid_indexing"]
    if rope_type not in ("cat", "dinov3", "mixed") or indexing not in ("ij", "xy"):
        what = f"{rope_type=}, rope_grid_indexing={indexing!r}"
        raise unsupported(f"been built with {what} (its config)")
    reference, offset = flat["ref_feat_shape"], float(flat["rope_grid_offset"])
    return Rotary(
        "centered" if rope_type == "dinov3" else "index",
        float(flat["rope_temperature"]),
        reference if rope_type == "cat" else None,
        0.0 if rope_type == "mixed" else offset,
        "rows" if indexing == "ij" else "columns",
        "halves" if flat["rope_rotate_half"] else "adjacent",
        learned=rope_type == "mixed",
    )


def rope_arguments(rotary):
    """The arguments of `Eva` for a `Rotary`; `rope_type` is `None` where it has none for it."""
    rope_type = "cat" if rotary.places == "index" else "dinov3"
    arguments = {
        "use_rot_pos_emb": True,
        "rope_type": "mixed" if rotary.learned else rope_type,
        "rope_temperature": rotary.temperature,
        "rope_grid_indexing": "ij" if rotary.order == "rows" else "xy",
        "rope_grid_offset": rotary.offset,
        "rope_rotate_half": rotary.pairs == "halves",
        "ref_feat_shape": rotary.reference and list(rotary.reference),
    }
    return arguments if rotary_of(arguments) == rotary else {"rope_type": None}


def shown(flat):
    """What the class of a model with these arguments makes of several of them, for `PARTS`."""
    after = flat["global_pool"] == "avg" if flat["fc_norm"] is None else bool(flat["fc_norm"])
    # `Eva` may have both norms or none; the others have one, before the pooling or after it.
    last, is_eva = flat["final_norm"], flat["class"] == "Eva"
    has_last = not after if last is None else bool(last) and (is_eva or not after)
    # A block that normalises after its branches has no LayerScale.
    scale = None if flat["block_fn"] == "ResPostBlock" else flat["init_values"]
    return {
        "init_values": scale,
        "gamma_1": bool(scale) and flat["class"] != "VisionTransformer",
        "learned_rope": flat.get("use_rot_pos_emb") and flat["rope_type"] == "mixed",
        "key_bias": flat["qkv_bias"] and flat["attn_type"] == "rope",
        "one_branch_after_another": flat["block_fn"] != "ParallelScalingBlock",
        "norm": has_last,
        "fc_norm": after and (is_eva or bool(last)),
        "attention_pooling": flat["global_pool"] == "map",
    }
