"""How a published checkpoint wants its images: facts as data, no image is touched here.

Weights trained with one resize method lose accuracy with another, and the published numbers of
one model differ between libraries for that reason.
"""

import dataclasses
import inspect
import math
import warnings

import numpy as np

from keras_vit.checks import check_choice, positive_float, require

RESIZES = ("squash", "shortest", "center_square")
INTERPOLATIONS = ("bilinear", "bicubic", "area")
LIBRARIES = ("tensorflow", "tensorflow_uint8", "pillow", "transformers")
BY_PILLOW = ("pillow", "transformers")
_NOT_THE_CALLER = ("keras_vit", "keras", "contextlib")


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """From a decoded image to the numbers a model was trained on; the defaults are Google's.

    Args:
        mean: subtracted from each channel of an image with values in [0, 1].
        std: divides each channel after that. With both 0.5, bytes 0..255 become [-1, 1].
        resize: `"squash"` both sides straight to image_size / crop_fraction, rounded down,
            whatever the aspect ratio; `"shortest"` the shorter side to that size; both then take
            a centre crop of image_size. `"center_square"` takes the largest centred square first,
            then resizes that to image_size.
        crop_fraction: part of a side of the resized image that the centre crop keeps.
        interpolation: `"bilinear"`, `"bicubic"` or `"area"`.
        library: whose resize: `"tensorflow"` tf.image.resize without antialias, kept as floats;
            `"tensorflow_uint8"` the same, clipped and truncated to bytes afterwards;
            `"pillow"` PIL's on bytes, which antialiases, with the sizes and crops of torchvision
            and timm; `"transformers"` the same with those of Hugging Face's image processors,
            whose centre is another by a pixel where the margin is odd.

    Raises:
        ValueError: a value is outside its range, or two values contradict each other.

    Source: input_pipeline.py of google-research/vision_transformer for the defaults.
    """

    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    resize: str = "squash"
    crop_fraction: float = 1.0
    interpolation: str = "bilinear"
    library: str = "tensorflow"

    def __post_init__(self):
        for name in ("mean", "std"):
            values = getattr(self, name)
            numbers = values if isinstance(values, (tuple, list)) else ()
            numbers = [x for x in numbers if isinstance(x, (int, float)) and abs(x) < math.inf]
            rule = f"{name} must be a tuple of one finite number per channel"
            require(numbers and len(numbers) == len(values), rule, received=values)
            object.__setattr__(self, name, tuple(map(float, numbers)))
        fraction = positive_float(self.crop_fraction, "crop_fraction")
        object.__setattr__(self, "crop_fraction", fraction)
        check_choice("resize", self.resize, RESIZES)
        check_choice("interpolation", self.interpolation, INTERPOLATIONS)
        check_choice("library", self.library, LIBRARIES)
        rule = "mean and std must have one number per channel each"
        require(len(self.mean) == len(self.std), rule, received=self)
        require(min(self.std) > 0, "std must be positive numbers", received=self)
        rule = "mean and std are of images with values in [0, 1]; divide those of 0..255 by 255"
        require(max(self.mean) <= 2, rule, received=self)
        require(fraction <= 1, "crop_fraction must be at most 1", received=self)
        crops = self.resize != "center_square"
        rule = "A crop_fraction below 1 needs resize='shortest' or 'squash', which have a crop"
        require(crops or fraction == 1, rule, received=self)
        is_of_library = self.interpolation != "area" or self.library not in BY_PILLOW
        rule = "interpolation='area' is TensorFlow's; choose another interpolation or library"
        require(is_of_library, rule, received=self)

    def warn_of_values(self, images, name):
        """Warns of images that hold what this preprocessing hardly makes of pixels; whether it did.

        `images`, an array or a tensor of the backend, are about to go into the model of that `name`
        as they are. The first 32 are looked at.
        """
        if not getattr(images, "is_fully_addressable", True):  # JAX: parts are in other processes
            return False
        import keras  # the catalogue of weights is read without it

        images = np.asarray(keras.ops.convert_to_numpy(images[:32]))
        if not images.size or images.dtype.kind not in "fiuV":  # V: bfloat16
            return False
        mean, std, images = np.array(self.mean), np.array(self.std), images.astype("float32")
        low, high = ((0 - mean) / std).min(), ((1 - mean) / std).max()
        margin = 0.1 * (high - low)  # by so much a bicubic resize may leave the range
        least, most = float(images.min()), float(images.max())
        within = least >= low - margin and most <= high + margin  # which no NaN is
        outside = not within or low < 0 <= least < most
        if not outside and (low, high) != (-1, 1) and -1 <= least < most <= 1:
            # Bytes that became [-1, 1], as `preprocess` makes them without a model, fit into wider
            # ranges. They reach both ends, or are whole levels where nothing has resized them.
            levels = (images + 1) * 127.5
            outside = (least, most) == (-1, 1) or np.allclose(levels, np.rint(levels), 0, 1e-2)
        if outside:
            warnings.warn(
                f"{name} wants values from {low:.3g} to {high:.3g}, as "
                "keras_vit.data.preprocess(images, model) makes them. Received: values from "
                f"{least:.3g} to {most:.3g}, which go into the model as they are.",
                stacklevel=_level_of_caller(),
            )
        return bool(outside)

    def differs(self, other):
        """Whether the means or the deviations of another one are others, beyond rounding."""
        counts = len(self.mean), len(other.mean)
        channels = 1 if 1 in counts else max(counts)  # gray images have one for the three of RGB
        one, two = self.for_channels(channels), other.for_channels(channels)
        return not (np.allclose(one.mean, two.mean) and np.allclose(one.std, two.std))

    def for_channels(self, channels):
        """The same for images of another number of channels than the three of RGB.

        One channel has the means of mean and std; others have those of red, green and blue in turn.
        """

        def shared(values):
            in_turn = [values[i % len(values)] for i in range(channels)]
            return (math.fsum(values) / len(values),) if channels == 1 else in_turn

        return dataclasses.replace(self, mean=shared(self.mean), std=shared(self.std))

    def to_config(self):
        """The fields as a dict that JSON can hold."""
        return dataclasses.asdict(self) | {"mean": list(self.mean), "std": list(self.std)}

    @classmethod
    def from_config(cls, config):
        """The `Preprocessing` of a dict from `to_config`; fields left out take their defaults."""
        for name in config:
            check_choice("field", name, [field.name for field in dataclasses.fields(cls)])
        return cls(**config)

    def __str__(self):
        crops = self.resize == "shortest" or self.crop_fraction < 1
        crop = f" crop {self.crop_fraction:.4g}" if crops else ""
        mean, std = (  # one number where all channels share it
            "/".join(f"{value:.4g}" for value in (values if len({*values}) > 1 else values[:1]))
            for values in (self.mean, self.std)
        )
        return f"{self.resize}{crop}, {self.interpolation} ({self.library}), mean {mean}, std {std}"


