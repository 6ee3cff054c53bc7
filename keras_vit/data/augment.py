"""Augmentations of one image by name: the steps of a transform, and those that users add."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image, ImageChops, ImageFilter, ImageOps

from keras_vit.checks import require

AUGMENTATIONS = {}


def augmentation(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds a function to those that `Transform.augment` can name; a decorator.

    It is `(image, rng, *arguments) -> image` of PIL images of one mode, RGB or L, and one size. All
    that is random in it must be drawn from `rng`, a `numpy.random.Generator`.
    """
    AUGMENTATIONS[function.__name__] = function
    return function


def find_augmentation(name):
    """The augmentation of a name, which a worker lacks if it has not run all of the script."""
    if name not in AUGMENTATIONS:
        raise RuntimeError(
            f"A worker must know each augmentation. Received: unknown {name!r}; define it in a "
            'module, or in the script outside of `if __name__ == "__main__":`, or use workers=0'
        )
    return AUGMENTATIONS[name]


def check_augmentation(name, *arguments):
    """Raises a ValueError where an augmentation does not take the arguments, as a trial shows.

    One that a user has added may need more than an image of one pixel: its values are not tried.
    """
    function, trial = AUGMENTATIONS[name], (Image.new("RGB", (1, 1)), np.random.default_rng(0))
    try:
        inspect.signature(function).bind(*trial, *arguments)
        if function.__module__ == __name__:
            function(*trial, *arguments)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise ValueError(
            f"The augmentation {name!r} does not take these arguments. Received: "
            f"{(name, *arguments)!r}; {error}"
        ) from error


@augmentation
def affine(image, rng, rotation, scale, shift):
    """Turns, scales and moves an image by one bilinear interpolation; edges are repeated.

    `rotation` in degrees, `scale` and `shift` as shares of the sides are the largest either way.
    """
    rule = "affine takes a rotation, a scale and a shift, none negative and scale below 1"
    fits = min(rotation, scale, shift) >= 0 and scale < 1
    require(fits, rule, received=(rotation, scale, shift))
    # A pixel p of the result is the pixel center + rotate(p - center) / size + shift of the image.
    turn, grow, down, right = rng.uniform(-1, 1, 4)
    angle, size = turn * math.radians(rotation), 1 + grow * scale
    cos, sin = math.cos(angle) / size, math.sin(angle) / size
    width, height = image.size
    around = math.ceil(math.hypot(width, height) / 2 / (1 - scale) + shift * max(image.size))
    rows, columns = (np.arange(-around, n + around).clip(0, n - 1) for n in (height, width))
    padded = Image.fromarray(np.asarray(image)[rows][:, columns])
    x = around + width / 2 + right * shift * width - (cos * width + sin * height) / 2
    y = around + height / 2 + down * shift * height - (cos * height - sin * width) / 2
    matrix = (cos, sin, x, -sin, cos, y)
    return padded.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)


@augmentation
def randaugment(image, rng, operations=2, magnitude=10.0):
    """Applies operations drawn from the sixteen of the authors, each equally likely.

    Rotations, shears and shifts go either way. Shifts (100 pixels at magnitude 10) and cut-outs (80
    pixels wide) are the authors' constants, made for images of about 224 pixels; they use
    magnitudes of 10, 15 and 20. About 0.5 % of pixels differ from theirs by one grey level, and by
    up to three after Sharpness of magnitude 20, where sums depend on their order. About 1 % of
    pixels differ by one position, at rounding ties.

    Source: pp/archive/autoaugment.py of big_vision, a fork of models/official/efficientnet/
    autoaugment.py of tensorflow/tpu; Cubuk et al., RandAugment, https://arxiv.org/abs/1909.13719.
    """
    rule = "randaugment takes a number of operations and a magnitude, from 0 on, such as 2 and 10"
    fits = operations >= 0 and 0 <= magnitude < math.inf
    require(fits, rule, received=(operations, magnitude))
    for index in rng.integers(len(OPERATIONS), size=operations):
        image = tuple(OPERATIONS.values())[index](image, magnitude / 10, rng)
    return image


@augmentation
def random_erasing(
    image,
    rng,
    probability=0.25,
    min_area=0.02,
    max_area=1 / 3,
    min_aspect=0.3,
    max_aspect=None,
    fill="random",
):
    """Replaces a box of some of the images: `augment=[("random_erasing", 0.25)]`.

    The share of the area is uniform in `min_area` to `max_area`, height / width log-uniform in
    `min_aspect` to `max_aspect` (by default 1 / `min_aspect`), the place uniform. A box that would
    not fit is drawn anew, ten times at most, as in torchvision and timm. `fill` is `"random"`, a
    value of 0 to 255 for each pixel and channel as in the paper, or one number of 0 to 255.

    The defaults are timm's and DeiT's; torchvision erases half of the images, of 0.02 to 0.33, in
    black. They erase after the normalisation, and this before it: the grey of a mean is a number
    for `fill`. After RandAugment it is `augment=[("randaugment", 2, 9), "random_erasing"]`.

    Source: Zhong et al., Random Erasing, https://arxiv.org/abs/1708.04896; `RandomErasing` of
    torchvision.transforms and of timm.data.random_erasing.
    """
    largest = 1 / min_aspect if max_aspect is None and min_aspect else max_aspect
    is_fill = fill == "random" or (not isinstance(fill, str) and 0 <= fill <= 255)
    fits = 0 <= probability <= 1 and 0 < min_area <= max_area <= 1 and 0 < min_aspect <= largest
    if not (fits and is_fill):
        raise ValueError(
            "random_erasing takes a probability of 0 to 1, 0 < min_area <= max_area <= 1, 0 < "
            "min_aspect <= max_aspect, and for fill 'random' or a number of 0 to 255. Received: "
            f"{probability=}, {min_area=}, {max_area=}, {min_aspect=}, {max_aspect=}, {fill=}."
        )
    if rng.random() >= probability:
        return image
    width, height = image.size
    for _ in range(10):
        area = rng.uniform(min_area, max_area) * width * height
        aspect = math.exp(rng.uniform(*np.log([min_aspect, largest])))
        tall, wide = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < tall < height and 0 < wide < width:
            top, left = rng.integers(height - tall + 1), rng.integers(width - wide + 1)
            pixels = np.array(image)
            box = pixels[top : top + tall, left : left + wide]
            box[...] = rng.integers(256, size=box.shape) if fill == "random" else fill
            return Image.fromarray(pixels)
    return image


