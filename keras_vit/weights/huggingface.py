"""Names of Hugging Face `ViTForImageClassification` and `ViTModel` folders <-> canonical names.

`config.json` says everything about the architecture. The norm's epsilon is 1e-12 there unless it
says otherwise, and GELU is exact. The pooler of a `ViTModel` is the pre-logits layer (linear, then
tanh, on the class token).
"""

import re

from keras_vit.weights import torch_stem
from keras_vit.weights.canonical import (
    CONFIG,
    POSITION,
    PROJECTION,
    Canonical,
    architecture_of,
    check_position,
    choose_heads,
    gelu_of,
    rename,
)
from keras_vit.weights.files import CheckpointError
from keras_vit.weights.huggingface_images import preprocessing_of
from keras_vit.weights.image_size import add_image_size
from keras_vit.weights.timm import add_heads, flat_patches, refuse, transposed

FAMILY = "Hugging Face transformers"
EMBEDDINGS = r"embeddings\."
# Files name the blocks `encoder.layer.0`; the modules of transformers 5 are called `layers.0`.
BLOCK = r"(?:encoder\.layer|layers)\.(\d+)\."
PARTS = {"q": "query", "k": "key", "v": "value", "o": "out"}

TABLE = (
    (EMBEDDINGS + "cls_token", "patch_encoder/class_token", None),
    (EMBEDDINGS + "position_embeddings", POSITION, None),
    (EMBEDDINGS + r"patch_embeddings\.projection\.weight", PROJECTION, flat_patches),
    (EMBEDDINGS + r"patch_embeddings\.projection\.bias", "patch_encoder/projection/bias", None),
    (BLOCK + r"layernorm_before\.weight", r"block_\1/norm_1/gamma", None),
    (BLOCK + r"layernorm_before\.bias", r"block_\1/norm_1/beta", None),
    (BLOCK + r"layernorm_after\.weight", r"block_\1/norm_2/gamma", None),
    (BLOCK + r"layernorm_after\.bias", r"block_\1/norm_2/beta", None),
    (
        BLOCK + r"attention\.attention\.(query|key|value)\.weight",
        r"block_\1/attention/\2/kernel",
        transposed,
    ),
    (BLOCK + r"attention\.attention\.(query|key|value)\.bias", r"block_\1/attention/\2/bias", None),
    (BLOCK + r"attention\.output\.dense\.weight", r"block_\1/attention/out/kernel", transposed),
    (BLOCK + r"attention\.output\.dense\.bias", r"block_\1/attention/out/bias", None),
    *(
        row
        for short, part in PARTS.items()
        for row in (
            (
                BLOCK + rf"attention\.{short}_proj\.weight",
                rf"block_\1/attention/{part}/kernel",
                transposed,
            ),
            (BLOCK + rf"attention\.{short}_proj\.bias", rf"block_\1/attention/{part}/bias", None),
        )
    ),
    (BLOCK + r"intermediate\.dense\.weight", r"block_\1/mlp/dense_1/kernel", transposed),
    (BLOCK + r"intermediate\.dense\.bias", r"block_\1/mlp/dense_1/bias", None),
    (BLOCK + r"output\.dense\.weight", r"block_\1/mlp/dense_2/kernel", transposed),
    (BLOCK + r"output\.dense\.bias", r"block_\1/mlp/dense_2/bias", None),
    (BLOCK + r"mlp\.fc([12])\.weight", r"block_\1/mlp/dense_\2/kernel", transposed),
    (BLOCK + r"mlp\.fc([12])\.bias", r"block_\1/mlp/dense_\2/bias", None),
    (r"layernorm\.weight", "norm/gamma", None),
    (r"layernorm\.bias", "norm/beta", None),
    (r"pooler\.dense\.weight", "pre_logits/kernel", transposed),
    (r"pooler\.dense\.bias", "pre_logits/bias", None),
    (r"classifier\.weight", "head/kernel", transposed),
    (r"classifier\.bias", "head/bias", None),
    *torch_stem.table(
        EMBEDDINGS + r"patch_embeddings\.backbone\.bit\.embedder\.convolution",
        EMBEDDINGS + r"patch_embeddings\.backbone\.bit\.embedder\.norm",
        EMBEDDINGS + r"patch_embeddings\.backbone\.bit\.encoder\.stages\.(\d+)\.layers\.(\d+)\.",
    ),
)
UNSUPPORTED = {
    r"embeddings\.distillation_token|(distillation|cls)_classifier\..*": "a distillation token",
    r".*\.layer_scale.*": "the LayerScale of DINOv2, whose Hugging Face names are not read",
}
IGNORED = (r"embeddings\.(mask_token|position_ids)", r"decoder\..*")
ACTIVATIONS = {
    "gelu": "erf",
    "gelu_python": "erf",
    "gelu_new": "tanh",
    "gelu_pytorch_tanh": "tanh",
    "gelu_python_tanh": "tanh",
    "gelu_fast": "tanh",
    "gelu_accurate": "tanh",
}


