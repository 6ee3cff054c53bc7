"""What Hugging Face's JSON files, of transformers and timm, say besides the architecture.

`preprocessor_config.json` of transformers says how an image is resized, cropped if the processor
crops, multiplied by `rescale_factor` and normalised; for timm `pretrained_cfg` in `config.json`
says it. `problem_type` of `config.json` says how outputs are read, and `id2label` or timm's
`label_names` what the classes are called.
"""

import dataclasses
import math
import re

from keras_vit.checks import check_choice
from keras_vit.preprocessing import CLIP, HUGGING_FACE, TIMM, Preprocessing
from keras_vit.weights.safety import CheckpointError

PROBLEM_TYPES = {  # -> `Reading.name` of keras_vit.outputs
    "single_label_classification": "softmax",
    "multi_label_classification": "sigmoid",
    "regression": "values",
}
RESAMPLES = {2: "bilinear", 3: "bicubic"}  # as Pillow numbers them
# Steps that are read, and those that change no pixels of an image of RGB.
STEPS = {"do_resize", "do_center_crop", "do_rescale", "do_normalize"}
STEPS |= {"do_convert_rgb", "do_reduce_labels", "do_convert_annotations"}
# Processors of other models fill in other values than ViT's where a folder does not say them.
BY_SHORTER_EDGE = ("Bit", "CLIP", "ConvNext")
CROPPED = {"do_center_crop": True, "size": 224, "crop_size": 224, "resample": 3}
OTHER_DEFAULTS = {
    "DeiT": {**CROPPED, "size": 256},
    "Bit": {**CROPPED, "image_mean": CLIP.mean, "image_std": CLIP.std},
    "CLIP": {**CROPPED, "image_mean": CLIP.mean, "image_std": CLIP.std},
    "Siglip": {"resample": 3},
    "Beit": {"resample": 3},
    "DINOv3": {"image_mean": (0.485, 0.456, 0.406), "image_std": (0.229, 0.224, 0.225)},
}
# Key of `pretrained_cfg` -> field of a `Preprocessing`, and its values there where they are named.
OF_TIMM = {
    "mean": ("mean", None),
    "std": ("std", None),
    "crop_pct": ("crop_fraction", None),
    "crop_mode": ("resize", {"center": "shortest", "squash": "squash"}),
    "interpolation": ("interpolation", {"bilinear": "bilinear", "bicubic": "bicubic"}),
}


def preprocessing_of(processor):
    """The `Preprocessing` of an image processor, and texts for what no recipe here can say."""
    if not processor:
        return HUGGING_FACE, ()
    name = str(processor.get("image_processor_type") or processor.get("feature_extractor_type"))
    defaults = next((v for k, v in OTHER_DEFAULTS.items() if name.startswith(k)), {})
    processor = {**defaults, **{k: v for k, v in processor.items() if v is not None}}
    resample = processor.get("resample", 2)
    try:
        if resample not in range(6):  # Pillow's filters
            raise ValueError(f"resample={resample!r} is none of Pillow's, 0 to 5.")
        mean, std = _normalisation(processor)
        resize, crop_fraction, unsaid = _resize(processor, name)
        interpolation = RESAMPLES.get(resample, "bicubic")
        recipe = Preprocessing(mean, std, resize, crop_fraction, interpolation, "transformers")
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise CheckpointError(
            f"preprocessor_config.json has numbers that no image processor has: {error}"
        ) from error
    if resample not in RESAMPLES:
        unsaid = [*unsaid, f"resample={resample!r}"]
    further = [key for key in processor if key.startswith("do_") and key not in STEPS]
    further += ["keep_aspect_ratio", "offset", "rescale_offset"]  # the last take 1 from each value
    unsaid += [f"{key}={processor[key]!r}" for key in further if processor.get(key)]
    return recipe, tuple(f"{text} of the image processor" for text in unsaid)


def _normalisation(processor):
    """Mean and standard deviation of (x * factor - mean) / std = (x / 255 - mean') / std'."""
    factor = processor.get("rescale_factor", 1 / 255) if processor.get("do_rescale", True) else 1
    unit = float(f"{255 * factor:.12g}")
    if not processor.get("do_normalize", True):
        return (0.0,) * 3, (1 / unit,) * 3
    stated = (processor.get(f"image_{n}", getattr(HUGGING_FACE, n)) for n in ("mean", "std"))
    # One number is that of all channels.
    triples = (each if isinstance(each, (list, tuple)) else [each] * 3 for each in stated)
    return tuple(tuple(float(value) / unit for value in triple) for triple in triples)


