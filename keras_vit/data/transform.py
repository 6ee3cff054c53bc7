"""What happens to one image on its way into a model: a value, and the functions it names.

A crop is a function in `CROPS`, an augmentation one in `augment.AUGMENTATIONS`.
"""

import dataclasses
import functools
import math

import numpy as np
from PIL import Image

from keras_vit.checks import check_choice, pair, positive_int
from keras_vit.data.augment import AUGMENTATIONS
from keras_vit.data.pixels import open_image, orientation, pixels_of
from keras_vit.data.resize import center_window, covering_size, cut, tensorflow_resize
from keras_vit.text import brief

_ATTEMPTS = 100  # of `tf.image.sample_distorted_bounding_box`


@dataclasses.dataclass(frozen=True)
class Transform:
    """The geometry, augmentation and value range of the images of a recipe.

    In the order in which they happen: crop and resize, flip, affine map, augmentations by name,
    RandAugment; and, once a batch stands, the value range.

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
        augment: names of `AUGMENTATIONS`, or `(name, *arguments)`, in order.
        randaugment: (operations, magnitude of 0 to 30 or more), or `None`.
        interpolation: `"bilinear"`, without antialiasing, or `"area"`.
        round_to_uint8: whether the resized image is truncated to whole grey levels, as in
            big_vision's pipelines. Without it a random transform rounds to the nearest, and
            another one keeps the fractions.
        value_range: what 0 and 255 become.

    Raises:
        ValueError: a value out of its range.
    """

    image_size: tuple[int, int]
    crop: str = "squash"
    area: tuple[float, float] = (0.05, 1.0)
    ratio: tuple[float, float] = (0.75, 1.33)
    resize_small: int | None = None
    padding: int = 4
    flip: bool = False
    affine: tuple[float, float, float] | None = None
    augment: tuple = ()
    randaugment: tuple[int, float] | None = None
    interpolation: str = "bilinear"
    round_to_uint8: bool = False
    value_range: tuple[float, float] = (-1.0, 1.0)

    def __post_init__(self):
        object.__setattr__(self, "image_size", pair(self.image_size, "image_size"))
        steps = [self.augment] if isinstance(self.augment, str) else self.augment
        steps = tuple(step if isinstance(step, str) else tuple(step) for step in steps)
        object.__setattr__(self, "augment", steps)
        _check(self)

    @property
    def is_random(self):
        """Whether two applications may differ."""
        is_cut_at_random = "random" in self.crop or self.crop == "inception"
        return is_cut_at_random or self.flip or bool(self.augmentations())

    def augmentations(self):
        """(function, arguments) of each `(image, rng, *arguments) -> image` after the flip."""
        steps = [("affine", *self.affine)] if self.affine is not None else []
        steps += [(step,) if isinstance(step, str) else step for step in self.augment]
        steps += [("randaugment", *self.randaugment)] if self.randaugment is not None else []
        return [(AUGMENTATIONS[name], arguments) for name, *arguments in steps]


def apply(transform, image, rng=None, channels=3, upright=True):
    """Applies a transform to one image.

    Args:
        transform: a `Transform`.
        image: the bytes of an image file, or uint8 pixels of shape (height, width, channels).
        rng: a `numpy.random.Generator`, which a random transform draws from.
        channels: 3 for RGB or 1 for grayscale, of a file.
        upright: whether to turn a file's image as its EXIF orientation says.

    Returns:
        Shape (*transform.image_size, channels), values 0..255: uint8, or float32 where the resize
        keeps fractions; see `Transform.round_to_uint8`.

    Source: pp/ops_image.py of big_vision, input_pipeline.py of google-research/vision_transformer.
    """
    crop = functools.partial(CROPS[transform.crop], transform)
    if isinstance(image, bytes):
        image, (box, size, window) = _decode(image, crop, rng, channels, upright)
    else:
        box, size, window = crop(image.shape[:2], rng)
    pixels, mirrored = cut(image, box), transform.flip and rng.random() < 0.5
    if tuple(size) != pixels.shape[:2] or window is not None:
        pixels = tensorflow_resize(pixels, size, transform.interpolation, window, mirrored)
    elif mirrored:
        pixels = pixels[:, ::-1]
    if pixels.dtype != np.uint8 and (transform.round_to_uint8 or transform.is_random):
        # An average of bytes passes 255 by a rounding error at most, so nothing is clipped.
        if not transform.round_to_uint8:
            pixels += np.float32(0.5)
        pixels = pixels.astype(np.uint8)
    if augmentations := transform.augmentations():
        pixels = np.ascontiguousarray(pixels)
        picture = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
        for function, arguments in augmentations:
            picture = function(picture, rng, *arguments)
        pixels = np.asarray(picture).reshape(pixels.shape)
    return pixels


