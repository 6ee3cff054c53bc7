"""Folders of Hugging Face's CLIP, MetaCLIP 2, SigLIP and SigLIP 2: the tower of images.

The towers come alone (`CLIPVisionModel`), with a projection, with a classifier, or beside a tower
of texts, which is left aside together with the temperature of the loss. What a `config.json` does
not say has the value that its class gives it. A classifier stands on the mean of the patches: in
CLIP on that of the last block, in SigLIP on that of the last norm, and their poolings are not used.
"""

import dataclasses

import numpy as np

from keras_vit.weights import tables
from keras_vit.weights.formats import huggingface
from keras_vit.weights.model_arguments import CUSTOM, POSITION
from keras_vit.weights.safety import CheckpointError, unsupported
from keras_vit.weights.tables import CONV, ROWS, SAME, TRANSPOSED, Layout, Table
from keras_vit.weights.writable import ANY

BLOCK = "encoder.layers.{i}."
TOKEN = Layout(1, lambda a: a[None, None], lambda a: a[0, 0])


@dataclasses.dataclass(frozen=True)
class VisionTower(huggingface.HuggingFace):
    """One of these families."""

    stripped: str = r"^vision_model\."
    ignored: tuple = (r"text_(model|projection)\..*", r"logit_(scale|bias)", r".*position_ids")
    model_type: str = "vision_model"
    title: str = "CLIP"
    head_pools: tuple = ("mean",)
    processor = "CLIPImageProcessor"
    heads = 12  # where a config does not name their number

    def flat_config(self, contents):
        """The part of the images, where a config has one for the texts too."""
        config = contents.config
        vision = config.get("vision_config_dict") or config.get("vision_config")
        stated = vision if isinstance(vision, dict) else config
        tower = {"num_attention_heads": self.heads, **stated}
        return {**tower, "architectures": config.get("architectures")} if config else {}

    def complete(self, weights, arguments, contents):
        super().complete(weights, arguments, contents)
        size, sides = arguments.from_config("image_size"), arguments["patch_size"]
        if type(size) is int and max(sides) <= size and any(size % side for side in sides):
            arguments["image_size"] = whole = [size - size % side for side in sides]
            beyond = f"pixels of image_size={size} beyond the last whole patch, at {whole}"
            arguments.ignored.append(beyond)
        self.choose_pooling(weights, arguments)
        if POSITION not in weights.arrays:
            raise unsupported("positions other than a table")

    def choose_pooling(self, weights, arguments):
        """Sets what is pooled, and leaves aside the layers that this pooling does not use."""
        if "pool/probe" in weights.arrays:
            asked = arguments.caller.get("pool", arguments["pool"])
            if is_classifier(weights, arguments) or asked != arguments["pool"]:
                arguments.update(pool="mean", pool_mlp_dim=None)
                weights.leave_out("pool/")
        elif not arguments["num_classes"]:
            arguments.override(CUSTOM, pool=arguments["pool"])

    def obstacles(self, model):
        sides = {"image_size": model.image_size, "patch_size": model.variant.patch_size}
        oblong = {f"{name}={side}": side[0] != side[1] for name, side in sides.items()}
        return super().obstacles(model) | oblong

    def json_files(self, model, suffix="VisionModel", **settings):
        """The config.json of the class with this `suffix`; `settings` are added to it."""
        config = {
            **self.config_for(model),
            "model_type": f"{self.title.lower()}_{self.model_type}",
            **settings,
        }
        if model.num_classes:
            model_type = config.pop("model_type").removesuffix("_vision_model")
            labels = huggingface.labels(model)
            config = {"model_type": model_type, "vision_config": config, **labels}
        return huggingface.json_of(model, self.title, config, suffix)


