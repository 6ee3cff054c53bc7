"""The names of arrays in timm's files, and arrays there that are of several layers."""

import re

import numpy as np

from keras_vit.weights import tables
from keras_vit.weights.model_arguments import POSITION
from keras_vit.weights.tables import CONV, SAME, TRANSPOSED

BLOCK = "blocks.{i}."
BACKBONE = "patch_embed.backbone."
PLAIN = (  # as many authors have them
    ("cls_token", "patch_encoder/class_token", SAME),
    ("pos_embed", POSITION, SAME),
    *tables.torch_linear("patch_embed.proj", "patch_encoder/projection", CONV),
    *tables.torch_norm(BLOCK + "norm{n}", "block_{i}/norm_{n}"),
    *tables.torch_linear(BLOCK + "attn.qkv", "block_{i}/attention/[query|key|value]"),
    *tables.torch_linear(BLOCK + "attn.proj", "block_{i}/attention/out"),
    *tables.torch_linear(BLOCK + "mlp.fc{n}", "block_{i}/mlp/dense_{n}"),
    (BLOCK + "ls{n}.gamma", "block_{i}/layer_scale_{n}/gamma", SAME),
    *tables.torch_linear("head", "head"),
)
ROWS = (
    *PLAIN,
    ("dist_token", "patch_encoder/distillation_token", SAME),
    ("reg_token", "patch_encoder/registers", SAME),
    *tables.torch_norm("patch_embed.norm", "patch_encoder/norm"),
    *tables.torch_norm("norm_pre", "pre_norm"),
    *tables.torch_norm(BLOCK + "attn.q_norm", "block_{i}/attention/query_norm"),
    *tables.torch_norm(BLOCK + "attn.k_norm", "block_{i}/attention/key_norm"),
    *tables.torch_norm(BLOCK + "attn.norm", "block_{i}/attention/norm"),
    *tables.torch_linear(BLOCK + "mlp.fc1_g", "block_{i}/mlp/gate"),
    *tables.torch_linear(BLOCK + "mlp.fc1_x", "block_{i}/mlp/dense_1"),
    *tables.torch_norm(BLOCK + "mlp.norm", "block_{i}/mlp/norm"),
    ("rope.freqs.{i}", "rotary_{i}/frequencies", SAME),
    *tables.torch_norm("[|fc_]norm", "norm"),
    ("attn_pool.latent", "pool/probe", SAME),
    *tables.torch_linear("attn_pool.q", "pool/attention/query"),
    *tables.torch_linear("attn_pool.kv", "pool/attention/[key|value]"),
    *tables.torch_linear("attn_pool.proj", "pool/attention/out"),
    *tables.torch_norm("attn_pool.norm", "pool/norm"),
    *tables.torch_linear("attn_pool.mlp.fc{n}", "pool/mlp/dense_{n}"),
    *tables.torch_linear("head_dist", "head_distillation"),
    ("projection.weight", "projection/kernel", TRANSPOSED),  # of OpenCLIP behind its trunk
    # A stem without stages is the backbone itself.
    *tables.torch_resnet(
        BACKBONE + "[stem.|]conv", BACKBONE + "[stem.|]norm", BACKBONE + "stages.{s}.blocks.{u}"
    ),
)
PARALLEL = (  # of the blocks of one branch
    *tables.torch_norm(BLOCK + "in_norm", "block_{i}/norm_1"),
    *tables.torch_linear(
        BLOCK + "in_proj", "block_{i}/[mlp/dense_1|attention/query|attention/key|attention/value]"
    ),
    *tables.torch_norm(BLOCK + "q_norm", "block_{i}/attention/query_norm"),
    *tables.torch_norm(BLOCK + "k_norm", "block_{i}/attention/key_norm"),
    *tables.torch_linear(BLOCK + "attn_out_proj", "block_{i}/attention/out"),
    *tables.torch_linear(BLOCK + "mlp_out_proj", "block_{i}/mlp/dense_2"),
    (BLOCK + "mlp_bias", "block_{i}/mlp/dense_1/bias", SAME),  # where queries have no bias
    (BLOCK + "ls.gamma", "block_{i}/layer_scale_1/gamma", SAME),
)
EVA = (  # of the classes Eva and Beit
    *tables.torch_attention(BLOCK + "attn.", "q_proj k_proj v_proj"),
    (BLOCK + "gamma_{n}", "block_{i}/layer_scale_{n}/gamma", SAME),
)
BEIT = (
    (BLOCK + "attn.q_bias", "block_{i}/attention/query/bias", SAME),
    (BLOCK + "attn.v_bias", "block_{i}/attention/value/bias", SAME),
    (BLOCK + "gamma_{n}", "block_{i}/layer_scale_{n}/gamma", SAME),
    (BLOCK + "attn.relative_position_bias_table", "position_{i}/table", SAME),
    ("rel_pos_bias.relative_position_bias_table", "position/table", SAME),
)
# What arguments stand for (`timm_models.shown`) -> an array that is there just then.
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


def split(tower):
    """The arrays of a file, each of them for one layer, under timm's names for single layers.

    These are the frequencies of all blocks (`RotaryEmbeddingMixed`), the two halves of a hidden
    layer with a gate (`GluMlp`), and the layers of a `ParallelScalingBlock`.
    """
    tower = dict(tower)
    if (frequencies := tower.pop("rope.freqs", None)) is not None:
        tower |= {f"rope.freqs.{i}": frequencies[:, i] for i in range(frequencies.shape[1])}
    for name in list(tower):
        if match := re.fullmatch(r"(blocks\.\d+\.)(norm2|in_proj)\.weight", name):
            (_split_gate if match[2] == "norm2" else _split_parallel)(tower, match[1])
    return tower


def _split_gate(tower, block):
    first, second = (tower.get(f"{block}mlp.fc{n}.weight") for n in (1, 2))
    if first is not None and second is not None and first.shape[0] == 2 * second.shape[-1]:
        for part in ("weight", "bias"):
            if (both := tower.pop(f"{block}mlp.fc1.{part}", None)) is not None:
                gate, hidden = f"{block}mlp.fc1_g.{part}", f"{block}mlp.fc1_x.{part}"
                tower[gate], tower[hidden] = np.split(both, 2)


def _split_parallel(tower, block):
    width = tower[f"{block}in_proj.weight"].shape[-1]
    for part in ("weight", "bias"):
        if (whole := tower.pop(f"{block}in_proj.{part}", None)) is not None:
            hidden, qkv = f"{block}mlp.fc1.{part}", f"{block}attn.qkv.{part}"
            tower[hidden], tower[qkv] = np.split(whole, [max(len(whole) - 3 * width, 0)])
    if (whole := tower.pop(f"{block}out_proj.weight", None)) is not None:
        out, second = f"{block}attn_out_proj.weight", f"{block}mlp_out_proj.weight"
        tower[out], tower[second] = np.split(whole, [width], axis=1)
    if (bias := tower.pop(f"{block}out_proj.bias", None)) is not None:
        tower[f"{block}attn_out_proj.bias"] = bias
        tower[f"{block}mlp_out_proj.bias"] = np.zeros_like(bias)


def joined_frequencies(file):
    """The arrays with the frequencies of all blocks as one."""
    blocks = sorted((n for n in file if n.startswith("rope.freqs.")), key=lambda n: int(n[11:]))
    whole = {"rope.freqs": np.stack([file.pop(name) for name in blocks], axis=1)} if blocks else {}
    return {**file, **whole}
