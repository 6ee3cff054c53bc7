"""Examples of a source, read and transformed; the next readable one in place of a damaged one."""

import warnings

import numpy as np

from keras_vit.data.apply import apply
from keras_vit.data.files import LISTED, listed
from keras_vit.data.pixels import ImageError, bytes_of

LOST_AT_MOST = 4  # one in four examples may be unreadable


class Reader:
    """(row, rng) -> (pixels, label row, notes): reads an example and transforms it.

    In training the next readable example of the split replaces one that cannot be read; otherwise
    the pixels are None. Notes are (row, reason) of those that cannot.
    """

    def __init__(self, source, rows, *, transform, channels, label_rows, training):
        self.source, self.rows, self.transform = source, rows, transform
        self.channels, self.label_rows, self.training = channels, label_rows, training

    def __call__(self, row, rng):
        notes = []
        for candidate in self._candidates(row):
            try:
                image, label = self._read(candidate)
                pixels = image if isinstance(image, bytes) else bytes_of(image, self.channels)
                pixels = apply(self.transform, pixels, rng, self.channels, self.source.upright)
                return pixels, self.label_rows.row(label), notes
            except ImageError as error:
                notes.append((int(candidate), str(error)))
        return None, None, notes

    def _read(self, row):
        try:
            return self.source[row]
        except MemoryError:
            raise
        except Exception as error:  # of any type, from the codecs of damaged records
            raise ImageError(f"{type(error).__name__}: {error}") from error

    def _candidates(self, row):
        """The row, and in training as many after it as may be unreadable, and one more."""
        yield row
        if self.training:
            first = int(np.flatnonzero(self.rows == row)[0]) + 1
            tried = np.arange(first, first + len(self.rows) // LOST_AT_MOST + 2)
            yield from self.rows.take(tried, mode="wrap")

    def collate(self, examples):
        """(images, label rows, notes) of a batch, without the examples that could not be read."""
        notes = [note for _, _, notes in examples for note in notes]
        read = [(pixels, label) for pixels, label, _ in examples if pixels is not None]
        if read:
            return *map(np.stack, zip(*read)), notes
        shape = (0, *self.transform.image_size, self.channels)
        return np.zeros(shape, np.uint8), np.zeros((0, self.label_rows.width), np.float32), notes


class Unreadable(dict):
    """{row: reason} of the examples of a split that could not be read so far."""

    def add(self, notes, source, num_examples):
        """Adds notes of a `Reader`, with a warning for each of the first examples.

        Raises:
            ValueError: more than one of `LOST_AT_MOST` examples cannot be read.
        """
        for row, reason in notes:
            if row in self:
                continue
            self[row] = reason
            if len(self) > max(1, num_examples // LOST_AT_MOST):
                lines = [f"{source.place(row)}: {reason}" for row, reason in self.items()]
                raise ValueError(
                    f"{len(self)} of {num_examples} examples cannot be read. Received:\n"
                    f"{listed(lines)}\nRepair or remove them."
                )
            if len(self) <= LISTED:  # `Pipeline.skipped` tells the others
                warnings.warn(f"{source.place(row)} is left out: {reason}", stacklevel=4)
