"""What the image converter of a KerasHub preset does, as a `Preprocessing`.

The converter resizes, multiplies by `scale` and adds `offset`. It cuts the largest window of the
target's proportions out of an image first, unless it is told to squash. Images of bytes are
rounded to bytes after the resize, images of floats are not; the recipe here is that of floats.
"""

from keras_vit.preprocessing import Preprocessing
from keras_vit.weights.files import CheckpointError

# What KerasHub's converters of ViT presets do, where a preset has none with it.
DEFAULT = Preprocessing(resize="center_square")
RESIZERS = {"bilinear": "bilinear", "bicubic": "bicubic"}


def preprocessing_of(converter, channels, image_size):
    """The recipe of an image converter, and what it does beside it.

    Args:
        converter: arguments of a KerasHub `ImageConverter`; empty where there is none.
        channels: of the images.
        image_size: (height, width) of the model.

    Returns:
        A `Preprocessing`, and a tuple of texts: what no recipe here can say.

    Raises:
        CheckpointError: numbers are missing, or cannot be those of a converter.
    """
    if not converter:
        return DEFAULT, ()
    try:
        mean, std = _normalisation(converter, channels)
        crops = converter.get("crop_to_aspect_ratio", True)
        recipe = Preprocessing(
            mean=mean,
            std=std,
            resize="center_square" if crops else "squash",
            interpolation=RESIZERS.get(converter.get("interpolation"), "bilinear"),
        )
    except (ValueError, TypeError, ArithmeticError) as error:
        raise CheckpointError(
            f"The image converter of the preset has numbers that no converter has: {error}"
        ) from error
    return recipe, tuple(_unsaid(converter, crops, image_size))


def _normalisation(converter, channels):
    """Mean and standard deviation of x * scale + offset = (x / 255 - mean) / std."""
    scale = _per_channel(converter, "scale", 1.0, channels)
    offset = _per_channel(converter, "offset", 0.0, channels)
    if "mean" in converter and "variance" in converter:  # as older presets say it
        std = [v**0.5 for v in _per_channel(converter, "variance", None, channels)]
        offset = [-m / s for m, s in zip(_per_channel(converter, "mean", None, channels), std)]
        scale = [a / s for a, s in zip(scale, std)]
    std = [1 / (255 * factor) for factor in scale]
    return (_tidy([-o * s for o, s in zip(offset, std)]), _tidy(std))


def _per_channel(converter, key, default, channels):
    value = default if converter.get(key) is None else converter[key]
    values = value if isinstance(value, list) else [value] * channels
    if len(values) not in (1, channels):
        raise ValueError(f"{key} has {len(values)} numbers for {channels} channels.")
    return [float(v) for v in values] * (channels // len(values))


def _tidy(values):
    """0.5 where 127.5 * 0.5 / 127.5 is a last digit beside it; images are float32 anyway."""
    return tuple(float(f"{value:.12g}") + 0.0 for value in values)


def _unsaid(converter, crops, image_size):
    if converter.get("interpolation", "bilinear") not in RESIZERS:
        yield f"interpolation={converter['interpolation']!r} of the image converter"
    if converter.get("antialias"):
        yield "antialias=True of the image converter"
    if converter.get("pad_to_aspect_ratio"):
        yield "pad_to_aspect_ratio=True of the image converter"
    size = converter.get("image_size") or [converter.get("height"), converter.get("width")]
    if size != [None, None] and tuple(size) != image_size:
        yield f"image_size={size} of the image converter"
    elif crops and image_size[0] != image_size[1]:
        yield "crop_to_aspect_ratio=True of the image converter, for an image that is not square"
