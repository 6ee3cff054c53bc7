"""An image cropped and resized; random crops by name, which say what box becomes what size.

A crop is a function `(transform, (height, width), rng) -> (box, size, window)`: the box to cut out
of the image, the size to resize it to, and the window of the result to keep, or None for all of
it. Boxes and windows are (top, left, height, width).
"""

import functools
import math

from keras_vit.data.pixels import ImageError, decoding, open_image, orientation, pixels_of
from keras_vit.data.resize import center_window, covering_size, cut, fit_image, resized


def cropped(transform, image, rng, channels, upright):
    """The crop of an image, resized: of the bytes of a file, or of uint8 pixels; see `apply`.

    For a random crop a JPEG is decoded as small as that allows, unless it has to be turned.
    """
    crop, pixels, box = CROPS.get(transform.crop), image, None
    if isinstance(image, bytes):
        received = f"Received: {len(image)} bytes that begin with {image[:8]!r}; "
        with decoding(f"The image cannot be decoded. {received}"), open_image(image) as file:
            if crop and transform.draft and file.format == "JPEG":
                if not upright or orientation(file) == 1:
                    box, size, window = crop(transform, (file.height, file.width), rng=rng)
                    box = _drafted(file, box, size)
            pixels = pixels_of(file, channels, upright)
    if crop is None:
        return fit_image(pixels, transform.image_size, transform.preprocessing)
    if box is None:
        box, size, window = crop(transform, pixels.shape[:2], rng=rng)
    return resized(cut(pixels, box), size, transform.preprocessing, window)


def _drafted(file, box, size):
    """The box in a JPEG that is decoded at 1/2, 1/4 or 1/8 of its size, as far as `size` allows."""
    height, width = file.height, file.width
    enough = [math.ceil(a * new / old) for a, new, old in zip((height, width), size, box[2:])]
    file.draft(None, (enough[1], enough[0]))
    scales = file.height / height, file.width / width
    starts = [int(start * scale + 0.5) for start, scale in zip(box[:2], scales)]
    ends = [int((a + b) * scale + 0.5) for a, b, scale in zip(box[:2], box[2:], scales)]
    return (*starts, *(end - start for start, end in zip(starts, ends)))


def random_window(sides, size, rng):
    """A window of a size within (height, width), each of its places equally likely."""
    top, left = (int(rng.integers(side - wanted + 1)) for side, wanted in zip(sides, size))
    return top, left, *size


def inception_box(height, width, area, ratio, rng):
    """A random box of an image, as for the training of Inception, BiT and ViT.

    The aspect ratio is uniform in `ratio`, then the height is uniform over the whole numbers for
    which the area is in `area`, then the place. A box outside the image is drawn again; after 100
    attempts the whole image is taken. As in TensorFlow, large boxes are therefore rarer than with a
    uniform area, and the last row and column are left out unless the box spans the image.

    Source: `tf.image.sample_distorted_bounding_box` with `min_object_covered=0`,
    sample_distorted_bounding_box_op.cc of TensorFlow.
    """
    smallest, largest = (share * height * width for share in area)
    for _ in range(100):
        aspect = rng.uniform(*ratio)
        low, high = (round(math.sqrt(share / aspect)) for share in (smallest, largest))
        if round(high * aspect) > width:
            high = int((width + 0.5 - 1e-7) / aspect)  # a width may not round up past the image
            if round(high * aspect) > width:
                high -= 1
        high = min(high, height)
        tall = min(low, high)
        tall += int(rng.integers(high - tall + 1))
        # Where rounding has left the bounds, one row more or less is tried, in this order.
        if tall * round(tall * aspect) < smallest:
            tall += 1
        if tall * round(tall * aspect) > largest:
            tall -= 1
        wide = round(tall * aspect)
        if smallest <= tall * wide <= largest and 0 < tall <= height and 0 < wide <= width:
            top = int(rng.integers(height - tall)) if tall < height else 0
            left = int(rng.integers(width - wide)) if wide < width else 0
            return top, left, tall, wide
    return 0, 0, height, width


def random_resized_box(height, width, area, ratio, rng):
    """A random box of an image, as for the training of DeiT and of masked autoencoders.

    The area is uniform in `area`, the logarithm of the aspect ratio in that of `ratio`, then the
    place. A box outside the image is drawn again; after 10 attempts the middle of the image is
    taken, as much as `ratio` allows.

    Source: `RandomResizedCrop.get_params` of torchvision, transforms/transforms.py.
    """
    for _ in range(10):
        covered = rng.uniform(*area) * height * width
        aspect = math.exp(rng.uniform(*map(math.log, ratio)))
        tall, wide = round(math.sqrt(covered / aspect)), round(math.sqrt(covered * aspect))
        if 0 < tall <= height and 0 < wide <= width:
            return random_window((height, width), (tall, wide), rng)
    narrow, broad = ratio
    size = min(height, round(width / narrow)), min(width, round(height * broad))
    return center_window((height, width), size)


def _box(transform, sides, rng, draw):
    """A box that `draw` has drawn, resized."""
    return draw(*sides, transform.area, transform.ratio, rng), transform.image_size, None


def _window(transform, sides, rng):
    """A window of the image whose shorter side, or both, are resized to `resize_small`."""
    size = (transform.resize_small, transform.resize_small)
    if transform.crop == "resize_small_random":
        size = covering_size(sides, size, transform.preprocessing.library)
    return (0, 0, *sides), size, random_window(size, transform.image_size, rng)


def _pad_random(transform, sides, rng):
    padding, size = transform.padding, transform.image_size
    padded = [side + 2 * padding for side in sides]
    if padded[0] < size[0] or padded[1] < size[1]:
        raise ImageError(
            f"crop='pad_random' cuts {size} from an image with {padding} pixels around it, which "
            f"must be as large. Received: an image of {tuple(sides)}; lower image_size, raise "
            "padding, or use another crop"
        )
    top, left, *_ = random_window(padded, size, rng)
    return (top - padding, left - padding, *size), size, None


CROPS = {
    "inception": functools.partial(_box, draw=inception_box),
    "random_resized": functools.partial(_box, draw=random_resized_box),
    "resize_small_random": _window,
    "squash_random": _window,
    "pad_random": _pad_random,
}
# Crops without chance, and what `Preprocessing.resize` calls them. `CROPS` has the random ones.
RESIZES = {
    "resize_small_center": "shortest",
    "center_square": "center_square",
    "squash_center": "squash",
    "squash": "squash",
}
CENTERED = ("resize_small_center", "squash_center")
