"""Folders of Hugging Face's Beit and Data2VecVision, of its DeiT with two tokens, and of its IJepa.

The pooler of BEiT is the mean of the patches and a norm after it, or the class token of normalised
tokens. A DeiT has a distillation token, which only `DeiTForImageClassificationWithTeacher` reads:
for the others it is a register.
"""

import dataclasses
import re

from keras_vit.weights import tables
from keras_vit.weights.formats import huggingface
from keras_vit.weights.model_arguments import POSITION, relative_table
from keras_vit.weights.safety import of_other_model, unsupported
from keras_vit.weights.tables import SAME, Table
from keras_vit.weights.writable import ANY

BLOCK = huggingface.BLOCK
BIASES = "relative_position_bias_table"
AT_EVERY_LAYER, SHARED = "position_{i}/table", "position/table"
REGISTERS, DISTILLATION = "patch_encoder/registers", "patch_encoder/distillation_token"


class Beit(huggingface.HuggingFace):
    """Beit and Data2VecVision, of which Beit is written."""

    def recognises(self, arrays):
        """By the names of the family, or by queries with a bias beside keys without one."""
        biases = [rf".*attention\.(attention\.{n}|{n[0]}_proj)\.bias$" for n in ("query", "key")]
        signatures = (huggingface.FAMILY.signature, *biases)
        patches, query, key = (any(re.match(s, name) for name in arrays) for s in signatures)
        return super().recognises(arrays) or (patches and query and not key)

    def complete(self, weights, arguments, contents):
        arrays, stored = weights.arrays, weights.names_in_file
        config, configured = arguments.config, arguments.from_config("pool")
        super().complete(weights, arguments, contents)
        names = (POSITION, "position/table", "position_0/table")
        positions = [stored[name] for name in names if name in arrays]
        if positions[1:]:
            raise unsupported(f"several kinds of positions, {positions},")
        after = "pooler.layernorm" in stored.get("norm/gamma", "")
        # Masked pre-training has a norm of its own, whatever the config says of pooling.
        pools = "norm/gamma" in arrays and not any(n.startswith("lm_head") for n in contents.arrays)
        if pools and configured and (configured == "mean") != after:
            has = f"the file has {stored['norm/gamma']!r}"
            raise of_other_model(config, f"use_mean_pooling={configured == 'mean'}, and {has}")
        arguments["norm_after_pool"] = after
        if after:
            arguments["pool"] = "mean"
            if arguments.caller.get("pool", "mean") not in ("mean", "token"):
                # Without its pooling the model has no last norm.
                arguments["norm_after_pool"], arguments["final_norm"] = False, False
                weights.leave_out("norm/")
        if relative_table(arrays) is not None:
            arguments["interpolation"] = "bilinear"
        huggingface.to_the_grid(arrays, arguments)

    def rows_for(self, v):
        return tables.torch_norm("pooler.layernorm", "norm") if v.norm_after_pool else ()

    def config_for(self, model):
        v = model.variant
        return {
            **super().config_for(model),
            "use_mean_pooling": v.norm_after_pool,
            "layer_scale_init_value": v.layer_scale or 0.0,
            "use_absolute_position_embeddings": v.position in huggingface.TABLES,
            "drop_path_rate": 0.0,
        }

    def obstacles(self, model):
        v = model.variant
        at_input = v.position not in huggingface.TABLES or v.position_at == "input"
        return super().obstacles(model) | {
            **huggingface.not_square(model),
            f"position_at={v.position_at!r}": not at_input,
            f"qkv_bias={v.qkv_bias}": not v.qkv_bias,
            f"pool={v.pool!r} without norm_after_pool": (v.pool == "mean") != v.norm_after_pool,
        }


class Deit(huggingface.HuggingFace):
    def complete(self, weights, arguments, contents):
        if "head_distillation/kernel" not in weights.arrays:
            for side in (weights.arrays, weights.names_in_file):
                side[REGISTERS] = side.pop(DISTILLATION)
            arguments["distillation"], arguments["registers"] = False, 1
        super().complete(weights, arguments, contents)

    def rows_for(self, v):
        head = "cls_classifier" if v.distillation else "classifier"
        token = ("embeddings.distillation_token", REGISTERS, SAME)
        return [token, *tables.torch_linear(head, "head")]

    def json_files(self, model):
        files = super().json_files(model)
        if model.variant.distillation:
            files["config.json"]["architectures"] = ["DeiTForImageClassificationWithTeacher"]
        return files

    def obstacles(self, model):
        v = model.variant
        tokens = f"registers={v.registers}, distillation={v.distillation}"
        return super().obstacles(model) | {
            tokens: v.registers + v.distillation != 1,
            "distillation=True without heads": v.distillation and not model.num_classes,
        }


