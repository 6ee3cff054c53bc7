"""What happens to one image on its way into a model: a value, and the functions it names.

A crop is a function in `crops.CROPS`, an augmentation one in `augment.AUGMENTATIONS`.
"""

import dataclasses
import math

from keras_vit.checks import check_choice, pair, positive_int
from keras_vit.data.augment import AUGMENTATIONS
from keras_vit.data.crops import CROPS
from keras_vit.preprocessing import BY_PILLOW, INTERPOLATIONS, LIBRARIES, Preprocessing
from keras_vit.text import brief

# Crops without chance, and what `Preprocessing.resize` calls them. `CROPS` has the random ones.
RESIZES = {
    "resize_small_center": "shortest",
    "center_square": "center_square",
    "squash_center": "squash",
    "squash": "squash",
}
CENTERED = ("resize_small_center", "squash_center")


@dataclasses.dataclass(frozen=True)
class Transform:
    """The geometry, augmentation and normalisation of the images of a recipe.

    In the order in which they happen: crop and resize, flip, affine map, augmentations by name,
    RandAugment; and, once a batch stands, the value range or mean and standard deviation. What is
    not left to chance is done as `keras_vit.data.preprocess` does it, by `preprocessing`.

    Attributes:
        image_size: (height, width) of the result, in pixels; an int stands for a square.
        crop: one of

            - `"inception"`: a random box of `area` and `ratio`, resized (training; TensorFlow's);
            - `"random_resized"`: the same with the shares of torchvision's `RandomResizedCrop`,
              whose boxes are larger on average (training);
            - `"resize_small_random"`: the shorter side resized to `resize_small`, then a random
              window (training, big_vision's `resmall_crop`);
            - `"squash_random"`: resized to a square of `resize_small` without regard to the aspect
              ratio, then a random window (training, BiT-HyperRule);
            - `"pad_random"`: `padding` pixels around, then a random window (small images);
            - `"resize_small_center"`: the shorter side resized to `resize_small`, then the middle;
            - `"squash_center"`: resized to a square of `resize_small` (or, for an `image_size` that
              is none, in its proportion) without regard to the aspect ratio, then the middle (the
              authors' few-shot evaluation);
            - `"center_square"`: the largest square in the middle, resized;
            - `"squash"`: resized without regard to the aspect ratio.
        area: smallest and largest share of the image that such a random box covers.
        ratio: smallest and largest width / height of such a random box.
        resize_small: shorter side in front of a window, or side of the square, in pixels.
        crop_fraction: of `"resize_small_center"` and `"squash_center"` instead of `resize_small`:
            the share of a side that the middle is, at any `image_size`.
        padding: pixels of zeros on each side in front of a `"pad_random"` window.
        flip: whether half of the images are mirrored.
        affine: (rotation in degrees, change of size, move), the largest either way, the last two
            as shares of the image, or `None`.
        augment: names of `AUGMENTATIONS`, or `(name, *arguments)`, in order.
        randaugment: (operations, magnitude of 0 to 30 or more), or `None`.
        interpolation: `"bilinear"`, `"bicubic"` or `"area"`.
        library: whose resize, see `keras_vit.Preprocessing`. TensorFlow's, by default, does not
            antialias; a random transform rounds its fractions to the nearest grey level, and
            another one keeps them.
        round_to_uint8: short for `library="tensorflow_uint8"`, which truncates to whole grey
            levels, as big_vision's pipelines do.
        value_range: what 0 and 255 become; or
        mean, std: of each channel of images with values in [0, 1], as a tuple of one number per
            channel: an image x becomes (x - mean) / std.
        draft: whether a random transform decodes a JPEG at 1/2, 1/4 or 1/8 of its size where its
            crop is still larger than the result. That is several times as fast and smooths what
            the resize would skip; `False` decodes in full, as the authors do. A transform without
            chance always does.

    Raises:
        ValueError: a value out of its range.
    """

    image_size: tuple[int, int]
    crop: str = "squash"
    area: tuple[float, float] = (0.05, 1.0)
    ratio: tuple[float, float] = (0.75, 1.33)
    resize_small: int | None = None
    crop_fraction: float | None = None
    padding: int = 4
    flip: bool = False
    affine: tuple[float, float, float] | None = None
    augment: tuple = ()
    randaugment: tuple[int, float] | None = None
    interpolation: str = "bilinear"
    library: str | None = None
    round_to_uint8: bool = False
    value_range: tuple[float, float] = (-1.0, 1.0)
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    draft: bool = True

    def __post_init__(self):
        object.__setattr__(self, "image_size", pair(self.image_size, "image_size"))
        steps = [self.augment] if isinstance(self.augment, str) else self.augment
        steps = tuple(step if isinstance(step, str) else tuple(step) for step in steps)
        object.__setattr__(self, "augment", steps)
        _check(self)
        _ = self.preprocessing  # which checks the rest

    @property
    def is_random(self):
        """Whether two applications may differ."""
        return self.crop not in RESIZES or self.flip or bool(self.augmentations())

    @property
    def preprocessing(self):
        """The `Preprocessing` of what is not left to chance, which predicts as this tests.

        Where the crop is random, the whole image is resized.
        """
        fraction = self.crop_fraction or 1.0
        if self.resize_small and self.crop in CENTERED:
            fraction = (side := max(self.image_size)) / self.resize_small
            while math.floor(side / fraction) < self.resize_small:  # by a rounding error
                fraction = math.nextafter(fraction, 0)
        if self.mean is None:
            low, high = self.value_range
            mean, std = (-low / (high - low),) * 3, (1 / (high - low),) * 3
        else:
            mean, std = self.mean, self.std
        library = self.library or ("tensorflow_uint8" if self.round_to_uint8 else "tensorflow")
        resize = RESIZES.get(self.crop, "squash")
        return Preprocessing(mean, std, resize, fraction, self.interpolation, library)

    def like(self, preprocessing, crop=True):
        """The transform whose images are normalised and resized as a `Preprocessing` says.

        Args:
            crop: whether the crop is that of the preprocessing too, which leaves nothing of it to
                chance; flip and augmentations stay.
        """
        p, changes = preprocessing, {"value_range": (-1.0, 1.0), "mean": None, "std": None}
        if {*p.mean, *p.std} != {0.5}:  # which that range stands for
            changes |= {"mean": p.mean, "std": p.std}
        changes["interpolation"] = p.interpolation
        changes["library"] = p.library if p.library in BY_PILLOW else None
        changes["round_to_uint8"] = p.library == "tensorflow_uint8"
        if crop:
            names = {resize: name for name, resize in RESIZES.items()}
            name = names[p.resize]
            if name == "squash" and p.crop_fraction != 1:
                name = "squash_center"
            fraction = p.crop_fraction if name in CENTERED else None
            changes |= {"crop": name, "crop_fraction": fraction, "resize_small": None}
        return dataclasses.replace(self, **changes)

    def augmentations(self):
        """(function, arguments) of each `(image, rng, *arguments) -> image` after the flip."""
        steps = [("affine", *self.affine)] if self.affine is not None else []
        steps += [(step,) if isinstance(step, str) else step for step in self.augment]
        steps += [("randaugment", *self.randaugment)] if self.randaugment is not None else []
        for name, *_ in steps:
            if name not in AUGMENTATIONS:  # a worker has not run all of the script
                raise RuntimeError(
                    f"A worker process must know the augmentation. Received: unknown {name!r}; "
                    "define it in a module, or in the script outside of "
                    '`if __name__ == "__main__":`, or use workers=0'
                )
        return [(AUGMENTATIONS[name], arguments) for name, *arguments in steps]


