"""Folders of Hugging Face's `ViTForImageClassification` and `ViTModel`, and their JSON files.

`config.json` says everything about the architecture. The norm's epsilon is 1e-12 there unless it
says otherwise, and GELU is exact. The pooler of a `ViTModel` is the pre-logits layer (linear, then
tanh, on the class token).
"""

import dataclasses
import math
import re

import numpy as np

from keras_vit.layers.resample import resize_grid
from keras_vit.models.resize_weights import resize_offsets
from keras_vit.weights import tables
from keras_vit.weights.huggingface_images import config_of, preprocessing_of, processor_of
from keras_vit.weights.model_arguments import POSITION
from keras_vit.weights.safety import unsupported
from keras_vit.weights.tables import CONV, SAME, Table
from keras_vit.weights.writable import ANY, WritableFamily

# Files name the blocks `encoder.layer.0`; the modules of transformers 5 are called `layers.0`.
BLOCK = "[encoder.layer|layers].{i}."
PATCH_EMBEDDINGS = "embeddings.patch_embeddings."
BACKBONE = PATCH_EMBEDDINGS + "backbone.bit."
TANH = ("gelu_pytorch_tanh", "gelu_new", "gelu_python_tanh", "gelu_fast", "gelu_accurate")
ACTIVATIONS = {  # names in transformers -> `Extensions.activation`
    **dict.fromkeys(("gelu", "gelu_python"), "gelu_erf"),
    **dict.fromkeys(TANH, "gelu_tanh"),
    "quick_gelu": "quick_gelu",
    **dict.fromkeys(("silu", "swish"), "silu"),
}
KEYS = {  # of every config.json -> arguments of the model
    "hidden_size": "width",
    "intermediate_size": "mlp_dim",
    "num_hidden_layers": "depth",
    "num_attention_heads": "num_heads",
    "num_channels": "channels",
    "image_size": "image_size",
    "patch_size": "patch_size",
    "hidden_act": ("activation", ACTIVATIONS),
}
SETTINGS = {**KEYS, "layer_norm_eps": "epsilon"}
TABLES = ("learned_1d", "learned_2d", "sincos_2d")  # positions that are a vector per token
HOLDS = {"registers": (0,), "position": TABLES, "activation": ANY}  # of most of these classes
PLAIN_END = {"representation_size": (None,), "norm_after_pool": (False,)}  # after the last block
FLAT = ("class_token", "learned_positions")  # keys that `flat_config` adds, and no file has
HEADS = r"((cls_|distillation_)?classifier|visual_projection)\."  # beside the inner model
EMBEDDINGS = (
    ("embeddings.cls_token", "patch_encoder/class_token", SAME),
    ("embeddings.position_embeddings", POSITION, SAME),
    *tables.torch_linear(PATCH_EMBEDDINGS + "projection", "patch_encoder/projection", CONV),
)
QKV = "[attention.query|q_proj] [attention.key|k_proj] [attention.value|v_proj]"
ATTENTION = tables.torch_attention(BLOCK + "attention.", f"{QKV} [output.dense|o_proj]")
LAYERS = (
    *tables.torch_norm(BLOCK + "layernorm_before", "block_{i}/norm_1"),
    *ATTENTION,
    *tables.torch_norm(BLOCK + "layernorm_after", "block_{i}/norm_2"),
    *tables.torch_mlp(BLOCK, "[intermediate.dense|mlp.fc1] [output.dense|mlp.fc2]"),
)


@dataclasses.dataclass(frozen=True)
class HuggingFace(WritableFamily):
    """Folders of Hugging Face transformers; the defaults are those of ViT."""

    joined_heads: bool = True
    needs_config: bool = True
    ignored: tuple = (r"embeddings\.mask_token",)
    model_type: str = "vit"  # as it is written; the inner model of a larger one has this name
    title: str = "ViT"  # what the names of its classes begin with
    head_pools: tuple = ("token",)  # what the head sees; empty where no class has a head
    has_pooler: bool = False
    processor = ""  # whose defaults count in a folder that has none

    def flat_config(self, contents):
        """The config, and what the type of the model says of its class token; none of timm's."""
        if "architecture" in contents.config:
            return {}
        model_type = contents.config.get("model_type")
        token = {"class_token": model_type == "vit"} if model_type in ("vit", "ijepa") else {}
        return {**contents.config, **token}

    def complete(self, weights, arguments, contents):
        config = arguments.config
        if arguments["representation_size"]:
            if config.get("pooler_act", "tanh") != "tanh":
                raise unsupported(f"a pooler with pooler_act={config['pooler_act']!r}, not 'tanh'")
            # The pooler reads the first token; who asks for another pooling wants the tokens.
            if not arguments["class_token"]:
                arguments["pool"] = "first"
            wants_tokens = arguments.caller.get("pool", arguments["pool"]) != arguments["pool"]
            is_asked_for = arguments.caller.get("representation_size")
            if wants_tokens and not is_asked_for and "head/kernel" not in weights.arrays:
                arguments["representation_size"] = None

    def images(self, arguments, contents):
        usual = {"image_processor_type": self.processor} if self.processor else {}
        return *preprocessing_of(contents.processor or usual), contents.processor

    def write(self, model, arrays):
        is_inner = model.num_classes or model.variant.projection
        prefix = f"{self.model_type}." if is_inner else ""
        return with_prefix(super().write(model, arrays), prefix)

    def config_for(self, model):
        v, names = model.variant, {variable.path for variable in model.weights}
        parts = {key: part in names for key, part in self.arrays_by_key.items() if key not in FLAT}
        config = {**super().config_for(model), **parts}
        if self.has_pooler:
            config |= {"pooler_act": "tanh", "pooler_output_size": v.representation_size or v.width}
        usual = "silu" if v.mlp == "swiglu" else f"gelu_{v.gelu}"
        return {**config, "hidden_act": tables.key_of(ACTIVATIONS, v.activation or usual)}

    def obstacles(self, model):
        v, count = model.variant, model.num_classes
        head = f"pool={v.pool!r}, num_classes={count}"
        head = head if self.head_pools else f"a head (num_classes={count})"
        removed = " (transformers 5 has removed ViTHybrid)" * (self.model_type == "vit")
        return super().obstacles(model) | {
            f"stem={v.stem}{removed}": v.stem is not None,
            "representation_size and a head": self.has_pooler and v.representation_size and count,
            head: count and v.pool not in self.head_pools,
        }

    def json_files(self, model):
        config = {
            "model_type": self.model_type,
            "attention_probs_dropout_prob": 0.0,
            "hidden_dropout_prob": 0.0,
            "initializer_range": 0.02,
            **self.config_for(model),
            **labels(model),
        }
        return json_of(model, self.title, config)


