"""Which arrays a model of timm has, by the arguments of its class.

Models of several classes may have arrays of equal sizes. Which are there tells whether a config is
of the model in the file.
"""

# What arguments stand for -> an array that is there just then.
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


def shown(flat):
    """What the class of a model with these arguments makes of several of them, for `PARTS`."""
    after = flat["global_pool"] == "avg" if flat["fc_norm"] is None else bool(flat["fc_norm"])
    # `Eva` may have both norms or none; the others have one, before the pooling or after it.
    last, of_eva = flat["final_norm"], flat["kind"] == "Eva"
    before = bool(last) if of_eva and last is not None else last is not False and not after
    # A block that normalises after its branches has no LayerScale.
    scale = None if flat["block_fn"] == "ResPostBlock" else flat["init_values"]
    return {
        "init_values": scale,
        "gamma_1": bool(scale) and flat["kind"] != "VisionTransformer",
        "learned_rope": flat.get("use_rot_pos_emb") and flat["rope_type"] == "mixed",
        "key_bias": flat["qkv_bias"] and flat["attn_type"] == "rope",
        "one_branch_after_another": flat["block_fn"] != "ParallelScalingBlock",
        "norm": before,
        "fc_norm": after and (of_eva or bool(last)),
        "attention_pooling": flat["global_pool"] == "map",
    }