def _check(transform):
    def require(name, holds, rule):
        if not holds:
            raise ValueError(f"{name} must be {rule}. Received: {brief(getattr(transform, name))}.")

    crop, smaller = transform.crop, transform.resize_small or 0
    check_choice("crop", crop, (*CROPS, *RESIZES))
    check_choice("interpolation", transform.interpolation, INTERPOLATIONS)
    check_choice("library", transform.library, (None, *LIBRARIES))
    given = transform.crop_fraction is not None
    require("crop_fraction", not given or crop in CENTERED, f"None unless crop is of {CENTERED}")
    both = given and transform.resize_small is not None
    require("crop_fraction", not both, "None beside resize_small, which says the same")
    cuts = crop.startswith(("resize_small", "squash_")) and not given
    fits = not cuts or smaller >= max(transform.image_size)
    require("resize_small", fits, f"at least image_size={transform.image_size} for crop={crop!r}")
    both = transform.library is not None and transform.round_to_uint8
    require("round_to_uint8", not both, "False beside library, which says it")
    both = (transform.mean is None) != (transform.std is None)
    require("mean", not both, f"given with std, or neither; std={brief(transform.std)}")
    both = transform.mean is not None and tuple(transform.value_range) != (-1, 1)
    require("value_range", not both, "left out beside mean and std, which say it")
    low, high = transform.area
    require("area", 0 < low <= high <= 1, "(low, high), above 0 and at most 1")
    low, high = transform.ratio
    require("ratio", 0 < low <= high, "(low, high), above 0")
    low, high = transform.value_range
    require("value_range", low < high, "(low, high)")
    require("draft", isinstance(transform.draft, bool), "True or False")
    if transform.padding != 0:
        positive_int(transform.padding, "padding")
    for step in transform.augment:
        check_choice("augmentation", step if isinstance(step, str) else step[0], (*AUGMENTATIONS,))
    rotation, scale, shift = (0, 0, 0) if transform.affine is None else transform.affine
    fits = min(rotation, scale, shift) >= 0 and scale < 1
    require("affine", fits, "(rotation, scale, shift), none negative and scale below 1")
    match (0, 0) if transform.randaugment is None else transform.randaugment:
        case (int(operations), int(magnitude) | float(magnitude)):
            fits = operations >= 0 and 0 <= magnitude < math.inf
        case _:
            fits = False
    require("randaugment", fits, "(operations, magnitude), such as (2, 10), or None")
