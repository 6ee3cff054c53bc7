"""What happens to one image on its way into a model: a value, and the functions it names."""

import dataclasses
import functools
import math

from keras_vit.checks import check_choice, pair, positive_int
from keras_vit.data.augment import AUGMENTATIONS
from keras_vit.data.crops import CROPS
from keras_vit.preprocessing import BY_PILLOW, Preprocessing
from keras_vit.text import brief

# Crops without chance, and what `Preprocessing.resize` calls them. `CROPS` has the random ones.
RESIZES = {
    "resize_small_center": "shortest",
    "center_square": "center_square",
    "squash_center": "squash",
    "squash": "squash",
}
CENTERED = ("resize_small_center", "squash_center")
_SAME = {"crop_fraction": "resize_small", "round_to_uint8": "library", "value_range": "mean"}


@dataclasses.dataclass(frozen=True)
class Transform:
    """The geometry, augmentation and normalisation of the images of a recipe.

    In the order in which they happen: crop and resize, flip, affine map, augmentations by name,
    RandAugment; and, once a batch stands, the normalisation. What is not left to chance is done as
    `keras_vit.data.preprocess` does it, by `preprocessing`.

    Attributes:
        image_size: (height, width) of the result, in pixels; an int stands for a square.
        crop: one of

            - `"inception"`: a random box of `area` and `ratio`, resized, as TensorFlow draws it;
            - `"random_resized"`: as torchvision draws it, whose boxes are larger on average;
            - `"resize_small_random"`: the shorter side to `resize_small`, then a random window;
            - `"squash_random"`: to a square of `resize_small`, then a random window;
            - `"pad_random"`: `padding` pixels of zeros on each side, then a random window;
            - `"resize_small_center"`: the shorter side to `resize_small`, then the middle;
            - `"squash_center"`: to a square of `resize_small`, or what has the proportion of
              `image_size`, then the middle;
            - `"center_square"`: the largest square in the middle, resized;
            - `"squash"`: resized. What is squashed loses its aspect ratio.
        area, ratio: smallest and largest share of the image, and width / height, of a random box.
        resize_small: in pixels; or, of crops that end with `_center`,
        crop_fraction: the share of a side that the middle is, at any `image_size`.
        padding: in pixels.
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
        mean, std: a number per channel, for x in [0, 1], which becomes (x - mean) / std.
        draft: whether a random transform decodes a JPEG at 1/2, 1/4 or 1/8 of its size where its
            crop is still larger than the result: several times as fast, and smoother than the
            authors' resize, which skips pixels. Others decode in full.

    Raises:
        ValueError: a value out of its range, or two fields that say the same.
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
        self._check()
        _ = self.preprocessing  # which checks the rest

    def _check(self):
        """Raises a ValueError that names the field that is out of its range."""
        check_choice("crop", self.crop, (*CROPS, *RESIZES))
        for step in self.augment:
            name = step if isinstance(step, str) else step[0]
            check_choice("augmentation", name, (*AUGMENTATIONS,))
        if self.padding != 0:
            positive_int(self.padding, "padding")
        (least, most), (narrow, broad), (black, white) = self.area, self.ratio, self.value_range
        rotation, scale, shift = (0, 0, 0) if self.affine is None else self.affine
        match (0, 0) if self.randaugment is None else self.randaugment:
            case (int(operations), int(magnitude) | float(magnitude)):
                draws = operations >= 0 and 0 <= magnitude < math.inf
            case _:
                draws = False
        is_share, is_centered = self.crop_fraction is not None, self.crop in CENTERED
        cuts = is_centered or self.crop in ("resize_small_random", "squash_random")
        fits = not cuts or is_share or (self.resize_small or 0) >= max(self.image_size)
        turns = min(rotation, scale, shift) >= 0 and scale < 1
        has_both = (self.mean is None) == (self.std is None)
        side = max(self.image_size)
        rules = (
            ("area", 0 < least <= most <= 1, "(low, high), above 0 and at most 1"),
            ("ratio", 0 < narrow <= broad, "(low, high), above 0"),
            ("value_range", black < white, "(low, high)"),
            ("affine", turns, "(rotation, scale, shift), none negative and scale below 1"),
            ("randaugment", draws, "(operations, magnitude), such as (2, 10), or None"),
            ("draft", isinstance(self.draft, bool), "True or False"),
            ("resize_small", fits, f"at least {side} for crop={self.crop!r}"),
            ("crop_fraction", is_centered or not is_share, f"None unless crop is of {CENTERED}"),
            ("mean", has_both, f"given with std, or neither; std={brief(self.std)}"),
        )
        given = {f.name for f in dataclasses.fields(self) if getattr(self, f.name) != f.default}
        same = tuple(
            (name, not {name, other} <= given, f"left out beside {other}, which says the same")
            for name, other in _SAME.items()
        )
        for name, holds, rule in rules + same:
            if not holds:
                value = brief(getattr(self, name))
                raise ValueError(f"{name} must be {rule}. Received: {value}.")

    @functools.cached_property
    def preprocessing(self):
        """The `Preprocessing` that predicts as this tests: it has one of fields that say the same.

        Where the crop is random, the whole image is resized.
        """
        fraction = self.crop_fraction or 1.0
        if self.resize_small and self.crop in CENTERED:
            fraction = (side := max(self.image_size)) / self.resize_small
            while math.floor(side / fraction) < self.resize_small:  # by a rounding error
                fraction = math.nextafter(fraction, 0)
        mean, std, library = self.mean, self.std, self.library
        if mean is None:
            low, high = self.value_range
            mean, std = (-low / (high - low),) * 3, (1 / (high - low),) * 3
        if library is None:
            library = "tensorflow_uint8" if self.round_to_uint8 else "tensorflow"
        resize = RESIZES.get(self.crop, "squash")
        return Preprocessing(mean, std, resize, fraction, self.interpolation, library)

    @property
    def is_random(self):
        """Whether two applications may differ."""
        return self.crop not in RESIZES or self.flip or bool(self.augmentations())

    def like(self, preprocessing, crop=True):
        """The transform whose images are normalised and resized as a `Preprocessing` says.

        With `crop` they are cropped so, too, which leaves nothing of the crop to chance.
        """
        p, changes = preprocessing, {"value_range": (-1.0, 1.0), "mean": None, "std": None}
        if {*p.mean, *p.std} != {0.5}:  # which that range stands for
            changes |= {"mean": p.mean, "std": p.std}
        changes["interpolation"] = p.interpolation
        changes["library"] = p.library if p.library in BY_PILLOW else None
        changes["round_to_uint8"] = p.library == "tensorflow_uint8"
        if crop:
            name = {resize: name for name, resize in RESIZES.items()}[p.resize]
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
