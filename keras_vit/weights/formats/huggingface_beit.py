"""Folders of Hugging Face's Beit and Data2VecVision, of its DeiT with two tokens, and of its IJepa.

The pooler of BEiT is the mean of the patches and a norm after it, or the class token of normalised
tokens. A DeiT has a distillation token, which only `DeiTForImageClassificationWithTeacher` reads:
for the others it is a register.
"""

import dataclasses
import re

from keras_vit.weights import tables
from keras_vit.weights.canonical import POSITION
from keras_vit.weights.evidence import CONFIG
from keras_vit.weights.family import ANY
from keras_vit.weights.files import CheckpointError
from keras_vit.weights.formats import huggingface
from keras_vit.weights.formats.huggingface import (
    BLOCK,
    EMBEDDINGS,
    LAYERS,
    TABLES,
    HuggingFace,
    lacks_key_bias,
    not_square,
    to_the_grid,
)
from keras_vit.weights.resize import resize_offsets
from keras_vit.weights.settle import grid_for, relative_table, shape_of
from keras_vit.weights.tables import SAME, Table

BIASES = "relative_position_bias.relative_position_bias_table"
REGISTERS, DISTILLATION = "patch_encoder/registers", "patch_encoder/distillation_token"


class Beit(HuggingFace):
    """Beit and Data2VecVision, of which Beit is written."""

    def recognises(self, arrays):
        return lacks_key_bias(arrays) or any(re.match(self.sign, name) for name in arrays)

    def complete(self, canonical, contents):
        found, arrays, origin = canonical.evidence, canonical.arrays, canonical.origin
        configured = found["pool"] if found.source_of("pool") == CONFIG else None
        super().complete(canonical, contents)
        kinds = {"position": POSITION, "table": "position/table", "tables": "position_0/table"}
        if sum(name in arrays for name in kinds.values()) > 1:
            raise CheckpointError(
                "The file has several kinds of positions, of which a model here has one: "
                f"{[origin[name] for name in kinds.values() if name in arrays]}."
            )
        found["norm_after_pool"] = "pooler.layernorm" in origin.get("norm/gamma", "")
        # Masked pre-training has a norm of its own, whatever the config says of pooling.
        pools = "norm/gamma" in arrays and not any(n.startswith("lm_head") for n in contents.arrays)
        if pools and configured and (configured == "mean") != found["norm_after_pool"]:
            raise CheckpointError(
                "The config.json is of another model; it says use_mean_pooling="
                f"{configured == 'mean'}, and the file has {origin['norm/gamma']!r}."
            )
        if found["norm_after_pool"]:
            found["pool"] = "mean"
        if found["norm_after_pool"] and found.caller.get("pool", "mean") not in ("mean", "token"):
            # Without its pooling the model has no last norm.
            found["norm_after_pool"], found["final_norm"] = False, False
            canonical.leave_out("norm/")
        if relative_table(arrays) is not None:
            found["interpolation"] = "bilinear"
            self._swap_sides(canonical)
        to_the_grid(canonical)

    @staticmethod
    def _swap_sides(canonical):
        """Takes tables of rows by columns for those of columns by rows, as transformers does."""
        evidence, shape = canonical.evidence, shape_of(canonical.evidence)
        size = evidence.from_config("image_size")
        grid = size and grid_for(size, shape)
        if not grid or grid[0] == grid[1] or evidence.caller.get("file_image_size"):
            return
        if evidence.caller.get("image_size"):  # to which they are resized at once
            evidence["image_size"] = tuple(
                n * stride for n, stride in zip(grid[::-1], shape.stride)
            )
            return
        for name in [name for name in canonical.arrays if name.endswith("/table")]:
            table = canonical.arrays[name].astype("float64")
            canonical.arrays[name] = resize_offsets(table, grid[::-1], grid, "bilinear")

    def write(self, model, arrays):
        file = super().write(model, arrays)
        after = model.variant.norm_after_pool
        rename = lambda n: n.replace("layernorm.", "pooler.layernorm.")  # noqa: E731
        last = ("layernorm.", self.prefix + "layernorm.")
        return {rename(n) if after and n.startswith(last) else n: a for n, a in file.items()}

    def config_for(self, model):
        v = model.variant
        own = {
            "use_mean_pooling": v.norm_after_pool,
            "layer_scale_init_value": v.layer_scale or 0.0,
        }
        own["use_relative_position_bias"] = v.is_relative and v.position_at == "every_layer"
        own["use_shared_relative_position_bias"] = v.is_relative and v.position_at == "shared"
        own["use_absolute_position_embeddings"] = v.position in TABLES
        return {**super().config_for(model), **own, "drop_path_rate": 0.0}

    def impossible(self, model):
        v = model.variant
        own = [f"position_at={v.position_at!r}"] * (
            v.position in TABLES and v.position_at != "input"
        )
        own += [f"qkv_bias={v.qkv_bias}"] * (not v.qkv_bias)
        own += [f"pool={v.pool!r} without norm_after_pool"] * (
            (v.pool == "mean") != v.norm_after_pool
        )
        return super().impossible(model) + own + not_square(model)


