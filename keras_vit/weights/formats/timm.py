"""State dicts of timm's Vision Transformers, and the `config.json` beside them.

timm keeps q, k and v in one matrix and no axis for the heads, stores (out, in), and computes GELU
exactly. The arrays do not tell the heads, the activation, the kind of block, rotary positions, nor
what is pooled. A hub's config names the architecture and leaves to timm what that name means, which
`timm_architectures` knows. One table reads the names of all of timm's classes.
"""

import dataclasses
import re

from keras_vit.preprocessing import TIMM
from keras_vit.weights import tables
from keras_vit.weights.canonical import POSITION, config_of
from keras_vit.weights.evidence import ARRAYS, CONFIG, CUSTOM, REPORTED
from keras_vit.weights.family import ANY, Family
from keras_vit.weights.formats import timm_arguments, timm_layouts, timm_parts
from keras_vit.weights.formats import timm_facts as facts
from keras_vit.weights.formats.timm_architectures import ACTIVATIONS, arguments_of
from keras_vit.weights.tables import CONV, SAME, Table

BLOCK = "blocks.{i}."
BACKBONE = "patch_embed.backbone."
# timm makes a stem for these only; what surrounds it may have any size.
HYBRIDS = {
    ((3, 4, 9), (1, 1)): "vit_base_r50_s16_224",
    ((3, 4, 6, 3), (1, 1)): "vit_large_r50_s32_224",
    ((2, 2, 2, 2), (1, 1)): "vit_small_r26_s32_224",
    ((), (8, 8)): "vit_tiny_r_s16_p8_224",
}
POOLS = {"token": "token", "avg": "mean", "map": "map", "": None}
# timm's name of an activation -> `Variant.gelu` beside it.
GELUS = {name: "tanh" if name == "gelu_tanh" else "erf" for name in ACTIVATIONS}
# Key of `pretrained_cfg` -> field of a `Preprocessing`, and its values there where they are named.
PREPROCESSING = {
    "mean": ("mean", None),
    "std": ("std", None),
    "crop_pct": ("crop_fraction", None),
    "crop_mode": ("resize", {"center": "shortest", "squash": "squash"}),
    "interpolation": ("interpolation", {"bilinear": "bilinear", "bicubic": "bicubic"}),
}


@dataclasses.dataclass(frozen=True)
class Timm(Family):
    """safetensors files, and files of `torch.save`, with the names of timm."""

    arguments: object = None  # with which timm builds what is written, of `timm_arguments`

    def flat_config(self, contents):
        return facts.with_moved_norm(arguments_of(contents.config), contents.arrays)

    def unstacked(self, tower):
        return timm_layouts.split(tower)

    def complete(self, canonical, contents):
        evidence, config = canonical.evidence, canonical.evidence.config
        facts.refuse_by_shape(canonical.arrays, evidence)
        facts.settle_blocks(evidence)
        facts.settle_rotary(canonical, contents.arrays)
        has_fc_norm = "fc_norm.weight" in contents.arrays or config.get("norm_moves", False)
        if evidence["class_token"] and evidence["pool"] != "map":
            # A config counts more.
            evidence.add(ARRAYS, REPORTED[CUSTOM], pool="mean" if has_fc_norm else "token")
        # Of each token by itself it is the same before.
        pools = evidence.caller.get("pool", evidence["pool"]) is not None
        evidence["norm_after_pool"] = has_fc_norm and pools
        facts.settle_pooled_tokens(evidence)
        if POSITION not in canonical.arrays and config.get("kind"):
            if not evidence.get("position"):
                evidence.add(CONFIG, position="none")  # timm has no computed ones
        facts.give_learned_tokens_positions(canonical)
        settings = config.get("pretrained_cfg", {})
        canonical.prepare(*preprocessing_of(settings), settings)
        canonical.class_names = facts.class_names_of(config, evidence["num_classes"])

    # ---- writing

    def write(self, model, arrays):
        v = model.variant
        mlp_biases = {}
        if v.block == "parallel" and not v.qkv_bias:  # which are then apart from the others
            mlp_biases = {n: a for n, a in arrays.items() if n.endswith("/mlp/dense_1/bias")}
            arrays = {n: a for n, a in arrays.items() if n not in mlp_biases}
        file = super().write(model, arrays)
        for name, array in mlp_biases.items():
            file[f"blocks.{name.split('/')[0].removeprefix('block_')}.mlp_bias"] = array
        if v.norm_after_pool:
            file = {re.sub(r"^norm\.", "fc_norm.", name): array for name, array in file.items()}
        if v.mlp == "swiglu":
            file = {re.sub(r"^(blocks.*fc1)\.", r"\1_x.", name): a for name, a in file.items()}
        if v.stem == ():
            file = {name.replace(BACKBONE + "stem.", BACKBONE): a for name, a in file.items()}
        return timm_layouts.joined_frequencies(file)

    def impossible(self, model):
        v = model.variant
        unknown = v.stem is not None and _hybrid_of(v) is None
        texts = super().impossible(model) + [f"stem={v.stem}, stem_width={v.stem_width}"] * unknown
        return texts + timm_arguments.misplaced(v) + self.arguments.misplaced(v)

    def obstacles(self, model):
        architecture, _ = self.arguments.architecture(model.variant)
        other = [f"epsilon={model.variant.epsilon}"] * (architecture is None)
        return other + super().obstacles(model)

    def json_files(self, model):
        """`config.json` as timm's hub has it: the architecture and its arguments."""
        v, arguments = model.variant, {**self.config_for(model), **self.arguments.said(model)}
        arguments.pop("epsilon", None)  # the architecture says it
        _, name = self.arguments.architecture(v)
        config = hub_config(model, _hybrid_of(v) or name, v.width, arguments)
        return {"config.json": {**config, "global_pool": arguments["global_pool"]}}


