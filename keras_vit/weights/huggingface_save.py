"""Canonical arrays -> Hugging Face's names, and the JSON files of a model folder."""

import re

from keras_vit.weights.canonical import POSITION
from keras_vit.weights.timm_save import flat_heads, torch_kind, torch_layout

NAMES = (
    (r"patch_encoder/class_token", "embeddings.cls_token"),
    (POSITION, "embeddings.position_embeddings"),
    (r"patch_encoder/projection/", "embeddings.patch_embeddings.projection."),
    (r"block_(\d+)/norm_1/", r"encoder.layer.\1.layernorm_before."),
    (r"block_(\d+)/norm_2/", r"encoder.layer.\1.layernorm_after."),
    (r"block_(\d+)/attention/out/", r"encoder.layer.\1.attention.output.dense."),
    (
        r"block_(\d+)/attention/(query|key|value)/",
        r"encoder.layer.\1.attention.attention.\2.",
    ),
    (r"block_(\d+)/mlp/dense_1/", r"encoder.layer.\1.intermediate.dense."),
    (r"block_(\d+)/mlp/dense_2/", r"encoder.layer.\1.output.dense."),
    (r"norm/", "layernorm."),
    (r"pre_logits/", "pooler.dense."),
    (r"head/", "classifier."),
)


def write(model, arrays):
    """The arrays of `model.safetensors` from canonical ones."""
    prefix = "vit." if model.num_classes else ""
    file = {}
    for name, array in flat_heads(arrays).items():
        array = torch_layout(name, array, model)
        for pattern, target in NAMES:
            name = re.sub("^" + pattern, target, name)
        file[torch_kind(name if name.startswith("classifier.") else prefix + name)] = array
    return file


def config(model):
    """`config.json`."""
    v = model.variant
    size, patch = (s[0] if s[0] == s[1] else list(s) for s in (model.image_size, v.patch_size))
    return {
        "architectures": ["ViTForImageClassification" if model.num_classes else "ViTModel"],
        "model_type": "vit",
        "attention_probs_dropout_prob": 0.0,
        "hidden_dropout_prob": 0.0,
        "hidden_act": "gelu_pytorch_tanh" if v.gelu == "tanh" else "gelu",
        "hidden_size": v.width,
        "image_size": size,
        "initializer_range": 0.02,
        "intermediate_size": v.mlp_dim,
        "layer_norm_eps": v.epsilon,
        "num_attention_heads": v.num_heads,
        "num_channels": model.channels,
        "num_hidden_layers": v.depth,
        "patch_size": patch,
        "pooler_act": "tanh",
        "pooler_output_size": v.representation_size or v.width,
        "qkv_bias": v.qkv_bias,
        "torch_dtype": "float32",
        **labels(model),
    }


def labels(model):
    """What `config.json` calls the classes."""
    names = model.class_names or [f"LABEL_{i}" for i in range(model.num_classes)]
    return {
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }


def processor(model):
    """`preprocessor_config.json`."""
    facts, (height, width) = model.preprocessing, model.image_size
    size = {"height": height, "width": width}
    squash, crops = facts.resize == "squash", facts.resize != "squash" or facts.crop_fraction < 1
    before = [int(side / facts.crop_fraction) for side in (height, width)]
    resized = dict(zip(size, before)) if squash else {"shortest_edge": min(before)}
    # transformers 4 has a crop in the processors of these models, and in that of ViT none.
    kind = ("DeiT" if squash else "CLIP") if crops else "ViT"
    return {
        "image_processor_type": f"{kind}ImageProcessor",
        "do_resize": True,
        "size": resized,
        **({"do_center_crop": True, "crop_size": size} if crops else {}),
        "resample": 3 if facts.interpolation == "bicubic" else 2,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(facts.mean),
        "image_std": list(facts.std),
    }


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


def obstacles(variant):
    """What of `variant` Hugging Face computes otherwise, as texts."""
    return []
