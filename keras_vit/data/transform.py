"""What happens to one image on its way into a model, as a value."""

import dataclasses

from keras_vit.checks import pair
from keras_vit.data import randaugment_tables

CROPS = (
    "inception",
    "resize_small_random",
    "squash_random",
    "pad_random",
    "resize_small_center",
    "squash_center",
    "squash",
)


@dataclasses.dataclass(frozen=True)
class Transform:
    """The geometry, augmentation and value range of the images of a recipe.

    In the order in which they happen: crop and resize, flip, affine map, RandAugment, value range.

    Attributes:
        image_size: (height, width) of the result, in pixels; an int stands for a square.
        crop: one of
            - `"inception"`: a random box of `area` and `ratio`, resized (training);
            - `"resize_small_random"`: the shorter side resized to `resize_small`, then a random
              window (training, big_vision's `resmall_crop`);
            - `"squash_random"`: resized to a square of `resize_small` without regard to the aspect
              ratio, then a random window (training, BiT-HyperRule);
            - `"pad_random"`: `padding` pixels around, then a random window (small images);
            - `"resize_small_center"`: the shorter side resized to `resize_small`, then the middle;
            - `"squash_center"`: resized to a square of `resize_small` without regard to the aspect
              ratio, then the middle (the authors' few-shot evaluation);
            - `"squash"`: resized without regard to the aspect ratio.
        area: smallest and largest share of the image that an inception crop covers.
        ratio: smallest and largest width / height of an inception crop.
        resize_small: shorter side in front of a window, or side of the square, in pixels.
        padding: pixels of zeros on each side in front of a `"pad_random"` window.
        flip: whether half of the images are mirrored.
        affine: (rotation in degrees, change of size, move), the largest either way, the last two
            as shares of the image, or `None`.
        randaugment: (operations, magnitude of 0 to 30 or more), or `None`.
        interpolation: `"bilinear"`, without antialiasing, or `"area"`.
        round_to_uint8: whether the resized image is truncated to whole grey levels, as in
            big_vision's pipelines. In front of RandAugment this happens in any case.
        value_range: what 0 and 255 become.
    """

    image_size: tuple[int, int]
    crop: str = "squash"
    area: tuple[float, float] = (0.05, 1.0)
    ratio: tuple[float, float] = (0.75, 1.33)
    resize_small: int | None = None
    padding: int = 4
    flip: bool = False
    affine: tuple[float, float, float] | None = None
    randaugment: tuple[int, float] | None = None
    interpolation: str = "bilinear"
    round_to_uint8: bool = False
    value_range: tuple[float, float] = (-1.0, 1.0)

    def __post_init__(self):
        object.__setattr__(self, "image_size", pair(self.image_size, "image_size"))
        if self.crop not in CROPS:
            raise ValueError(f"crop must be one of {CROPS}. Received: crop={self.crop!r}.")
        if self.interpolation not in ("bilinear", "area"):
            raise ValueError(
                "interpolation must be 'bilinear' or 'area'. Received: "
                f"interpolation={self.interpolation!r}."
            )
        if self.crop.startswith(("resize_small", "squash_")) and not (
            self.resize_small and self.resize_small >= max(self.image_size)
        ):
            raise ValueError(
                f"crop={self.crop!r} cuts {self.image_size} from an image whose shorter side is "
                f"resize_small pixels. Received: resize_small={self.resize_small}."
            )
        for name in ("area", "ratio"):
            low, high = getattr(self, name)
            if not 0 < low <= high or (name == "area" and high > 1):
                raise ValueError(f"{name} must be (low, high), positive. Received: {low, high}.")
        self._check_values()

    def _check_values(self):
        low, high = self.value_range
        if not low < high:
            raise ValueError(f"value_range must be (low, high), low < high. Received: {low, high}.")
        if isinstance(self.padding, bool) or not isinstance(self.padding, int) or self.padding < 0:
            raise ValueError(
                "padding must be a whole number of pixels >= 0. "
                f"Received: padding={self.padding!r}."
            )
        if self.affine is not None:
            rotation, scale, shift = self.affine
            if min(rotation, scale, shift) < 0 or scale >= 1:
                raise ValueError(
                    "affine must be (rotation, scale, shift), none negative and scale below 1. "
                    f"Received: affine={self.affine!r}."
                )
        if self.augments:
            if not isinstance(self.randaugment, (tuple, list)) or len(self.randaugment) != 2:
                raise ValueError(
                    "randaugment must be (operations, magnitude), such as (2, 10), or None. "
                    f"Received: randaugment={self.randaugment!r}."
                )
            randaugment_tables.check(*self.randaugment)

    @property
    def is_random(self):
        """Whether two applications may differ."""
        is_cut_at_random = "random" in self.crop or self.crop == "inception"
        return is_cut_at_random or self.flip or self.augments or self.affine is not None

    @property
    def augments(self):
        """Whether RandAugment is part of it."""
        return self.randaugment is not None