class Clip(VisionTower):
    def choose_pooling(self, weights, arguments):
        if is_classifier(weights, arguments):
            arguments.update(pool="mean", final_norm=False, projection=None)
            weights.leave_out("norm/", "projection/")

    def write(self, model, arrays):
        v = model.variant
        if not v.final_norm:  # the class has one all the same
            ones = np.ones(v.width, "float32")
            arrays = {**arrays, "norm/gamma": ones, "norm/beta": 0 * ones}
        return super().write(model, arrays)

    def obstacles(self, model):
        v, count = model.variant, model.num_classes
        fits = (v.pool, v.final_norm) == (("mean", False) if count else ("token", True))
        what = f"pool={v.pool!r}, final_norm={v.final_norm}, num_classes={count}"
        return super().obstacles(model) | {what: not fits or (count and v.projection)}

    def json_files(self, model):
        projection = model.variant.projection
        suffix = "VisionModelWithProjection" if projection else "VisionModel"
        settings = {} if model.num_classes else {"projection_dim": projection or 512}
        return super().json_files(model, suffix, **settings)


class Siglip(VisionTower):
    processor = "SiglipImageProcessor"

    def arrays_of(self, file):
        patches = [a for name, a in file.items() if name.endswith("patch_embedding.weight")]
        if patches and patches[0].ndim == 2:
            raise CheckpointError(
                "The file is of a model for patches of any grid, SigLIP 2's NaFlex, which takes "
                "other inputs. keras_vit.naflex_from_checkpoint builds it and reads the file."
            )
        return super().arrays_of(file)


# ---- parts


def is_classifier(weights, arguments):
    """Whether the class of a folder pools as those that classify."""
    named = "ForImageClassification" in str(arguments.config.get("architectures"))
    return named or "head/kernel" in weights.arrays


SHARED = (
    ("embeddings.position_embedding.weight", POSITION, ROWS),
    ("visual_projection.weight", "projection/kernel", TRANSPOSED),
)
LAYERS = (
    *SHARED,
    *tables.torch_linear("embeddings.patch_embedding", "patch_encoder/projection", CONV),
    *tables.torch_norm(BLOCK + "layer_norm{n}", "block_{i}/norm_{n}"),
    *tables.torch_attention(BLOCK + "self_attn."),
    *tables.torch_linear(BLOCK + "mlp.fc{n}", "block_{i}/mlp/dense_{n}"),
    *tables.torch_norm("post_layernorm", "norm"),
    *tables.torch_linear("classifier", "head"),
)
DEFAULTS = {
    "interpolation": "bicubic_no_antialias",
    "activation": "gelu_erf",
    "gelu": "erf",
    "epsilon": 1e-5,
}
HOLDS = {**huggingface.HOLDS, **huggingface.PLAIN_END}
CLIP = Clip(
    name="Hugging Face CLIP",
    model_types=("clip", "clip_vision_model", "metaclip_2", "metaclip_2_vision_model"),
    signature=r"(vision_model\.)?embeddings\.class_embedding$",
    table=Table(
        ("embeddings.class_embedding", "patch_encoder/class_token", TOKEN),
        *tables.torch_norm("pre_layrnorm", "pre_norm"),
        *LAYERS,
    ),
    defaults={**DEFAULTS, "activation": "quick_gelu"},
    config=huggingface.SETTINGS,
    can_store={
        **HOLDS,
        "class_token": (True,),
        "qkv_bias": (True,),
        "pre_norm": ("layer_norm",),
        "patch_bias": (False,),
        "final_norm": ANY,
        "projection": ANY,
    },
    head_pools=("mean", "token"),  # of which `obstacles` says more
)
SIGLIP = Siglip(
    name="Hugging Face SigLIP",
    model_types=("siglip", "siglip_vision_model"),
    arrays_by_key={"vision_use_head": "pool/probe"},
    signature=r"(vision_model\.)?embeddings\.patch_embedding\.bias$",
    table=Table(
        ("head.probe", "pool/probe", SAME),
        *tables.torch_in_proj("head.attention.in_proj", "pool/attention/[query|key|value]"),
        *tables.torch_linear("head.attention.out_proj", "pool/attention/out"),
        *tables.torch_norm("head.layernorm", "pool/norm"),
        *tables.torch_linear("head.mlp.fc{n}", "pool/mlp/dense_{n}"),
        *LAYERS,
    ),
    defaults={**DEFAULTS, "activation": "gelu_tanh", "gelu": "tanh", "epsilon": 1e-6},
    config=huggingface.SETTINGS,
    can_store={
        **HOLDS,
        "class_token": (False,),
        "pool": ("map", "mean", None),
        "qkv_bias": (True,),
    },
    title="Siglip",
)