class Deit(HuggingFace):
    """DeiT with its distillation token."""

    def complete(self, canonical, contents):
        found, arrays, origin = canonical.evidence, canonical.arrays, canonical.origin
        if "head_distillation/kernel" not in arrays:
            arrays[REGISTERS], origin[REGISTERS] = (
                arrays.pop(DISTILLATION),
                origin.pop(DISTILLATION),
            )
            found["distillation"], found["registers"] = False, 1
        super().complete(canonical, contents)

    def write(self, model, arrays):
        if REGISTERS in arrays:
            arrays = {(DISTILLATION if n == REGISTERS else n): a for n, a in arrays.items()}
        file = super().write(model, arrays)
        if model.variant.distillation:
            file = {
                n.replace("classifier", "cls_classifier") if n.startswith("classifier.") else n: a
                for n, a in file.items()
            }
        return file

    def json_files(self, model):
        files = super().json_files(model)
        if model.variant.distillation:
            files["config.json"]["architectures"] = [f"{self.with_head}WithTeacher"]
        return files

    def impossible(self, model):
        v = model.variant
        tokens = f"registers={v.registers}, distillation={v.distillation}"
        own = [tokens] * (v.registers + int(v.distillation) != 1)
        own += ["distillation=True without heads"] * (v.distillation and not model.num_classes)
        return super().impossible(model) + own


VIT = huggingface.FAMILY
BEIT = Beit(
    name="Hugging Face Beit",
    sign=r"(beit|data2vec_vision)\.|(.*\.)?((encoder|layers|shared_position_bias)\.(.*\.)?"
    r"(lambda_1|relative_position_bias_table)|pooler\.layernorm\.weight)$",
    stripped=r"^(beit|data2vec_vision)\.",
    table=Table(
        *EMBEDDINGS,
        *LAYERS,
        (BLOCK + "lambda_{n}", "block_{i}/layer_scale_{n}/gamma", SAME),
        (BLOCK + f"[attention.attention.{BIASES}|{BIASES}]", "position_{i}/table", SAME),
        (
            f"[encoder.{BIASES}|shared_position_bias.relative_position_bias_table]",
            "position/table",
            SAME,
        ),
        *tables.torch_norm("[layernorm|pooler.layernorm]", "norm"),
        *tables.torch_linear("classifier", "head"),
    ),
    ignored=(r"embeddings\.mask_token", r"lm_head\..*", r".*relative_position_index"),
    unsupported={r"(decode_head|auxiliary_head|fpn\d?)\..*": "the head of a model that segments"},
    optional=("norm/gamma",),
    joined_heads=True,
    needs_config=True,
    defaults={**VIT.defaults, "position": "none"},
    config={
        **{k: v for k, v in VIT.config.items() if k != "qkv_bias"},
        "use_mean_pooling": ("pool", {True: "mean", False: "token"}),
        "layer_scale_init_value": "layer_scale",
    },
    holds={
        **{"class_token": (True,), "registers": (0,), "representation_size": (None,)},
        **{
            "position": (*TABLES, "relative_2d", "none"),
            "position_at": ("input", "every_layer", "shared"),
        },
        **{"pool": ("token", "mean", None), "biases": ("no_key",), "activation": ANY},
        **{"layer_scale": ANY},
    },
    model_types=("beit", "data2vec-vision"),
    parts={
        "layer_scale_init_value": "block_0/layer_scale_1/gamma",
        "use_relative_position_bias": "position_0/table",
        "use_shared_relative_position_bias": "position/table",
        "use_absolute_position_embeddings": POSITION,
    },
    model_type="beit",
    with_head="BeitForImageClassification",
    without_head="BeitModel",
    prefix="beit.",
    head_pools=("token", "mean"),
)
DEIT = Deit(
    **{
        **{field.name: getattr(VIT, field.name) for field in dataclasses.fields(VIT)},
        **{"name": "Hugging Face DeiT", "model_type": "deit", "prefix": "deit."},
        "model_types": ("deit",),
        **{"with_head": "DeiTForImageClassification", "without_head": "DeiTModel"},
        "sign": r"(.*\.)?embeddings\.distillation_token$",
        "unlike": r"(?!)",
        "table": Table(
            ("embeddings.distillation_token", DISTILLATION, SAME),
            *tables.torch_linear("[classifier|cls_classifier]", "head"),
            *tables.torch_linear("distillation_classifier", "head_distillation"),
            *EMBEDDINGS,
            *LAYERS,
            *tables.torch_norm("layernorm", "norm"),
            *tables.torch_linear("pooler.dense", "pre_logits"),
        ),
        "holds": {**VIT.holds, "registers": (0, 1), "distillation": ANY},
    }
)
# Its files have the names of ViT's, which reads them.
IJEPA = dataclasses.replace(
    VIT,
    **{"name": "Hugging Face IJepa", "model_type": "ijepa", "prefix": "ijepa.", "sign": r"(?!)"},
    **{"with_head": "IJepaForImageClassification", "without_head": "IJepaModel"},
    head_pools=("mean",),
    holds={
        **VIT.holds,
        **{"class_token": (False,), "pool": ("mean", None), "representation_size": (None,)},
        "norm_after_pool": (False,),
    },
)
# SigLIP may be all else, but has the other GELU; what it cannot hold, IJEPA itself may.
IJEPA_ERF = dataclasses.replace(IJEPA, holds={**IJEPA.holds, "gelu": ("erf",)})
FAMILIES = (BEIT, DEIT)
WRITERS = (BEIT, DEIT, IJEPA_ERF)