def _resize(processor, name):
    """The rule, the part that the crop keeps, and what cannot be said."""
    if not processor.get("do_resize", True):
        return "squash", 1.0, ["do_resize=False"]
    size = processor.get("size", 224)
    by_shorter_edge = isinstance(size, int) and name.startswith(BY_SHORTER_EDGE)
    if isinstance(size, dict):
        by_shorter_edge = "shortest_edge" in size
        if not by_shorter_edge and not {"height", "width"} <= set(size):
            return "squash", 1.0, [f"size={size}"]
    rule = "shortest" if by_shorter_edge else "squash"
    if not processor.get("do_center_crop", False):
        return rule, 1.0, [f"size={size} without a crop"] if by_shorter_edge else []
    crop, sides = sides_of(processor.get("crop_size", 224)), sides_of(size)
    # The shorter edge belongs to the smaller number, whatever the other one is.
    pairs = [(min(crop), sides[0])] if by_shorter_edge else list(zip(crop, sides))
    fraction = 1.0
    for kept, side in pairs:
        of_side = min(kept / side, 1.0)
        while kept < side and math.floor(kept / of_side) < side:
            of_side = math.nextafter(of_side, 0)  # the next number from which the side comes back
        fraction = min(fraction, of_side)
    is_exact = all(math.floor(kept / fraction) == side for kept, side in pairs)
    return rule, fraction, [] if is_exact else [f"size={size} and crop_size={crop}"]


def sides_of(size):
    """(height, width) of a size that may be one number, two, or named ones."""
    if isinstance(size, dict):
        size = size.get("shortest_edge") or (size["height"], size["width"])
    height, width = (size, size) if isinstance(size, int) else size
    return height, width


def processor_of(model):
    """`preprocessor_config.json`."""
    recipe, size = model.preprocessing, dict(zip(("height", "width"), model.image_size))
    squash = recipe.resize == "squash"
    crops = not squash or recipe.crop_fraction < 1
    before = {side: int(pixels / recipe.crop_fraction) for side, pixels in size.items()}
    # transformers 4 has a crop in the processors of these models, and in that of ViT none.
    name = ("DeiT" if squash else "CLIP") if crops else "ViT"
    return {
        "image_processor_type": f"{name}ImageProcessor",
        "do_resize": True,
        "size": before if squash else {"shortest_edge": min(before.values())},
        **({"do_center_crop": True, "crop_size": size} if crops else {}),
        "resample": 3 if recipe.interpolation == "bicubic" else 2,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(recipe.mean),
        "image_std": list(recipe.std),
    }


def reading_of_config(config):
    """The reading that `problem_type` in the config of a checkpoint stands for, or `None`.

    Raises:
        ValueError: it is of another problem.
    """
    problem = (config or {}).get("problem_type")
    check_choice("problem_type", problem, (*PROBLEM_TYPES, None))
    return PROBLEM_TYPES.get(problem)


def config_of(model):
    """What a config beside weights says of the reading, as a dict: nothing where it is unknown."""
    problems = [name for name, reading in PROBLEM_TYPES.items() if reading == model.reading]
    return {"problem_type": problems[0]} if problems else {}


def preprocessing_of_timm(settings, usual=TIMM):
    """As `preprocessing_of`, of a `pretrained_cfg`; what it does not say is as in `usual`."""
    fields, unsaid = {}, []
    for key, (field, meanings) in OF_TIMM.items():
        value = settings.get(key)
        if value is not None and (meanings is None or value in meanings):
            fields[field] = value if meanings is None else meanings[value]
        elif value is not None:
            unsaid.append(f"{key}={value!r} of the preprocessing")
    return dataclasses.replace(usual, **fields), tuple(unsaid)


def class_names_of(config, num_classes):
    """What a config calls the classes, or `None`, and texts for names that are not of this head.

    A single output may have two names. Placeholders of transformers are none.
    """
    names, fits = config.get("label_names") or config.get("id2label"), False
    if isinstance(names, dict):
        fits = set(names) == {str(i) for i in range(num_classes)}
        names = [names[str(i)] for i in range(num_classes)] if fits else [*names.values()]
        if all(re.fullmatch(r"LABEL_\d+", str(name)) for name in names):
            return None, ()
    elif isinstance(names, list):
        fits = len(names) == num_classes or (len(names), num_classes) == (2, 1)
    if not num_classes or not isinstance(names, list):
        return None, ()
    if fits:
        return tuple(map(str, names)), ()
    which = f"{len(names)} names of classes in its config"
    return None, (f"{which}, which are not of the {num_classes} outputs",)
