"""Folders of Hugging Face's `ViTForImageClassification` and `ViTModel`, and their JSON files.

`config.json` says everything about the architecture. The norm's epsilon is 1e-12 there unless it
says otherwise, and GELU is exact. The pooler of a `ViTModel` is the pre-logits layer (linear, then
tanh, on the class token). `preprocessor_config.json` says how an image is resized, cropped if the
processor crops, multiplied by `rescale_factor` and normalised.
"""

import math

from keras_vit.preprocessing import CLIP, HUGGING_FACE, Preprocessing
from keras_vit.weights import tables
from keras_vit.weights.canonical import POSITION
from keras_vit.weights.family import Family
from keras_vit.weights.files import CheckpointError
from keras_vit.weights.tables import CONV, PARTS, SAME, Table

# Files name the blocks `encoder.layer.0`; the modules of transformers 5 are called `layers.0`.
BLOCK = "[encoder.layer|layers].{i}."
PATCH_EMBEDDINGS = "embeddings.patch_embeddings."
BACKBONE = PATCH_EMBEDDINGS + "backbone.bit."
TANH = ("gelu_pytorch_tanh", "gelu_new", "gelu_python_tanh", "gelu_fast", "gelu_accurate")
RESAMPLES = {2: "bilinear", 3: "bicubic"}  # as Pillow numbers them
# Processors of other models fill in other values than ViT's where a folder does not say them.
BY_SHORTER_EDGE = ("Bit", "CLIP", "ConvNext")
OTHER_DEFAULTS = {
    "DeiT": {"do_center_crop": True, "size": 256, "crop_size": 224, "resample": 3},
    "Bit": {"do_center_crop": True, "size": 224, "crop_size": 224, "resample": 3},
    "CLIP": {
        "do_center_crop": True,
        "size": 224,
        "crop_size": 224,
        "resample": 3,
        "image_mean": CLIP.mean,
        "image_std": CLIP.std,
    },
    "Siglip": {"resample": 3},
}


class HuggingFace(Family):
    """Folders of Hugging Face transformers."""

    def complete(self, canonical, contents, config, said, hints):
        found = canonical.architecture
        if found["representation_size"] and config.get("pooler_act", "tanh") != "tanh":
            raise CheckpointError(
                f"The pooler uses {config['pooler_act']!r}; expected 'tanh', the activation of "
                "the pre-logits layer."
            )
        # The pooler reads the class token: a caller who asks for another pooling wants the tokens.
        if hints.get("pool", "token") != "token" and "head/kernel" not in canonical.arrays:
            if not hints.get("representation_size"):
                found["representation_size"] = None
        canonical.prepare(*preprocessing_of(contents.processor))
        canonical.class_names = class_names_of(config, found["num_classes"])

    def write(self, model, arrays):
        return with_prefix(super().write(model, arrays), model, "vit.")

    def impossible(self, model):
        v, has_head = model.variant, bool(model.num_classes)
        return [
            *super().impossible(model),
            *[f"stem={v.stem} (transformers 5 has removed ViTHybrid)"] * (v.stem is not None),
            *["representation_size and a head"] * bool(v.representation_size and has_head),
            *[f"pool={v.pool!r} and a head"] * (v.pool != "token" and has_head),
        ]

    def json_files(self, model):
        """`config.json` and `preprocessor_config.json`."""
        v = model.variant
        config = {
            "architectures": ["ViTForImageClassification" if model.num_classes else "ViTModel"],
            "model_type": "vit",
            "attention_probs_dropout_prob": 0.0,
            "hidden_dropout_prob": 0.0,
            "initializer_range": 0.02,
            "pooler_act": "tanh",
            "pooler_output_size": v.representation_size or v.width,
            "torch_dtype": "float32",
            **self.config_for(model),
            **labels(model),
        }
        return {"config.json": config, "preprocessor_config.json": processor_of(model)}


