"""The batches of a split on Grain: each a function of (seed, step).

A batch is (images, labels, notes). Notes are (row, reason) of examples that could not be read.
"""

import functools
import warnings

import numpy as np

from keras_vit.data.images import LISTED, listed
from keras_vit.data.mixing import mix
from keras_vit.data.resize import convert_channels
from keras_vit.data.transform import apply, to_range

_LOST_AT_MOST = 4  # one example in so many may be unreadable


def make_batches(read, rows, batch_size, training, seed, num_classes, mixing=(0, 0), share=(0, 1)):
    """The batches of a split by step.

    Args:
        read: a `Reader`.
        rows: int64, the numbers of the examples of the split.
        batch_size: examples per batch, of all processes together.
        training: whether to shuffle, mix, repeat, and give one-hot labels and full batches only.
        seed: decides all that is random.
        num_classes: of the labels.
        mixing: parameters of mixup and CutMix, 0 for none.
        share: (process, processes): whose part of every batch this is.

    Returns:
        A `grain.MapDataset`, without end in training.
    """
    process, processes = share
    collate = functools.partial(_collate, image_shape=read.image_shape)
    if not training:
        rows = rows_of(share, rows, batch_size)
        dataset = import_grain().MapDataset.source(rows).seed(seed).random_map(read)
        return dataset.batch(batch_size // processes, batch_fn=collate)

    # Mixed images need those of the other processes, and are cut after it.
    parts = 1 if any(mixing) else processes
    dataset = import_grain().MapDataset.source(rows).seed(seed)
    dataset = dataset.shuffle()  # anew in each epoch
    dataset = dataset.random_map(read)  # read, decode, crop, flip, ...: one uint8 image
    dataset = dataset[: len(rows) // batch_size * batch_size]  # full batches only
    dataset = dataset.batch(batch_size // parts, batch_fn=collate)[process % parts :: parts]
    dataset = dataset.map(functools.partial(_one_hot, num_classes=num_classes))
    if any(mixing):
        dataset = dataset.random_map(functools.partial(_mixed, alphas=mixing))
        dataset = dataset.map(functools.partial(_cut, share=share))
    return dataset.repeat()


def rows_of(share, rows, batch_size):
    """The rows of a process in an evaluation: its part of every batch, also of a smaller last."""
    process, processes = share
    step, place = np.divmod(np.arange(len(rows)), batch_size)
    size = np.minimum(batch_size, len(rows) - step * batch_size)
    first, last = size * process // processes, size * (process + 1) // processes
    return rows[(place >= first) & (place < last)]


def read_ahead(dataset, value_range, threads, workers=0):
    """Iterates over batches from `make_batches`, read in threads or in processes beside this one.

    Args:
        dataset: a finite part of such a dataset.
        value_range: what 0 and 255 become.
        threads: batches that are read at a time, in each process.
        workers: processes, or 0.

    Yields:
        (images, labels, notes), the images float32 in `value_range`.
    """
    grain = import_grain()
    finish = functools.partial(_finish, value_range=value_range)
    # One batch waits for each thread: Grain's default of 500 would hold gigabytes.
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=threads)
    if workers:  # bytes travel between processes, a quarter of floats
        from absl import flags

        if not flags.FLAGS.is_parsed():  # Grain reads some, also in programs that are no absl apps
            flags.FLAGS.mark_as_parsed()
        processes = grain.MultiprocessingOptions(num_workers=workers)
        batches = dataset.to_iter_dataset(options).mp_prefetch(processes).map(finish)
    else:
        batches = dataset.map(finish).to_iter_dataset(options)
    iterator = iter(batches)
    try:
        yield from iterator
    finally:
        iterator.close()


def import_grain():
    """Returns the `grain` module, or raises ImportError naming the extra."""
    try:
        import grain
    except ImportError as error:
        raise ImportError(
            'A pipeline needs Grain. Install it with: pip install "keras3-vit[data]"'
        ) from error
    return grain


class Unreadable(dict):
    """Row -> reason, of the examples that could not be read so far.

    Args:
        place: row -> where the example lies, text.
        total: number of examples in the split.
    """

    def __init__(self, place, total):
        super().__init__()
        self.place, self.total = place, total

    def add(self, notes):
        """Takes examples down, with a warning for each of the first ones.

        Raises:
            ValueError: more than a quarter of the examples cannot be read.
        """
        for row, reason in notes:
            if row in self:
                continue
            self[row] = reason
            if len(self) > max(1, self.total // _LOST_AT_MOST):
                lines = [f"{self.place(row)}: {reason}" for row, reason in self.items()]
                raise ValueError(
                    f"{len(self)} of {self.total} examples cannot be read. Received:\n"
                    f"{listed(lines)}\nRepair or remove them."
                )
            if len(self) <= LISTED:
                more = "; no more of them are reported, see `skipped`" * (len(self) == LISTED)
                warnings.warn(f"{self.place(row)} is left out: {reason}{more}", stacklevel=4)


class Reader:
    """(row, rng) -> (pixels, label, notes): reads an example and transforms it.

    In training the next example of the split that can be read stands in; otherwise the pixels are
    None.
    """

    def __init__(self, source, rows, transform, channels, training):
        self.source, self.rows, self.transform = source, rows, transform
        self.image_shape, self.training = (*transform.image_size, channels), training

    def __call__(self, row, rng):
        notes = []
        for candidate in self._candidates(row):
            try:
                image, label = self._read(candidate)
                channels, upright = self.image_shape[-1], self.source.upright
                pixels = apply(self.transform, image, rng, channels, upright)
                return pixels, label, notes
            except (OSError, ValueError) as error:
                notes.append((int(candidate), f"{type(error).__name__}: {error}"))
        return None, -1, notes

    def _candidates(self, row):
        yield row
        if self.training:  # as many as may be unreadable, and one more
            first = int(np.flatnonzero(self.rows == row)[0]) + 1
            tried = range(first, first + len(self.rows) // _LOST_AT_MOST + 2)
            yield from (self.rows[index % len(self.rows)] for index in tried)

    def _read(self, row):
        try:
            image, label = self.source[row]
        except (MemoryError, OSError, ValueError):
            raise
        except Exception as error:  # of any kind, from the codecs of damaged records
            raise ValueError(f"{type(error).__name__}: {error}") from error
        if not isinstance(image, bytes):
            image = convert_channels(image, self.image_shape[-1])
        return image, label


def _collate(examples, image_shape):
    kept = [(pixels, label) for pixels, label, _ in examples if pixels is not None]
    notes = [note for _, _, notes in examples for note in notes]
    images = [pixels for pixels, _ in kept]
    images = np.stack(images) if images else np.zeros((0, *image_shape), np.uint8)
    return images, np.array([label for _, label in kept], np.int32), notes


def _one_hot(batch, num_classes):
    images, labels, notes = batch
    one_hot = np.zeros((len(labels), num_classes), np.float32)
    one_hot[np.arange(len(labels)), labels] = 1
    return images, one_hot, notes


def _mixed(batch, rng, alphas):
    images, labels, notes = batch
    return *mix(images, labels, rng, *alphas), notes


def _cut(batch, share):
    (images, labels, notes), (process, processes) = batch, share
    size = len(images) // processes
    part = slice(process * size, (process + 1) * size)
    return images[part], labels[part], notes


def _finish(batch, value_range):
    images, labels, notes = batch
    return to_range(images, value_range), labels, notes