def preprocessing_of(model, default=None):
    """The `Preprocessing` of a model; a warning where it was only assumed when it was loaded."""
    preprocessing = getattr(model, "preprocessing", default)
    assumed = getattr(getattr(model, "load_report", None), "assumed", ())
    for name, value, why in assumed:
        if (name, value) != ("preprocessing", str(preprocessing)):
            continue
        text = (
            f"Nothing beside the checkpoint of {model.name} says how it wants its images. "
            f"Received: no config; assumed: {preprocessing}, as most of its family. Set "
            "model.preprocessing = keras_vit.Preprocessing(...), or put the config.json of the "
            "checkpoint beside it."
        )
        if why.startswith("the nearest"):
            text = (
                f"{model.name} wants its images otherwise than they are prepared. Received: "
                f"{preprocessing}, {why}. Prepare them as the library of the checkpoint does, and "
                "give these floats to model.predict."
            )
        warnings.warn(text, stacklevel=_level_of_caller())
    return preprocessing


def _level_of_caller():
    """The `stacklevel` of the first line that neither this library nor Keras wrote."""
    frame, level = inspect.currentframe().f_back, 1
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in _NOT_THE_CALLER:
        frame, level = frame.f_back, level + 1
    return level


GOOGLE = Preprocessing()
# BiT's TF2 and JAX evaluation squashes straight to the crop size of its HyperRule.
BIT = Preprocessing()
# resize_small(256)|central_crop(224): `area` is the default method of resize_small.
BIG_VISION = Preprocessing(
    resize="shortest", crop_fraction=224 / 256, interpolation="area", library="tensorflow_uint8"
)
# resize(size): bilinear without antialias by default, and bytes again afterwards.
SIGLIP = Preprocessing(library="tensorflow_uint8")
# The defaults of timm's vision_transformer.py; each of its checkpoints may say otherwise.
TIMM = Preprocessing(
    resize="shortest", crop_fraction=0.9, interpolation="bicubic", library="pillow"
)
HUGGING_FACE = Preprocessing(library="transformers")
# Radford et al., 2021: the means and deviations of its training images.
CLIP = Preprocessing(
    mean=(0.48145466, 0.4578275, 0.40821073),
    std=(0.26862954, 0.26130258, 0.27577711),
    resize="shortest",
    interpolation="bicubic",
    library="transformers",
)
