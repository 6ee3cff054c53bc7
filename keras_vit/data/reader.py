"""An example of a source, read and transformed; the next readable one in place of a damaged one."""

import numpy as np

from keras_vit.data.apply import apply
from keras_vit.data.pixels import convert_channels
from keras_vit.heads import map_heads

LOST_AT_MOST = 4  # one in four examples may be unreadable


class Reader:
    """(row, rng) -> (pixels, label, notes): reads an example and transforms it.

    In training the next readable example of the split replaces one that cannot be read; otherwise
    the pixels are None.
    """

    def __init__(self, source, rows, transform, channels, training):
        self.source, self.rows, self.transform = source, rows, transform
        self.image_shape, self.training = (*transform.image_size, channels), training

        def none(problem, shape):
            return np.zeros((0, *shape), np.int32 if problem == "single_label" else np.float32)

        labels = map_heads(none, source.problem, source.label_shape)
        self.empty = np.zeros((0, *self.image_shape), np.uint8), labels  # a batch of no examples

    def __call__(self, row, rng):
        notes, channels = [], self.image_shape[-1]
        for candidate in self._candidates(row):
            try:
                image, label = self._read(candidate)
                if not isinstance(image, bytes):
                    if image.dtype != np.uint8:
                        image = np.rint(image * np.float32(255)).astype(np.uint8)
                    image = convert_channels(image, channels)
                pixels = apply(self.transform, image, rng, channels, self.source.upright)
                return pixels, label, notes
            except (OSError, ValueError) as error:
                notes.append((int(candidate), f"{type(error).__name__}: {error}"))
        return None, -1, notes

    def _read(self, row):
        try:
            return self.source[row]
        except (MemoryError, OSError, ValueError):
            raise
        except Exception as error:  # of any kind, from the codecs of damaged records
            raise ValueError(f"{type(error).__name__}: {error}") from error

    def _candidates(self, row):
        yield row
        if self.training:  # as many as may be unreadable, and one more
            first = int(np.flatnonzero(self.rows == row)[0]) + 1
            tried = range(first, first + len(self.rows) // LOST_AT_MOST + 2)
            yield from (self.rows[index % len(self.rows)] for index in tried)