FAMILY = HuggingFace(
    name="Hugging Face transformers",
    sign=r"(.*\.)?embeddings\.patch_embeddings\.projection\.weight$",
    stripped=r"^(vit|deit)\.",
    table=Table(
        ("embeddings.cls_token", "patch_encoder/class_token", SAME),
        ("embeddings.position_embeddings", POSITION, SAME),
        *tables.torch_linear(PATCH_EMBEDDINGS + "projection", "patch_encoder/projection", CONV),
        *tables.torch_norm(BLOCK + "layernorm_before", "block_{i}/norm_1"),
        *(
            row
            for p in PARTS[:3]
            for row in tables.torch_linear(
                BLOCK + f"attention.[attention.{p}|{p[0]}_proj]", "block_{i}/attention/" + p
            )
        ),
        *tables.torch_linear(BLOCK + "attention.[output.dense|o_proj]", "block_{i}/attention/out"),
        *tables.torch_norm(BLOCK + "layernorm_after", "block_{i}/norm_2"),
        *tables.torch_linear(BLOCK + "[intermediate.dense|mlp.fc1]", "block_{i}/mlp/dense_1"),
        *tables.torch_linear(BLOCK + "[output.dense|mlp.fc2]", "block_{i}/mlp/dense_2"),
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
    unsupported={
        r"embeddings\.distillation_token|(distillation|cls)_classifier\..*": "a distillation token",
        r".*\.layer_scale.*": "the LayerScale of DINOv2, whose Hugging Face names are not read",
    },
    joined_heads=True,
    defaults={
        "interpolation": "bicubic_no_antialias",
        "gelu": "erf",
        "epsilon": 1e-12,
        "stem_numerics": "timm",
    },
    needs_config=True,
    config={
        "hidden_size": "width",
        "intermediate_size": "mlp_dim",
        "num_hidden_layers": "depth",
        "num_attention_heads": "num_heads",
        "num_channels": "channels",
        "image_size": "image_size",
        "patch_size": "patch_size",
        "qkv_bias": "qkv_bias",
        "hidden_act": (
            "gelu",
            {"gelu": "erf", "gelu_python": "erf", **dict.fromkeys(TANH, "tanh")},
        ),
        "layer_norm_eps": "epsilon",
    },
    holds={
        "class_token": (True,),
        "registers": (0,),
        "position": ("learned_1d", "learned_2d", "sincos_2d"),
        "pool": ("token", "mean", None),
    },
)


def with_prefix(file, model, prefix):
    """The arrays with the name of the inner model, which a model with a head has."""
    prefix = prefix if model.num_classes else ""
    return {n if n.startswith("classifier.") else prefix + n: a for n, a in file.items()}


def class_names_of(config, num_classes):
    """What `config.json` calls the classes; `None` where it names others, or just numbers them."""
    names, keys = config.get("id2label"), [str(i) for i in range(num_classes)]
    if not isinstance(names, dict) or set(names) != set(keys):
        return None
    ordered = tuple(str(names[key]) for key in keys)
    return None if ordered == tuple(f"LABEL_{key}" for key in keys) else ordered


def labels(model):
    """What `config.json` calls the classes."""
    names = model.class_names or [f"LABEL_{i}" for i in range(model.num_classes)]
    return {
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }


# ---- preprocessor_config.json


def preprocessing_of(processor):
    """The `Preprocessing` of an image processor, and texts for what no recipe here can say."""
    if not processor:
        return HUGGING_FACE, ()
    kind = str(processor.get("image_processor_type") or processor.get("feature_extractor_type"))
    defaults = next((v for k, v in OTHER_DEFAULTS.items() if kind.startswith(k)), {})
    processor = {**defaults, **{k: v for k, v in processor.items() if v is not None}}
    resample = processor.get("resample", 2)
    try:
        if resample not in range(6):  # Pillow's filters
            raise ValueError(f"resample={resample!r} is none of Pillow's, 0 to 5.")
        mean, std = _normalisation(processor)
        resize, crop_fraction, unsaid = _resize(processor, kind)
        interpolation = RESAMPLES.get(resample, "bicubic")
        recipe = Preprocessing(mean, std, resize, crop_fraction, interpolation, "transformers")
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise CheckpointError(
            f"preprocessor_config.json has numbers that no image processor has: {error}"
        ) from error
    if resample not in RESAMPLES:
        unsaid = [*unsaid, f"resample={resample!r}"]
    return recipe, tuple(f"{text} of the image processor" for text in unsaid)


def _normalisation(processor):
    """Mean and standard deviation of (x * factor - mean) / std = (x / 255 - mean') / std'."""
    factor = processor.get("rescale_factor", 1 / 255) if processor.get("do_rescale", True) else 1
    unit = float(f"{255 * factor:.12g}")
    if not processor.get("do_normalize", True):
        return (0.0,) * 3, (1 / unit,) * 3
    mean = processor.get("image_mean", HUGGING_FACE.mean)
    std = processor.get("image_std", HUGGING_FACE.std)
    return tuple(float(m) / unit for m in mean), tuple(float(s) / unit for s in std)


def _resize(processor, kind):
    """The rule, the part that the crop keeps, and what cannot be said."""
    if not processor.get("do_resize", True):
        return "squash", 1.0, ["do_resize=False"]
    size = processor.get("size", 224)
    by_shorter_edge = isinstance(size, int) and kind.startswith(BY_SHORTER_EDGE)
    if isinstance(size, dict):
        by_shorter_edge = "shortest_edge" in size
        if not by_shorter_edge and not {"height", "width"} <= set(size):
            return "squash", 1.0, [f"size={size}"]
    rule = "shortest" if by_shorter_edge else "squash"
    if not processor.get("do_center_crop", False):
        return rule, 1.0, [f"size={size} without a crop"] * by_shorter_edge
    crop, sides = sides_of(processor.get("crop_size", 224)), sides_of(size)
    # The shorter edge belongs to the smaller number, whatever the other one is.
    pairs = [(min(crop), sides[0])] if by_shorter_edge else list(zip(crop, sides))
    fraction = min(_fraction(*pair) for pair in pairs)
    exact = all(math.floor(c / fraction) == s for c, s in pairs)
    return rule, fraction, [f"size={size} and crop_size={crop}"] * (not exact)


def sides_of(size):
    """(height, width) of a size that may be one number, two, or named ones."""
    if isinstance(size, dict):
        size = size.get("shortest_edge") or (size["height"], size["width"])
    height, width = (size, size) if isinstance(size, int) else size
    return height, width


def _fraction(crop, size):
    """crop / size, or the number next to it from which the size comes back."""
    fraction = min(crop / size, 1.0)
    while math.floor(crop / fraction) < size and crop < size:
        fraction = math.nextafter(fraction, 0)
    return fraction


def processor_of(model):
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