def recognises(arrays):
    """Whether these are the names of this family."""
    return any(name.endswith("embeddings.patch_embeddings.projection.weight") for name in arrays)


def read(contents, hints):
    """The `Canonical` of a folder; arguments and errors as in `google.read`."""
    tower, names = _without_prefix(contents.arrays)
    refuse(tower, UNSUPPORTED)
    arrays, origin, ignored = rename(tower, TABLE, FAMILY, IGNORED)
    check_position(arrays)
    config = _checked(contents.config, arrays, contents.path)
    shapes = architecture_of(arrays, FAMILY)
    _, channels, *patch_size = tower["embeddings.patch_embeddings.projection.weight"].shape
    found = {
        **shapes,
        "patch_size": tuple(patch_size),
        "channels": channels if "stem" not in shapes else arrays["root/conv/kernel"].shape[2],
        "interpolation": "bicubic_no_antialias",
        "gelu": gelu_of(config.get("hidden_act", "gelu"), ACTIVATIONS),
        "epsilon": config.get("layer_norm_eps", 1e-12),
    }
    if "stem" in found:
        found["stem_numerics"] = "timm"
    assumed = {"gelu": _source(config, "hidden_act"), "epsilon": _source(config, "layer_norm_eps")}
    heads, source = choose_heads(config.get("num_attention_heads"), hints, found)
    found["num_heads"], assumed["num_heads"] = heads, source
    add_heads(arrays, found["num_heads"])
    _drop_pooler_without_token(found, arrays, hints)
    add_image_size(found, assumed, arrays, hints, config.get("image_size"))
    preprocessing, unsaid = preprocessing_of(contents.processor)
    return Canonical(
        FAMILY,
        arrays,
        {target: names[where] for target, where in origin.items()},
        found,
        assumed,
        (*unsaid, *(names[name] for name in ignored)),
        preprocessing,
        class_names_of(config, found["num_classes"]),
    )


def _without_prefix(arrays):
    """The arrays without the name of the task's inner model, and their full names."""
    names = {re.sub(r"^(vit|deit)\.", "", name): name for name in arrays}
    if len(names) != len(arrays):
        raise CheckpointError("The file has the same arrays with and without the prefix 'vit.'.")
    return {short: arrays[name] for short, name in names.items()}, names


def _checked(config, arrays, path):
    """`config.json`, after a look at whether it is of this model."""
    if not config:
        return {}
    for key, name, axis in (
        ("hidden_size", PROJECTION, -1),
        ("intermediate_size", "block_0/mlp/dense_1/kernel", -1),
    ):
        if key in config and name in arrays and config[key] != arrays[name].shape[axis]:
            raise CheckpointError(
                f"The config.json of {str(path)!r} is of another model: it says "
                f"{key}={config[key]!r}, the file has {arrays[name].shape[axis]}."
            )
    blocks = len({name.split("/")[0] for name in arrays if name.startswith("block_")})
    if config.get("num_hidden_layers", blocks) != blocks:
        raise CheckpointError(
            f"The config.json of {str(path)!r} says num_hidden_layers="
            f"{config['num_hidden_layers']!r}, the file has {blocks} blocks."
        )
    if "pre_logits/kernel" in arrays and config.get("pooler_act", "tanh") != "tanh":
        raise CheckpointError(
            f"The pooler of {str(path)!r} uses {config['pooler_act']!r}; expected 'tanh', the "
            "activation of the pre-logits layer."
        )
    return config


def _source(config, key):
    """Where a fact of `config.json` is from, which may be missing, or silent about it."""
    if key in config:
        return CONFIG
    return (
        f"the family's, as {f'its config.json has no {key}' if config else 'it has no config.json'}"
    )


def _drop_pooler_without_token(found, arrays, hints):
    """The pooler reads the class token: a caller who asks for another pooling wants the tokens."""
    if hints.get("pool", "token") != "token" and "head/kernel" not in arrays:
        if not hints.get("representation_size"):
            found["representation_size"] = None


def class_names_of(config, num_classes):
    """What `config.json` calls the classes; `None` where it names others, or just numbers them."""
    names = config.get("id2label")
    if not isinstance(names, dict) or len(names) != num_classes:
        return None
    try:
        ordered = tuple(str(names[str(i)]) for i in range(num_classes))
    except KeyError:
        return None
    generic = all(name == f"LABEL_{i}" for i, name in enumerate(ordered))
    return None if generic or not ordered else ordered