# An operation is a function `(image, level, rng) -> image` of a PIL image, RGB or grayscale. The
# level is a tenth of the magnitude, so that the authors' constants stand as they wrote them.

GRAY = 128  # what comes in where nothing is left, and what a cut-out shows

# tf.image.rgb_to_grayscale: floats in [0, 1] times the weights, times 255.5, truncated. Pillow adds
# a half to round. The small surplus keeps whole numbers from falling to the one below.
_LUMA = [255.5 / 255 * weight for weight in (0.2989, 0.587, 0.114)] + [-0.5 + 1e-4]
# 3 x 3 pixels averaged, the middle one counting five times, truncated.
_SMOOTH = ImageFilter.Kernel((3, 3), (1, 1, 1, 1, 5, 1, 1, 1, 1), scale=13, offset=-0.5 + 1e-3)


def blend(degenerate, image, level):
    """degenerate + share (image - degenerate), truncated: a share of 0.1 at level 0, 1.9 at 1."""
    return Image.blend(degenerate, image, level * 1.8 + 0.1)


def gray(image):
    """The brightness as TensorFlow computes it, in the mode of the image."""
    return image if image.mode == "L" else image.convert("L", _LUMA).convert("RGB")


def contrast(image, level, rng):
    """Mixes with the authors' mean: the number of pixels / 256, whatever the image shows."""
    mean = min(image.width * image.height // 256, 255)
    return blend(Image.new("L", image.size, mean).convert(image.mode), image, level)


def solarize_add(image, level, rng):
    table = [min(value + int(level * 110), 255) if value < 128 else value for value in range(256)]
    return image.point(table * len(image.getbands()))


def posterize(image, level, rng):
    """Keeps some bits of each value; TensorFlow shifts a byte by 7 at most."""
    return ImageOps.posterize(image, min(max(int(level * 4), 1), 8))


def cutout(image, level, rng):
    """A grey square around any pixel, cut off at the border."""
    half = int(level * 40)
    x, y = (int(rng.integers(side)) for side in image.size)
    image = image.copy()
    image.paste(_gray_of(image), (x - half, y - half, x + half, y + half))
    return image


def rotate(image, level, rng):
    """Turns by up to 30 degrees about the middle, in TensorFlow Addons' float32."""
    angle = np.float32(math.radians(_sign(rng) * level * 30))
    cos, sin = np.cos(angle), np.sin(angle)
    right, bottom = (np.float32(side - 1) for side in image.size)
    across = (right - (cos * right - sin * bottom)) / np.float32(2)
    down = (bottom - (sin * right + cos * bottom)) / np.float32(2)
    return move(image, cos, -sin, across, sin, cos, down)


def move(image, a, b, c, d, e, f):
    """The pixel nearest to (a x + b y + c, d x + e y + f) comes to (x, y).

    Pillow counts places from the corner of a pixel, the authors from its centre. The small surplus
    lets a place in the middle between two pixels go to the second one.
    """
    surplus = 0.5 + 1e-3
    matrix = (a, b, c + surplus - (a + b) / 2, d, e, f + surplus - (d + e) / 2)
    return image.transform(image.size, Image.Transform.AFFINE, matrix, fillcolor=_gray_of(image))


def _gray_of(image):
    return GRAY if image.mode == "L" else (GRAY,) * 3


def _sign(rng):
    return 1 if rng.random() < 0.5 else -1


# Their order decides which operation a random number chooses.
OPERATIONS = {
    "AutoContrast": lambda image, level, rng: ImageOps.autocontrast(image),
    "Equalize": lambda image, level, rng: ImageOps.equalize(image),
    "Invert": lambda image, level, rng: ImageChops.invert(image),
    "Rotate": rotate,
    "Posterize": posterize,
    # The threshold wraps around, as the authors' byte does.
    "Solarize": lambda image, level, rng: ImageOps.solarize(image, int(level * 256) % 256),
    "Color": lambda image, level, rng: blend(gray(image), image, level),
    "Contrast": contrast,
    "Brightness": lambda image, level, rng: blend(Image.new(image.mode, image.size), image, level),
    "Sharpness": lambda image, level, rng: blend(image.filter(_SMOOTH), image, level),
    "ShearX": lambda image, level, rng: move(image, 1, _sign(rng) * level * 0.3, 0, 0, 1, 0),
    "ShearY": lambda image, level, rng: move(image, 1, 0, 0, _sign(rng) * level * 0.3, 1, 0),
    "TranslateX": lambda image, level, rng: move(image, 1, 0, _sign(rng) * level * 100, 0, 1, 0),
    "TranslateY": lambda image, level, rng: move(image, 1, 0, 0, 0, 1, _sign(rng) * level * 100),
    "Cutout": cutout,
    "SolarizeAdd": solarize_add,
}