BEIT = Beit(
    name="Hugging Face Beit",
    signature=r"(beit|data2vec_vision)\.|(.*\.)?((encoder|layers|shared_position_bias)\.(.*\.)?"
    r"(lambda_1|relative_position_bias_table)|pooler\.layernorm\.weight)$",
    stripped=r"^(beit|data2vec_vision)\.",
    table=Table(
        *huggingface.EMBEDDINGS,
        *huggingface.LAYERS,
        (BLOCK + "lambda_{n}", "block_{i}/layer_scale_{n}/gamma", SAME),
        (BLOCK + "[attention.attention.|]relative_position_bias." + BIASES, AT_EVERY_LAYER, SAME),
        ("[encoder.relative|shared]_position_bias." + BIASES, SHARED, SAME),
        *tables.torch_norm("[layernorm|pooler.layernorm]", "norm"),
        *tables.torch_linear("classifier", "head"),
    ),
    ignored=(r"embeddings\.mask_token", r"lm_head\..*", r".*relative_position_index"),
    unsupported={r"(decode_head|auxiliary_head|fpn\d?)\..*": "the head of a model that segments"},
    optional=("norm/gamma",),
    defaults={**huggingface.FAMILY.defaults, "position": "none"},
    config={
        **huggingface.SETTINGS,
        "use_mean_pooling": ("pool", {True: "mean", False: "token"}),
        "layer_scale_init_value": "layer_scale",
    },
    can_store={
        **huggingface.HOLDS,
        "class_token": (True,),
        "representation_size": (None,),
        "position": (*huggingface.TABLES, "relative_2d", "none"),
        "position_at": ("input", "every_layer", "shared"),
        "pool": ("token", "mean", None),
        "biases": ("no_key",),
        "layer_scale": ANY,
    },
    model_types=("beit", "data2vec-vision"),
    arrays_by_key={
        "layer_scale_init_value": "block_0/layer_scale_1/gamma",
        "use_relative_position_bias": "position_0/table",
        "use_shared_relative_position_bias": SHARED,
        "use_absolute_position_embeddings": POSITION,
    },
    model_type="beit",
    title="Beit",
    head_pools=("token", "mean"),
)
DEIT = Deit.with_fields_of(
    huggingface.FAMILY,
    name="Hugging Face DeiT",
    signature=r"(.*\.)?embeddings\.distillation_token$",
    table=Table(
        ("embeddings.distillation_token", DISTILLATION, SAME),
        *tables.torch_linear("[classifier|cls_classifier]", "head"),
        *tables.torch_linear("distillation_classifier", "head_distillation"),
        *huggingface.EMBEDDINGS,
        *huggingface.LAYERS,
        *tables.torch_norm("layernorm", "norm"),
        *tables.torch_linear("pooler.dense", "pre_logits"),
    ),
    can_store={**huggingface.FAMILY.can_store, "registers": (0, 1), "distillation": ANY},
    model_types=("deit",),
    model_type="deit",
    title="DeiT",
)
# Its files have the names of ViT's, which reads them.
IJEPA = dataclasses.replace(
    huggingface.FAMILY,
    name="Hugging Face IJepa",
    signature=r"(?!)",
    model_type="ijepa",
    title="IJepa",
    head_pools=("mean",),
    can_store={
        **huggingface.HOLDS,
        **huggingface.PLAIN_END,
        "class_token": (False,),
        "pool": ("mean", None),
    },
)
# SigLIP may be all else, but has the other GELU; what it cannot hold, IJEPA itself may.
IJEPA_ERF = dataclasses.replace(IJEPA, can_store={**IJEPA.can_store, "gelu": ("erf",)})
FAMILIES = (BEIT, DEIT)
WRITERS = (BEIT, DEIT, IJEPA_ERF)
