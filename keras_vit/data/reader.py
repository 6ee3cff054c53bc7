"""Examples of a source on their way into a batch: read, decoded, cropped, flipped, augmented.

The next readable example stands in for a damaged one.
"""

import dataclasses
import math
import warnings

import numpy as np
from PIL import Image

from keras_vit.data.crops import CROPS
from keras_vit.data.files import LISTED, listed
from keras_vit.data.label_rows import LabelRows
from keras_vit.data.pixels import ImageError, bytes_of, decoding, opened, orientation, pixels_of
from keras_vit.data.resize import cut, fit_image, resized
from keras_vit.data.sources import Source
from keras_vit.data.transform import Transform

MOST_UNREADABLE = 0.25  # of the examples


@dataclasses.dataclass(eq=False)
class Reader:
    """(row, rng) -> (pixels, label row, notes): reads an example and transforms it.

    In training the next readable example of the split replaces one that cannot be read; otherwise
    the pixels are None. Notes are (row, reason) of those that cannot.
    """

    source: Source
    rows: np.ndarray  # of the split
    transform: Transform
    channels: int
    label_rows: LabelRows
    training: bool

    def __call__(self, row, rng):
        notes = []
        for candidate in self._candidates(row):
            try:
                with decoding():
                    image, label = self.source[candidate]
                image = image if isinstance(image, bytes) else bytes_of(image, self.channels)
                pixels = apply(self.transform, image, rng, self.channels, self.source.upright)
                return pixels, self.label_rows.row(label), notes
            except ImageError as error:
                notes.append((int(candidate), str(error)))
        return None, None, notes

    def _candidates(self, row):
        """The row, and in training as many after it as may be unreadable, and one more."""
        yield row
        if self.training:
            first = int(np.flatnonzero(self.rows == row)[0]) + 1
            tried = np.arange(first, first + int(len(self.rows) * MOST_UNREADABLE) + 2)
            yield from self.rows.take(tried, mode="wrap")

    def collate(self, examples):
        """(images, label rows, notes) of a batch, without the examples that could not be read."""
        notes = [note for _, _, notes in examples for note in notes]
        read = [(pixels, label) for pixels, label, _ in examples if pixels is not None]
        if read:
            return *map(np.stack, zip(*read)), notes
        shape = (0, *self.transform.image_size, self.channels)
        return np.zeros(shape, np.uint8), np.zeros((0, self.label_rows.width), np.float32), notes


def apply(transform, image, rng=None, channels=3, upright=True):
    """Applies a `Transform` to the bytes of an image file, or to uint8 pixels.

    Shapes: (height, width, channels) -> (*transform.image_size, channels) of 0..255, uint8, or
    float32 where the resize keeps fractions. A random transform draws from `rng`. The channels of a
    file are 3 for RGB or 1 for grayscale; `upright` follows its EXIF orientation.

    Raises:
        ImageError: an image that cannot be decoded, or is too small or too long for the transform.

    Source: pp/ops_image.py of big_vision, input_pipeline.py of google-research/vision_transformer.
    """
    pixels = _cropped(transform, image, rng, channels, upright)
    if transform.flip and rng.random() < 0.5:
        pixels = pixels[:, ::-1]
    if pixels.dtype != np.uint8 and transform.is_random:
        # An average of bytes passes 255 by a rounding error at most.
        pixels = np.clip(pixels + np.float32(0.5), 0, 255).astype(np.uint8)
    augmentations = transform.augmentations()
    if not augmentations:
        return pixels
    pixels = np.ascontiguousarray(pixels)
    picture = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    for function, arguments in augmentations:
        picture = function(picture, rng, *arguments)
    return np.asarray(picture).reshape(pixels.shape)


def _decoded(image, channels, upright):
    """The uint8 pixels of the bytes of a file, or those that are given."""
    if not isinstance(image, bytes):
        return image
    with opened(image) as file:
        return pixels_of(file, channels, upright)


def _cropped(transform, image, rng, channels, upright):
    """The crop of an image, resized; for a random one a JPEG is decoded as small as that allows."""
    if transform.crop not in CROPS:
        pixels = _decoded(image, channels, upright)
        return fit_image(pixels, transform.image_size, transform.preprocessing)
    crop = CROPS[transform.crop]
    if transform.draft and isinstance(image, bytes):
        with opened(image) as file:
            if file.format == "JPEG" and not (upright and orientation(file) > 1):
                box, size, window = crop(transform, (file.height, file.width), rng=rng)
                box = _drafted(file, box, size)
                pixels = pixels_of(file, channels, upright=False)
                return resized(cut(pixels, box), size, transform.preprocessing, window)
    pixels = _decoded(image, channels, upright)
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


def add_unreadable(unreadable, notes, source, num_examples):
    """Adds notes of a `Reader` to {row: reason}, with a warning for each of the first examples.

    Raises:
        ValueError: more than `MOST_UNREADABLE` of the examples cannot be read.
    """
    for row, reason in notes:
        if row in unreadable:
            continue
        unreadable[row] = reason
        if len(unreadable) > max(1, int(num_examples * MOST_UNREADABLE)):
            lines = [f"{source.place(row)}: {reason}" for row, reason in unreadable.items()]
            raise ValueError(
                f"{len(lines)} of {num_examples} examples cannot be read. Received:\n"
                f"{listed(lines)}\nRepair or remove them."
            )
        if len(unreadable) <= LISTED:  # `Pipeline.skipped` tells the others
            warnings.warn(f"{source.place(row)} is left out: {reason}", stacklevel=4)