def _decode(encoded, crop, rng, channels, upright):
    """The pixels of a file, and the crop of them: (box, size, window).

    A JPEG of which a crop is to be made half as large or smaller is decoded at 1/2, 1/4 or 1/8 of
    its size, as far as the crop allows.
    """
    try:
        with open_image(encoded) as image:
            turned = orientation(image) if upright else 1
            sides = (image.width, image.height) if turned >= 5 else (image.height, image.width)
            box, size, window = crop(sides, rng)
            if turned == 1 and image.format == "JPEG":
                enough = [math.ceil(a * new / old) for a, new, old in zip(sides, size, box[2:])]
                image.draft(None, (enough[1], enough[0]))
                scale = image.height / sides[0], image.width / sides[1]
                box = tuple(round(length * scale[i % 2]) for i, length in enumerate(box))
            if turned == 1 and image.mode == "RGB":  # before pixels leave Pillow's memory
                top, left, height, width = box
                image = image.crop((left, top, left + width, top + height))
                box = 0, 0, height, width
            return pixels_of(image, channels, upright), (box, size, window)
    except MemoryError:
        raise
    # Pillow's decoders answer damaged files with errors of many unrelated types.
    except Exception as error:
        raise ValueError(
            f"The image cannot be decoded. Received: {len(encoded)} bytes that begin with "
            f"{encoded[:8]!r} ({type(error).__name__}: {error})"
        ) from error


# A crop is a function `(transform, (height, width), rng)` that returns the box to cut out of the
# image, the size to resize it to, and the window of the result to keep, or None for all of it.
# Boxes and windows are (top, left, height, width).


def _inception(transform, sides, rng):
    return inception_box(*sides, transform.area, transform.ratio, rng), transform.image_size, None


def _pad_random(transform, sides, rng):
    padding, size = transform.padding, transform.image_size
    padded = [side + 2 * padding for side in sides]
    if padded[0] < size[0] or padded[1] < size[1]:
        raise ValueError(
            f"crop='pad_random' cuts {size} from an image with {padding} pixels around it, which "
            f"must be as large. Received: an image of {tuple(sides)}; lower image_size, raise "
            "padding, or use another crop"
        )
    top, left, *_ = random_window(padded, size, rng)
    return (top - padding, left - padding, *size), size, None


def _resized(keep_ratio, random):
    """A window of an image whose shorter side, or both sides, are resized to `resize_small`."""

    def crop(transform, sides, rng):
        size = (transform.resize_small,) * 2
        if keep_ratio:
            size = covering_size(sides, size)
        if random:
            return (0, 0, *sides), size, random_window(size, transform.image_size, rng)
        return (0, 0, *sides), size, center_window(size, transform.image_size)

    return crop


CROPS = {
    "inception": _inception,
    "resize_small_random": _resized(keep_ratio=True, random=True),
    "squash_random": _resized(keep_ratio=False, random=True),
    "pad_random": _pad_random,
    "resize_small_center": _resized(keep_ratio=True, random=False),
    "squash_center": _resized(keep_ratio=False, random=False),
    "squash": lambda transform, sides, rng: ((0, 0, *sides), transform.image_size, None),
}


def random_window(sides, size, rng):
    """A window of a size within (height, width), each of its places equally likely."""
    top, left = (int(rng.integers(side - wanted + 1)) for side, wanted in zip(sides, size))
    return top, left, *size


def inception_box(height, width, area, ratio, rng):
    """A random box of an image, as for the training of Inception, BiT and ViT.

    The aspect ratio is uniform in `ratio`, then the height is uniform over the whole numbers for
    which the area is in `area`, then the place. A box outside the image is drawn again;
    after 100 attempts the whole image is taken. Large boxes are therefore rarer than with a
    uniform area, and the last row and column are left out unless the box spans the image: both as
    in TensorFlow.

    Source: `tf.image.sample_distorted_bounding_box` with `min_object_covered=0`,
    sample_distorted_bounding_box_op.cc of TensorFlow.
    """
    smallest, largest = (share * height * width for share in area)
    for _ in range(_ATTEMPTS):
        aspect = rng.uniform(*ratio)
        low, high = (round(math.sqrt(share / aspect)) for share in (smallest, largest))
        if round(high * aspect) > width:
            high = int((width + 0.5 - 1e-7) / aspect)  # a width may not round up past the image
            high -= round(high * aspect) > width
        high = min(high, height)
        tall = min(low, high)
        tall += int(rng.integers(high - tall + 1))
        # Where rounding has left the bounds, one row more or less is tried, in this order.
        tall += tall * round(tall * aspect) < smallest
        tall -= tall * round(tall * aspect) > largest
        wide = round(tall * aspect)
        if smallest <= tall * wide <= largest and 0 < tall <= height and 0 < wide <= width:
            top = int(rng.integers(height - tall)) if tall < height else 0
            left = int(rng.integers(width - wide)) if wide < width else 0
            return top, left, tall, wide
    return 0, 0, height, width


def _check(transform):
    def require(name, holds, rule):
        if not holds:
            raise ValueError(f"{name} must be {rule}. Received: {brief(getattr(transform, name))}.")

    crop, smaller = transform.crop, transform.resize_small or 0
    check_choice("crop", crop, tuple(CROPS))
    check_choice("interpolation", transform.interpolation, ("bilinear", "area"))
    cuts = crop.startswith(("resize_small", "squash_"))
    fits = not cuts or smaller >= max(transform.image_size)
    require("resize_small", fits, f"at least image_size={transform.image_size} for crop={crop!r}")
    low, high = transform.area
    require("area", 0 < low <= high <= 1, "(low, high), above 0 and at most 1")
    low, high = transform.ratio
    require("ratio", 0 < low <= high, "(low, high), above 0")
    low, high = transform.value_range
    require("value_range", low < high, "(low, high)")
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
