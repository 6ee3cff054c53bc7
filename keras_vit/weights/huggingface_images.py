"""What the `preprocessor_config.json` of a Hugging Face folder does, as a `Preprocessing`.

An image is resized, cropped if the processor crops, multiplied by `rescale_factor` and normalised.
"""

import math

from keras_vit.preprocessing import HUGGING_FACE, Preprocessing
from keras_vit.weights.files import CheckpointError

RESAMPLES = {2: "bilinear", 3: "bicubic"}  # as Pillow numbers them
# Processors of other models fill in other values than ViT's where a folder does not say them.
BY_SHORTER_EDGE = ("Bit", "CLIP", "ConvNext")
OTHER_DEFAULTS = {
    "DeiT": {"do_center_crop": True, "size": 256, "crop_size": 224, "resample": 3},
    **{
        kind: {"do_center_crop": True, "size": 224, "crop_size": 224, "resample": 3}
        for kind in ("Bit", "CLIP")
    },
}


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
    try:
        mean, std = _normalisation(processor)
        resize, crop_fraction, unsaid = _resize(processor, kind)
        recipe = Preprocessing(
            mean=mean,
            std=std,
            resize=resize,
            crop_fraction=crop_fraction,
            interpolation=RESAMPLES.get(processor.get("resample", 2), "bicubic"),
            library="transformers",
        )
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise CheckpointError(
            f"preprocessor_config.json has numbers that no image processor has: {error}"
        ) from error
    if processor.get("resample", 2) not in RESAMPLES:
        unsaid += (f"resample={processor['resample']!r} of the image processor",)
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