FAMILY = HuggingFace(
    name="Hugging Face transformers",
    signature=r"(.*\.)?embeddings\.patch_embeddings\.projection\.weight$",
    stripped=r"^(vit|deit|ijepa)\.",
    table=Table(
        *EMBEDDINGS,
        *LAYERS,
        *tables.torch_norm("layernorm", "norm"),
        *tables.torch_linear("pooler.dense", "pre_logits"),
        *tables.torch_linear("classifier", "head"),
        *tables.torch_resnet(
            BACKBONE + "embedder.convolution",
            BACKBONE + "embedder.norm",
            BACKBONE + "encoder.stages.{s}.layers.{u}",
        ),
    ),
    ignored=(r"embeddings\.(mask_token|position_ids)", r"decoder\..*"),
    model_types=("vit", "ijepa"),
    arrays_by_key={"class_token": "patch_encoder/class_token"},
    defaults={
        "interpolation": "bicubic_no_antialias",
        "activation": "gelu_erf",
        "gelu": "erf",
        "epsilon": 1e-12,
        "stem_numerics": "timm",
    },
    config={**SETTINGS, "qkv_bias": "qkv_bias"},
    can_store={**HOLDS, "class_token": (True,), "pool": ("token", "mean", None)},
    has_pooler=True,
)


def json_of(model, title, config, ending="Model"):
    """The JSON files of a folder, whose class is named by a title, and by an ending if headless."""
    name = title + ("ForImageClassification" if model.num_classes else ending)
    config = {"architectures": [name], "torch_dtype": "float32", **config}
    return {"config.json": config, "preprocessor_config.json": processor_of(model)}


def to_the_grid(arrays, arguments):
    """Resamples positions to the grid of the config where it is no square, as transformers does.

    The libraries of some families take every table for that of a square and resample it in each
    call whose image is none, also in one of the size that the config names. Tables of offsets, of
    rows by columns, they take for those of columns by rows.
    """
    size = arguments.from_config("image_size")
    grid = size and arguments.grid(size)
    if not grid or grid[0] == grid[1] or arguments.caller.get("file_image_size"):
        return
    learned, offsets = arguments.learned_tokens, [n for n in arrays if n.endswith("/table")]
    old = grid[::-1] if offsets else (math.isqrt(math.prod(grid)),) * 2
    count = arrays[POSITION].shape[1] - learned if POSITION in arrays else 0
    if not offsets and not count == math.prod(old) == math.prod(grid):
        return
    if arguments.caller.get("image_size"):  # to which they are resampled at once
        arguments["image_size"] = tuple(
            n * stride for n, stride in zip(old, arguments.shape.stride)
        )
        return
    for name in offsets:
        table = arrays[name].astype("float64")
        arrays[name] = resize_offsets(table, old, grid, "bilinear")
    if not offsets:
        first, patches = np.split(arrays[POSITION], [learned], axis=1)
        table = resize_grid(patches[0], old, grid, arguments["interpolation"])
        arrays[POSITION] = np.concatenate([first, table[None]], axis=1)


def not_square(model):
    """Positions that such a library would resample, as `Family.obstacles` has them."""
    rows, columns = model.grid
    resampled = model.variant.position != "none" and rows != columns
    return {f"positions of a grid that is no square, {model.grid}": resampled}


def with_prefix(file, prefix):
    """The arrays with the name of the inner model, where a class has something beside it."""
    return {n if re.match(HEADS, n) else prefix + n: array for n, array in file.items()}


def labels(model):
    """What `config.json` calls the classes, and how their outputs are read."""
    names = model.class_names or [f"LABEL_{i}" for i in range(model.num_classes)]
    both = {}
    if len(names) == 2 and model.num_classes == 1:  # readers count outputs by `id2label`
        names, both = names[1:], {"label_names": list(names)}
    return {
        **both,
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
        **config_of(model),
    }
