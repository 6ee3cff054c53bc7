"""Folders of Hugging Face's `ViTForImageClassification` and `ViTModel`.

`config.json` says everything about the architecture. The norm's epsilon is 1e-12 there unless it
says otherwise, and GELU is exact. The pooler of a `ViTModel` is the pre-logits layer (linear, then
tanh, on the class token).
"""

import re

from keras_vit.weights.assumptions import add_image_size, add_position, choose_heads, gelu_of
from keras_vit.weights.canonical import (
    CONFIG,
    POSITION,
    Canonical,
    architecture_of,
    channels_of,
    join_heads,
    split_heads,
)
from keras_vit.weights.huggingface_config import (
    check_config,
    class_names_of,
    config,
    preprocessing_of,
    processor,
)
from keras_vit.weights.tables import (
    PARTS,
    SAME,
    TORCH_PATCHES,
    Table,
    simplified,
    torch_linear,
    torch_norm,
    torch_resnet,
)
from keras_vit.weights.timm import refuse

FAMILY = "Hugging Face transformers"
# Files name the blocks `encoder.layer.0`; the modules of transformers 5 are called `layers.0`.
BLOCK = "[encoder.layer|layers].{i}."
PATCH_EMBEDDINGS = "embeddings.patch_embeddings."
BACKBONE = PATCH_EMBEDDINGS + "backbone.bit."
TABLE = Table(
    ("embeddings.cls_token", "patch_encoder/class_token", SAME),
    ("embeddings.position_embeddings", POSITION, SAME),
    *torch_linear(PATCH_EMBEDDINGS + "projection", "patch_encoder/projection", TORCH_PATCHES),
    *torch_norm(BLOCK + "layernorm_before", "block_{i}/norm_1"),
    *(
        row
        for part in PARTS[:3]
        for row in torch_linear(
            BLOCK + f"attention.[attention.{part}|{part[0]}_proj]", "block_{i}/attention/" + part
        )
    ),
    *torch_linear(BLOCK + "attention.[output.dense|o_proj]", "block_{i}/attention/out"),
    *torch_norm(BLOCK + "layernorm_after", "block_{i}/norm_2"),
    *torch_linear(BLOCK + "[intermediate.dense|mlp.fc1]", "block_{i}/mlp/dense_1"),
    *torch_linear(BLOCK + "[output.dense|mlp.fc2]", "block_{i}/mlp/dense_2"),
    *torch_norm("layernorm", "norm"),
    *torch_linear("pooler.dense", "pre_logits"),
    *torch_linear("classifier", "head"),
    *torch_resnet(
        BACKBONE + "embedder.convolution",
        BACKBONE + "embedder.norm",
        BACKBONE + "encoder.stages.{s}.layers.{u}",
    ),
)
UNSUPPORTED = {
    r"embeddings\.distillation_token|(distillation|cls)_classifier\..*": "a distillation token",
    r".*\.layer_scale.*": "the LayerScale of DINOv2, whose Hugging Face names are not read",
}
IGNORED = (r"embeddings\.(mask_token|position_ids)", r"decoder\..*")
ACTIVATIONS = {
    **dict.fromkeys(("gelu", "gelu_python"), "erf"),
    **dict.fromkeys(
        ("gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast", "gelu_accurate"), "tanh"
    ),
}

__all__ = ["config", "impossible", "obstacles", "processor", "read", "recognises", "write"]


def recognises(arrays):
    """Whether these are the names of this family."""
    return any(name.endswith("embeddings.patch_embeddings.projection.weight") for name in arrays)


def read(contents, hints):
    """The `Canonical` of a folder; arguments and errors as in `google.read`."""
    tower, names = simplified(contents.arrays, r"^(vit|deit)\.")
    refuse(tower, UNSUPPORTED)
    arrays, origin, ignored = TABLE.read(tower, FAMILY, IGNORED)
    found, said = architecture_of(arrays, FAMILY), contents.config
    check_config(said, found, contents.path)
    _, patch_channels, *patch_size = tower[PATCH_EMBEDDINGS + "projection.weight"].shape
    found.update(
        patch_size=tuple(patch_size),
        channels=channels_of(arrays, patch_channels),
        interpolation="bicubic_no_antialias",
        gelu=gelu_of(said.get("hidden_act", "gelu"), ACTIVATIONS),
        epsilon=said.get("layer_norm_eps", 1e-12),
        **({"stem_numerics": "timm"} if "stem" in found else {}),
    )
    silent = "its config.json has no {}" if said else "it has no config.json"
    assumed = {
        field: CONFIG if key in said else f"the family's, as {silent.format(key)}"
        for field, key in (("gelu", "hidden_act"), ("epsilon", "layer_norm_eps"))
    }
    heads, source = choose_heads(said.get("num_attention_heads"), hints, found)
    found["num_heads"], assumed["num_heads"] = heads, source
    split_heads(arrays, heads)
    # The pooler reads the class token: a caller who asks for another pooling wants the tokens.
    if hints.get("pool", "token") != "token" and "head/kernel" not in arrays:
        if not hints.get("representation_size"):
            found["representation_size"] = None
    add_position(found, assumed, arrays, hints)
    add_image_size(found, assumed, arrays, hints, said.get("image_size"))
    preprocessing, unsaid = preprocessing_of(contents.processor)
    return Canonical(
        FAMILY,
        arrays,
        {target: names[where] for target, where in origin.items()},
        found,
        assumed,
        (*unsaid, *(names[name] for name in ignored)),
        preprocessing,
        class_names_of(said, found["num_classes"]),
    )


def write(model, arrays):
    """The arrays of `model.safetensors` from canonical ones."""
    return with_prefix(TABLE.write(join_heads(arrays), model.variant), model, "vit.")


def with_prefix(file, model, prefix):
    """The arrays with the name of the inner model, which a model with a head has."""
    prefix = prefix if model.num_classes else ""
    is_head = re.compile(r"classifier\.")
    return {(n if is_head.match(n) else prefix + n): array for n, array in file.items()}


def impossible(model):
    """What of a model Hugging Face's `ViTModel` has no place for, as texts."""
    v = model.variant
    found = [
        ("representation_size and a head", v.representation_size and model.num_classes),
        ("class_token=False", not v.class_token),
        (f"registers={v.registers}", v.registers),
        (f"stem={v.stem} (transformers 5 has removed ViTHybrid)", v.stem is not None),
        ("position='none'", v.position == "none"),
        (f"pool={v.pool!r} and a head", v.pool != "token" and model.num_classes),
        ("pool='map'", v.pool == "map"),
    ]
    return [text for text, is_so in found if is_so]


def obstacles(v):
    """What of a variant Hugging Face computes otherwise, as texts."""
    return []
