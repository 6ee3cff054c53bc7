"""AIMv2, as Hugging Face's `Aimv2VisionModel` and as Apple store it.

It has RMSNorm, gated MLPs, hardly any bias, and heads of 128 units. Files for images of any size
have no table of positions: it is computed for the size that is asked for, or else that of the
config.
"""

from keras_vit.layers.position import sincos_2d
from keras_vit.weights import tables
from keras_vit.weights.formats import huggingface, vision_towers
from keras_vit.weights.model_arguments import CONFIG, CUSTOM, POSITION
from keras_vit.weights.tables import CONV, SAME, TRANSPOSED, Table
from keras_vit.weights.writable import ANY

BLOCK, APPLE_BLOCK = vision_towers.BLOCK, "trunk.blocks.{i}."
HEAD_WIDTH = 128


class Aimv2(vision_towers.VisionTower):
    heads = 8

    def flat_config(self, contents):
        config = super().flat_config(contents)
        table = {"learned_positions": not config["is_native"]} if "is_native" in config else {}
        return {**config, **table}

    def choose_pooling(self, weights, arguments):
        super().choose_pooling(weights, arguments)
        if heads := arguments["width"] // HEAD_WIDTH:
            why = f"heads of width {HEAD_WIDTH} are AIMv2's custom"
            arguments.add(CUSTOM, why, num_heads=heads)
        if arguments.config.get("is_native", POSITION not in weights.arrays):
            size = arguments.caller.get("image_size") or arguments.get("image_size") or 224
            grid = arguments.shape.grid(size)
            # Of the column, then of the row, as in MAE.
            table = sincos_2d(grid, arguments["width"], endpoint=False)[None]
            weights.add(POSITION, table, f"sines and cosines for {grid}")
            arguments.add(CONFIG, image_size=size)

    def obstacles(self, model):
        v = model.variant
        partly = v.has_bias("out") != (v.has_bias("query") and v.qkv_bias)
        what = f"qkv_bias={v.qkv_bias} with biases={v.biases!r}"
        return super().obstacles(model) | {what: partly}

    def json_files(self, model):
        has_bias = model.variant.has_bias("out")
        return super().json_files(model, qkv_bias=has_bias, is_native=False)


FAMILY = Aimv2(
    name="Hugging Face AIMv2",
    model_types=("aimv2", "aimv2_vision_model"),
    arrays_by_key={
        "learned_positions": POSITION,
        "use_head": "pool/probe",
        "mlp_bias": "block_0/mlp/dense_1/bias",
    },
    signature=r"(vision_model\.)?embeddings\.patch_embed\.weight$",
    table=Table(
        *tables.torch_linear("embeddings.patch_embed", "patch_encoder/projection", CONV),
        *tables.torch_norm("embeddings.rms_norm", "patch_encoder/norm"),
        *tables.torch_norm(BLOCK + "rms_norm{n}", "block_{i}/norm_{n}"),
        *tables.torch_attention(BLOCK + "attention."),
        *tables.torch_mlp(BLOCK + "ffn.", "gate_proj up_proj down_proj"),
        *tables.torch_norm("rms_norm", "norm"),
        ("head.cls_token", "pool/probe", SAME),
        *tables.torch_attention("head.", "- k_proj v_proj output_proj", "pool/attention/"),
        *vision_towers.SHARED,
    ),
    defaults={**vision_towers.DEFAULTS, "activation": "silu"},
    config={**huggingface.KEYS, "rms_norm_eps": "epsilon", "qkv_bias": "qkv_bias"},
    can_store={
        **vision_towers.HOLDS,
        "class_token": (False,),
        "pool": ("probe", "mean", None),
        "norm": ("rms_norm",),
        "patch_norm": ("rms_norm",),
        "mlp": ("swiglu",),
        "biases": ("all", "none", "attention", "no_out"),
        "qkv_bias": ANY,
    },
    title="Aimv2",
    head_pools=(),
)
APPLE = Aimv2(
    name="AIMv2 as Apple stores it",
    model_types=FAMILY.model_types,
    signature=r"(image_encoder\.)?preprocessor\.patchifier\.proj\.weight$",
    stripped=r"^image_encoder\.",
    table=Table(
        *tables.torch_linear("preprocessor.patchifier.proj", "patch_encoder/projection", CONV),
        ("preprocessor.patchifier.norm.weight", "patch_encoder/norm/gamma", SAME),
        ("preprocessor.pos_embed", POSITION, SAME),
        (APPLE_BLOCK + "norm_{n}.weight", "block_{i}/norm_{n}/gamma", SAME),
        *tables.torch_linear(APPLE_BLOCK + "attn.qkv", "block_{i}/attention/[query|key|value]"),
        *tables.torch_linear(APPLE_BLOCK + "attn.proj", "block_{i}/attention/out"),
        *tables.torch_mlp(APPLE_BLOCK + "mlp.", "fc1 fc3 fc2"),
        ("trunk.post_trunk_norm.weight", "norm/gamma", SAME),
        ("head.cls_token", "pool/probe", SAME),
        *tables.torch_attention("head.", "- k v linear", "pool/attention/"),
        ("image_projector.weight", "projection/kernel", TRANSPOSED),
    ),
    ignored=(r"text_(encoder|projector)\..*", "log_logit_scale"),
    unsupported={r"trunk\.blocks\.\d+\.norm_1\.bias": "the mean over blocks of the first AIM"},
    defaults=FAMILY.defaults,
    config=FAMILY.config,
)
