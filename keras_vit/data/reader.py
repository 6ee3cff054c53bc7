"""Examples of a source on their way into a batch, and those that cannot be read."""

import dataclasses
import warnings

import numpy as np

from keras_vit.data.files import LISTED, listed
from keras_vit.data.label_rows import LabelRows
from keras_vit.data.pixels import ImageError, bytes_of, decoding, levels_of
from keras_vit.data.sources import Source
from keras_vit.data.transform import Transform, apply

MOST_UNREADABLE = 0.25  # of the examples


@dataclasses.dataclass(eq=False)
class Reader:
    """(row, rng) -> (pixels, labels, notes): reads the example of a row and transforms it.

    Labels are numbers, see `LabelRows`. In training the next readable example of the split replaces
    one that cannot be read; otherwise the pixels are None. Notes are (row, reason) of those that
    cannot. `collate` makes a batch.
    """

    source: Source
    rows: np.ndarray  # numbers of the examples of the split
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
                if not isinstance(image, bytes):
                    # Augmentation works on bytes; without chance it is as in `preprocess`.
                    convert = bytes_of if self.transform.is_random else levels_of
                    image = convert(image, self.channels)
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
        """The batch (images, labels, notes), without the examples that could not be read."""
        notes = [note for _, _, notes in examples for note in notes]
        read = [(pixels, label) for pixels, label, _ in examples if pixels is not None]
        if read:
            return *map(np.stack, zip(*read)), notes
        shape = (0, *self.transform.image_size, self.channels)
        labels = np.zeros((0, self.label_rows.width), np.float32)
        return np.zeros(shape, np.float32), labels, notes


class Unreadable(dict):
    """{row: reason} of the examples of a split that could not be read so far."""

    def __init__(self, source, num_examples):
        super().__init__()
        self.source, self.num_examples = source, num_examples

    def add(self, notes):
        """Adds the notes of a `Reader`, with a warning for each of the first examples.

        Raises:
            ValueError: more than `MOST_UNREADABLE` of the examples cannot be read.
        """
        for row, reason in notes:
            if row in self:
                continue
            self[row] = reason
            if len(self) > max(1, int(self.num_examples * MOST_UNREADABLE)):
                lines = [f"{self.source.place(row)}: {reason}" for row, reason in self.items()]
                raise ValueError(
                    f"{len(lines)} of {self.num_examples} examples cannot be read. Received:\n"
                    f"{listed(lines)}\nRepair or remove them."
                )
            if len(self) <= LISTED:  # `places` tells the others
                warnings.warn(f"{self.source.place(row)} is left out: {reason}", stacklevel=4)

    def places(self):
        """Where they lie, a tuple of text."""
        return tuple(self.source.place(row) for row in sorted(self))
