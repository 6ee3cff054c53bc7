"""A `Transform`: what happens to one image on its way into a model, as a value.

`keras_vit.data.reader.apply` does what it says, in the order of its fields.
"""

import dataclasses
import functools
import math

from keras_vit.checks import check_choice, pair, positive_int, require
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


@dataclasses.dataclass(frozen=True)
class Transform:
    """The geometry, augmentation and normalisation of the images of a recipe, in this order.

    What is not left to chance is done as `keras_vit.data.preprocess` does it, by `preprocessing`.

    Args:
        image_size: (height, width) of the result, in pixels; an int stands for a square.
        crop: which pixels of an image become the result, one of

            - `"inception"`: a random box of `area` and `ratio`, resized, as TensorFlow draws it;
            - `"random_resized"`: as torchvision draws it, whose boxes are larger on average;
            - `"resize_small_random"`: the shorter side to `resize_small`, then a random window;
            - `"squash_random"`: to a square of `resize_small`, then a random window;
            - `"pad_random"`: `padding` pixels of zeros on each side, then a random window;
            - `"resize_small_center"`: the shorter side to `resize_small`, then the middle;
            - `"squash_center"`: to a square of `resize_small`, or what has the proportion of
              `image_size`, then the middle;
            - `"center_square"`: the largest square in the middle, resized;
            - `"squash"`: the whole image, resized whatever its aspect ratio.
        area, ratio: smallest and largest share of the image, and width / height, of a random box.
        resize_small: the size that a window is cut from, in pixels.
        crop_fraction: instead of it, of crops that end with `_center`: the share of a side that the
            middle is, at any `image_size`.
        padding: in pixels.
        interpolation: `"bilinear"`, `"bicubic"` or `"area"`.
        library: whose resize, see `keras_vit.Preprocessing`. TensorFlow's, by default, does not
            antialias; a random transform rounds its fractions to the nearest grey level, and
            another one keeps them. That of `"tensorflow_uint8"` truncates to whole grey levels, as
            big_vision's pipelines do.
        round_to_uint8: the name of `library="tensorflow_uint8"` in recipes that are saved.
        draft: whether a random transform decodes a JPEG at 1/2, 1/4 or 1/8 of its size where its
            crop is still larger than the result: several times as fast, and smoother than the
            authors' resize, which skips pixels. Others decode in full.
        flip: whether half of the images are mirrored.
        affine: (rotation in degrees, change of size, move), the largest either way, the last two
            as shares of the image, or `None`.
        augment: names of `AUGMENTATIONS`, or `(name, *arguments)`, in order.
        randaugment: (operations, magnitude of 0 to 30 or more), or `None`.
        value_range: what 0 and 255 become once a batch stands; or
        mean, std: a number per channel, for x in [0, 1], which becomes (x - mean) / std.

    Raises:
        ValueError: a value out of its range, or two fields that say the same.
    """

    # Geometry
    image_size: tuple[int, int]
    crop: str = "squash"
    area: tuple[float, float] = (0.05, 1.0)
    ratio: tuple[float, float] = (0.75, 1.33)
    resize_small: int | None = None
    crop_fraction: float | None = None
    padding: int = 4
    interpolation: str = "bilinear"
    library: str | None = None
    round_to_uint8: bool = False
    draft: bool = True
    # Augmentation
    flip: bool = False
    affine: tuple[float, float, float] | None = None
    augment: tuple = ()
    randaugment: tuple[int, float] | None = None
    # Normalisation
    value_range: tuple[float, float] = (-1.0, 1.0)
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def __post_init__(self):
        steps = [self.augment] if isinstance(self.augment, str) else self.augment
        steps = tuple(step if isinstance(step, str) else tuple(step) for step in steps)
        object.__setattr__(self, "augment", steps)
        object.__setattr__(self, "image_size", pair(self.image_size, "image_size"))
        self._check_geometry()
        self._check_augmentation()
        self._check_normalisation()
        _ = self.preprocessing  # which checks interpolation, library, mean and std

    def _check_geometry(self):
        check_choice("crop", self.crop, (*CROPS, *RESIZES))
        (least, most), (narrow, broad) = self.area, self.ratio
        is_share = 0 < least <= most <= 1
        require(is_share, "area must be (low, high), above 0 and at most 1", received=self.area)
        require(0 < narrow <= broad, "ratio must be (low, high), above 0", received=self.ratio)
        if self.padding != 0:
            positive_int(self.padding, "padding")
        require(isinstance(self.draft, bool), "draft must be True or False", received=self.draft)
        rule = "round_to_uint8 must be left out beside library, which says the same"
        is_said_once = self.library is None or not self.round_to_uint8
        require(is_said_once, rule, received=self.round_to_uint8)
        side, fraction = max(self.image_size), self.crop_fraction
        if fraction is not None:
            rule = f"crop_fraction must be None unless crop is of {CENTERED}, without resize_small"
            fits = self.crop in CENTERED and self.resize_small is None
            require(fits, rule, received=fraction)
        elif self.crop in (*CENTERED, "resize_small_random", "squash_random"):
            rule = f"resize_small must be at least {side} for crop={self.crop!r}"
            require((self.resize_small or 0) >= side, rule, received=self.resize_small)

    def _check_augmentation(self):
        for step in self.augment:
            name = step if isinstance(step, str) else step[0]
            check_choice("augmentation", name, (*AUGMENTATIONS,))
        if self.affine is not None:
            rotation, scale, shift = self.affine
            fits = min(rotation, scale, shift) >= 0 and scale < 1
            rule = "affine must be (rotation, scale, shift), none negative and scale below 1"
            require(fits, rule, received=self.affine)
        match (0, 0) if self.randaugment is None else self.randaugment:
            case (int(operations), int(magnitude) | float(magnitude)):
                fits = operations >= 0 and 0 <= magnitude < math.inf
            case _:
                fits = False
        rule = "randaugment must be (operations, magnitude), such as (2, 10), or None"
        require(fits, rule, received=self.randaugment)

    def _check_normalisation(self):
        black, white = self.value_range
        require(black < white, "value_range must be (low, high)", received=self.value_range)
        is_pair = (self.mean is None) == (self.std is None)
        rule = f"mean must be given with std, or neither; std={brief(self.std)}"
        require(is_pair, rule, received=self.mean)
        is_said_once = self.mean is None or self.value_range == Transform.value_range
        rule = "value_range must be left out beside mean, which says the same"
        require(is_said_once, rule, received=self.value_range)

    @functools.cached_property
    def preprocessing(self):
        """The `Preprocessing` of such images without chance; of a random crop, the whole image."""
        black, white = self.value_range
        mean, std = self.mean, self.std
        if mean is None:
            mean, std = (-black / (white - black),) * 3, (1 / (white - black),) * 3
        return Preprocessing(
            mean,
            std,
            resize=RESIZES.get(self.crop, "squash"),
            crop_fraction=self._center_fraction(),
            interpolation=self.interpolation,
            library="tensorflow_uint8" if self.round_to_uint8 else self.library or "tensorflow",
        )

    def _center_fraction(self):
        """`crop_fraction`, which may follow from `resize_small`; 1 of crops that have none."""
        if self.crop not in CENTERED or not self.resize_small:
            return self.crop_fraction or 1.0
        fraction = (side := max(self.image_size)) / self.resize_small
        while math.floor(side / fraction) < self.resize_small:  # by a rounding error
            fraction = math.nextafter(fraction, 0)
        return fraction

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

    @property
    def is_random(self):
        """Whether two applications may differ."""
        return self.crop in CROPS or self.flip or bool(self.augmentations())

    def like(self, preprocessing, crop=True):
        """The transform whose images are normalised and resized as a `Preprocessing` says.

        With `crop` they are cropped so, too, which leaves nothing of the crop to chance.
        """
        p = preprocessing
        is_usual = {*p.mean, *p.std} == {0.5}  # which is the usual value range
        changes = {
            "value_range": (-1.0, 1.0),
            "mean": None if is_usual else p.mean,
            "std": None if is_usual else p.std,
            "interpolation": p.interpolation,
            "library": p.library if p.library in BY_PILLOW else None,
            "round_to_uint8": p.library == "tensorflow_uint8",
        }
        if crop:
            squash = "squash" if p.crop_fraction == 1 else "squash_center"
            name = {"squash": squash, "shortest": "resize_small_center"}.get(p.resize, p.resize)
            fraction = p.crop_fraction if name in CENTERED else None
            changes |= {"crop": name, "crop_fraction": fraction, "resize_small": None}
        return dataclasses.replace(self, **changes)
