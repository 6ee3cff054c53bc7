"""A `Transform`: what happens to one image on its way into a model, as a value; `apply` does it.

An image is decoded, cropped, resized and perhaps mirrored, and goes through the steps of the
transform, in order. It is normalised later, in a batch.
"""

import dataclasses
import functools
import math

import numpy as np
from PIL import Image

from keras_vit.checks import check_choice, pair, require, whole
from keras_vit.data.augment import AUGMENTATIONS, check_augmentation, find_augmentation
from keras_vit.data.crops import CENTERED, CROPS, RESIZES, cropped
from keras_vit.preprocessing import Preprocessing
from keras_vit.text import brief


def apply(transform, image, rng=None, channels=3, upright=True):
    """Applies a `Transform` to the bytes of an image file, or to uint8 pixels.

    Shapes: (height, width, channels) -> (*transform.image_size, channels) of 0..255, uint8, or
    float32 where the resize keeps fractions. A random transform draws from `rng`. The channels of a
    file are 3 for RGB or 1 for grayscale; `upright` follows its EXIF orientation.

    Raises:
        ImageError: an image that cannot be decoded, or is too small or too long for the transform.

    Source: pp/ops_image.py of big_vision, input_pipeline.py of google-research/vision_transformer.
    """
    pixels = cropped(transform, image, rng, channels, upright)
    if transform.flip and rng.random() < 0.5:
        pixels = pixels[:, ::-1]
    if transform.is_random and pixels.dtype != np.uint8:
        # An average of bytes passes 255 by a rounding error at most.
        pixels = np.clip(pixels + np.float32(0.5), 0, 255).astype(np.uint8)
    if not transform.steps:
        return pixels
    picture = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    for name, *arguments in transform.steps:
        picture = find_augmentation(name)(picture, rng, *arguments)
    return np.asarray(picture).reshape(pixels.shape)


@dataclasses.dataclass(frozen=True)
class Transform:
    """The geometry, augmentation and normalisation of the images of a recipe, in this order.

        Transform(224, "inception", flip=True, randaugment=(2, 10))

    Without chance it is what `keras_vit.data.preprocess` does, by `preprocessing`.

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
            antialias; a random transform rounds its fractions to the nearest grey level.
            `"tensorflow_uint8"` truncates them, as big_vision's pipelines do.
        draft: whether a random crop of a JPEG is decoded at 1/2, 1/4 or 1/8 of its size where it is
            still larger than the result: several times as fast, and smoother than the authors'
            resize, which skips pixels. Other transforms decode in full.
        flip: whether half of the images are mirrored, before the `steps`.
        affine: (rotation in degrees, change of size, move), the largest either way, the last two
            as shares of the image, or `None`.
        augment: further steps in order: names of `AUGMENTATIONS`, or `(name, *arguments)`.
        randaugment: (operations, magnitude of 0 to 30 or more), or `None`; the last step.
        value_range: what 0 and 255 become in a batch; or
        mean, std: a number per channel, for x in [0, 1], which becomes (x - mean) / std.

    Attributes:
        preprocessing: the `keras_vit.Preprocessing` of such images without chance; of a random
            crop, of the whole image.

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
    library: str = "tensorflow"
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
        augment = [self.augment] if isinstance(self.augment, str) else self.augment
        augment = tuple(step if isinstance(step, str) else tuple(step) for step in augment)
        object.__setattr__(self, "augment", augment)
        object.__setattr__(self, "image_size", pair(self.image_size, "image_size"))
        self._check()
        object.__setattr__(self, "preprocessing", self._preprocessing())

    def _check(self):
        check_choice("crop", self.crop, (*CROPS, *RESIZES))
        check_choice("draft", self.draft, (True, False))
        whole(self.padding, "padding")
        (least, most), (narrow, broad), (black, white) = self.area, self.ratio, self.value_range
        rule = "area must be (low, high), above 0 and at most 1"
        require(0 < least <= most <= 1, rule, received=self.area)
        require(0 < narrow <= broad, "ratio must be (low, high), above 0", received=self.ratio)
        require(black < white, "value_range must be (low, high)", received=self.value_range)
        if self.crop_fraction is not None:
            rule = f"crop_fraction must be None unless crop is of {CENTERED}, without resize_small"
            fits = self.crop in CENTERED and self.resize_small is None
            require(fits, rule, received=self.crop_fraction)
        elif self.crop in (*CENTERED, "resize_small_random", "squash_random"):
            side = max(self.image_size)
            rule = f"resize_small must be at least {side} for crop={self.crop!r}"
            require((self.resize_small or 0) >= side, rule, received=self.resize_small)
        has_mean, is_default = self.mean is not None, self.value_range == Transform.value_range
        rule = f"mean must be given with std, or neither; std={brief(self.std)}"
        require(has_mean == (self.std is not None), rule, received=self.mean)
        rule = "value_range must be left out beside mean, which says the same"
        require(is_default or not has_mean, rule, received=self.value_range)
        for name in ("affine", "randaugment"):
            arguments = getattr(self, name)
            rule = f"{name} must be a tuple of its arguments, or None"
            require(isinstance(arguments, tuple | list | None), rule, received=arguments)
        for name, *arguments in self.steps:
            check_choice("augmentation", name, (*AUGMENTATIONS,))
            check_augmentation(name, *arguments)

    @functools.cached_property
    def steps(self):
        """What follows the crop and the flip, in order: (name, *arguments) of each step."""
        steps = []
        if self.affine is not None:
            steps.append(("affine", *self.affine))
        steps += [(step,) if isinstance(step, str) else step for step in self.augment]
        if self.randaugment is not None:
            steps.append(("randaugment", *self.randaugment))
        return steps

    @property
    def is_random(self):
        """Whether two applications may differ."""
        return self.crop in CROPS or self.flip or bool(self.steps)

    def _preprocessing(self):
        """The `preprocessing`, which checks interpolation, library, mean and std."""
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
            library=self.library,
        )

    def _center_fraction(self):
        """`crop_fraction`, which may follow from `resize_small`; 1 of crops that have none."""
        if self.crop not in CENTERED or not self.resize_small:
            return self.crop_fraction or 1.0
        fraction = (side := max(self.image_size)) / self.resize_small
        while math.floor(side / fraction) < self.resize_small:  # by a rounding error
            fraction = math.nextafter(fraction, 0)
        return fraction

    def with_preprocessing(self, preprocessing, crop=True):
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
            "library": p.library,
        }
        if crop:
            squash = "squash" if p.crop_fraction == 1 else "squash_center"
            name = {"squash": squash, "shortest": "resize_small_center"}.get(p.resize, p.resize)
            fraction = p.crop_fraction if name in CENTERED else None
            changes |= {"crop": name, "crop_fraction": fraction, "resize_small": None}
        return dataclasses.replace(self, **changes)
