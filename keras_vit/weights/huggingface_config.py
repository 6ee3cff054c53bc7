"""The JSON files of a Hugging Face folder: what they say, and what is written.

`preprocessor_config.json` says how an image is resized, cropped if the processor crops, multiplied
by `rescale_factor` and normalised.
"""

import math

from keras_vit.preprocessing import HUGGING_FACE, Preprocessing
from keras_vit.weights.files import CheckpointError

RESAMPLES = {2: "bilinear", 3: "bicubic"}  # as Pillow numbers them
# Processors of other models fill in other values than ViT's where a folder does not say them.
BY_SHORTER_EDGE = ("Bit", "CLIP", "ConvNext")
OTHER_DEFAULTS = {
    "DeiT": {"do_center_crop": True, "size": 256, "crop_size": 224, "resample": 3},
    "Bit": {"do_center_crop": True, "size": 224, "crop_size": 224, "resample": 3},
    "CLIP": {"do_center_crop": True, "size": 224, "crop_size": 224, "resample": 3},
}


def check_config(config, found, path):
    """Raises a CheckpointError for a `config.json` of another model."""
    said = {"hidden_size": "width", "intermediate_size": "mlp_dim", "num_hidden_layers": "depth"}
    wrong = {
        k: (config[k], found[f]) for k, f in said.items() if config.get(k, found[f]) != found[f]
    }
    if wrong:
        raise CheckpointError(
            f"The config.json of {str(path)!r} is of another model; (config, file) differ in "
            f"{wrong}."
        )
    if found["representation_size"] and config.get("pooler_act", "tanh") != "tanh":
        raise CheckpointError(
            f"The pooler of {str(path)!r} uses {config['pooler_act']!r}; expected 'tanh', the "
            "activation of the pre-logits layer."
        )


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


def preprocessing_of(processor):
    """The recipe of an image processor, and what it does beside it.

    Args:
        processor: what `preprocessor_config.json` says; empty where there is none.

    Returns:
        A `Preprocessing`, and a tuple of texts: what no recipe here can say.

    Raises:
        CheckpointError: the numbers cannot be those of a processor.
    """
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
        recipe = Preprocessing(
            mean=mean,
            std=std,
            resize=resize,
            crop_fraction=crop_fraction,
            interpolation=RESAMPLES.get(resample, "bicubic"),
            library="transformers",
        )
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise CheckpointError(
            f"preprocessor_config.json has numbers that no image processor has: {error}"
        ) from error
    if resample not in RESAMPLES:
        unsaid += (f"resample={resample!r} of the image processor",)
    return recipe, unsaid


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
        return "squash", 1.0, ("do_resize=False of the image processor",)
    size = processor.get("size", 224)
    by_shorter_edge = isinstance(size, int) and kind.startswith(BY_SHORTER_EDGE)
    if isinstance(size, dict):
        by_shorter_edge = "shortest_edge" in size
        if not by_shorter_edge and not {"height", "width"} <= set(size):
            return "squash", 1.0, (f"size={size} of the image processor",)
    rule = "shortest" if by_shorter_edge else "squash"
    if not processor.get("do_center_crop", False):
        unsaid = (f"size={size} of the image processor, without a crop",) * by_shorter_edge
        return rule, 1.0, unsaid
    crop, sides = _sides(processor.get("crop_size", 224)), _sides(size)
    if by_shorter_edge:  # which is then of the smaller number, whatever the other one is
        pairs = [(min(crop), sides[0])]
    else:
        pairs = list(zip(crop, sides))
    fraction = min(_fraction(*pair) for pair in pairs)
    exact = all(math.floor(c / fraction) == s for c, s in pairs)
    unsaid = (f"size={size} and crop_size={crop} of the image processor",) * (not exact)
    return rule, fraction, unsaid


def _sides(size):
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