ROWS = (
    ("cls_token", "patch_encoder/class_token", SAME),
    ("dist_token", "patch_encoder/distillation_token", SAME),
    ("reg_token", "patch_encoder/registers", SAME),
    ("pos_embed", POSITION, SAME),
    *tables.torch_linear("patch_embed.proj", "patch_encoder/projection", CONV),
    *tables.torch_norm("patch_embed.norm", "patch_encoder/norm"),
    *tables.torch_norm("norm_pre", "pre_norm"),
    *tables.torch_norm(BLOCK + "norm{n}", "block_{i}/norm_{n}"),
    *tables.torch_linear(BLOCK + "attn.qkv", "block_{i}/attention/[query|key|value]"),
    *tables.torch_norm(BLOCK + "attn.q_norm", "block_{i}/attention/query_norm"),
    *tables.torch_norm(BLOCK + "attn.k_norm", "block_{i}/attention/key_norm"),
    *tables.torch_norm(BLOCK + "attn.norm", "block_{i}/attention/norm"),
    *tables.torch_linear(BLOCK + "attn.proj", "block_{i}/attention/out"),
    *tables.torch_linear(BLOCK + "mlp.fc{n}", "block_{i}/mlp/dense_{n}"),
    *tables.torch_linear(BLOCK + "mlp.fc1_g", "block_{i}/mlp/gate"),
    *tables.torch_linear(BLOCK + "mlp.fc1_x", "block_{i}/mlp/dense_1"),
    *tables.torch_norm(BLOCK + "mlp.norm", "block_{i}/mlp/norm"),
    (BLOCK + "ls{n}.gamma", "block_{i}/layer_scale_{n}/gamma", SAME),
    ("rope.freqs.{i}", "rotary_{i}/frequencies", SAME),
    *tables.torch_norm("[|fc_]norm", "norm"),
    ("attn_pool.latent", "pool/probe", SAME),
    *tables.torch_linear("attn_pool.q", "pool/attention/query"),
    *tables.torch_linear("attn_pool.kv", "pool/attention/[key|value]"),
    *tables.torch_linear("attn_pool.proj", "pool/attention/out"),
    *tables.torch_norm("attn_pool.norm", "pool/norm"),
    *tables.torch_linear("attn_pool.mlp.fc{n}", "pool/mlp/dense_{n}"),
    *tables.torch_linear("head", "head"),
    *tables.torch_linear("head_dist", "head_distillation"),
    # A stem without stages is the backbone itself.
    *tables.torch_resnet(
        BACKBONE + "[stem.|]conv", BACKBONE + "[stem.|]norm", BACKBONE + "stages.{s}.blocks.{u}"
    ),
)
PARALLEL = (  # of the blocks of one branch
    *tables.torch_norm(BLOCK + "in_norm", "block_{i}/norm_1"),
    *tables.torch_linear(
        BLOCK + "in_proj",
        "block_{i}/[mlp/dense_1|attention/query|attention/key|attention/value]",
    ),
    *tables.torch_norm(BLOCK + "q_norm", "block_{i}/attention/query_norm"),
    *tables.torch_norm(BLOCK + "k_norm", "block_{i}/attention/key_norm"),
    *tables.torch_linear(BLOCK + "attn_out_proj", "block_{i}/attention/out"),
    *tables.torch_linear(BLOCK + "mlp_out_proj", "block_{i}/mlp/dense_2"),
    (BLOCK + "ls.gamma", "block_{i}/layer_scale_1/gamma", SAME),
)
EVA = (  # of the classes Eva and Beit
    *tables.torch_linear(BLOCK + "attn.q_proj", "block_{i}/attention/query"),
    *tables.torch_linear(BLOCK + "attn.k_proj", "block_{i}/attention/key"),
    *tables.torch_linear(BLOCK + "attn.v_proj", "block_{i}/attention/value"),
    (BLOCK + "gamma_{n}", "block_{i}/layer_scale_{n}/gamma", SAME),
)
BEIT = (
    (BLOCK + "attn.q_bias", "block_{i}/attention/query/bias", SAME),
    (BLOCK + "attn.v_bias", "block_{i}/attention/value/bias", SAME),
    (BLOCK + "gamma_{n}", "block_{i}/layer_scale_{n}/gamma", SAME),
    (BLOCK + "attn.relative_position_bias_table", "position_{i}/table", SAME),
    ("rel_pos_bias.relative_position_bias_table", "position/table", SAME),
)
NORMS = ("", "layernorm", "layernormfp32", "rmsnorm", "rmsnormfp32")
COMMON = {
    "img_size": "image_size",
    "patch_size": "patch_size",
    "in_chans": "channels",
    "embed_dim": "width",
    "depth": "depth",
    "num_heads": "num_heads",
    "qkv_bias": "qkv_bias",
    "global_pool": ("pool", POOLS),
}
FAMILY = Timm(
    name="timm",
    sign=r"patch_embed\.proj\.weight$|blocks\.",
    table=Table(*ROWS, *PARALLEL, *EVA, *BEIT),
    ignored=("mask_token", r".*\.relative_position_index"),
    unsupported={
        r".*\.mlp\.(w12|w3)\..*": "a gated MLP under names that are not timm's",
        r".*\.lambda_\w+|.*\.sub_norm\..*": "differential attention",
        r".*\.attn\.gate\..*": "a gate after its attention",
        r".*\.(attns|ffns)\..*": "several attentions in one block",
    },
    optional=("norm/gamma",),
    parts=timm_parts.PARTS,
    needs_config=True,
    joined_heads=True,
    defaults={"interpolation": "bicubic", "gelu": "erf", "epsilon": 1e-6, "stem_numerics": "timm"},
    config={
        **COMMON,
        "class_token": "class_token",
        "reg_tokens": "registers",
        "epsilon": "epsilon",
        "pos_embed": ("position", {"learn": None, "none": "none", "": None}),
        "act_layer": ("gelu", GELUS),
        "block_fn": (None, dict.fromkeys(("", "Block", "ResPostBlock", "ParallelScalingBlock"))),
        "norm_layer": (None, dict.fromkeys(NORMS)),
        "embed_norm_layer": (None, dict.fromkeys(NORMS)),
    },
    preprocessing=TIMM,
    holds={
        "pool": tuple(POOLS.values()),
        "representation_size": (None,),
        "block": ("pre_norm", "post_norm"),
        "biases": ("all", "qkv", "none"),
        **dict.fromkeys(("norm", "mlp", "activation", "layer_scale", "qk_norm", "mlp_norm"), ANY),
        **dict.fromkeys(("attention_norm", "patch_norm", "pre_norm", "patch_bias"), ANY),
        **dict.fromkeys(("final_norm", "distillation", "pool_patches"), ANY),
    },
    computes={"stem_numerics": ("timm",)},
    arguments=timm_arguments.VIT,
)
# What the same library writes for models that its class VisionTransformer has no place for.
PARALLEL_FAMILY = dataclasses.replace(
    FAMILY,
    table=Table(*PARALLEL, *ROWS),
    holds={**FAMILY.holds, "block": ("parallel",), "mlp": ("mlp",), "biases": ("all",)}
    | {"mlp_norm": (None,), "attention_norm": (None,), "distillation": (False,)},
    arguments=timm_arguments.PARALLEL,
)
EVA_FAMILY = dataclasses.replace(
    FAMILY,
    table=Table(*EVA, *ROWS),
    config={**COMMON, "class_token": "class_token", "num_reg_tokens": "registers"},
    holds={**FAMILY.holds, "biases": ("all", "no_key"), "rotary": ANY, "pool_heads": ANY}
    | {"pool_mlp_dim": ANY, "pool_patches": (False,), "activation": (None,), "stem": (None,)}
    | {"patch_norm": (None,), "distillation": (False,)},
    computes={"gelu": ("erf",)},
    arguments=timm_arguments.EVA,
)
BEIT_FAMILY = dataclasses.replace(
    FAMILY,
    table=Table(*BEIT, *ROWS),
    config=COMMON,
    holds={
        "pool": ("token", "mean", None),
        "representation_size": (None,),
        "class_token": (True,),
        "registers": (0,),
        "position": ("relative_2d", "learned_1d", "none"),
        "position_at": ANY,
        "biases": ("no_key", "all"),
        "stem": (None,),
        **dict.fromkeys(("mlp", "layer_scale", "mlp_norm"), ANY),
    },
    computes={"gelu": ("erf",)},
    arguments=timm_arguments.BEIT,
)


WRITERS = (FAMILY, PARALLEL_FAMILY, EVA_FAMILY, BEIT_FAMILY)


def hub_config(model, architecture, features, arguments):
    """`config.json` as timm's hub has it."""
    return {
        "architecture": architecture,
        "num_classes": model.num_classes,
        "num_features": features,
        "model_args": arguments,
        "pretrained_cfg": pretrained_cfg(model),
        **({"label_names": list(model.class_names)} if model.class_names else {}),
        **config_of(model),
    }


def _hybrid_of(variant):
    """timm's name of a model with this stem, or `None`."""
    return HYBRIDS.get((variant.stem, variant.patch_size)) if variant.stem_width == 1 else None


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
