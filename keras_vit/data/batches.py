"""The batches of a split on Grain, read and mixed: each a function of (seed, step).

A batch is (images, labels, notes). Notes are (row, reason) of examples that could not be read.

Mixup and CutMix mix an image and its label with those of its partner: the image before it in the
batch, or the last image for the first. One share holds for the whole batch, as in big_vision.
"""

import functools
import math
import os
import sys

import keras
import numpy as np

from keras_vit.data.arrays import ArraySource
from keras_vit.data.keras_layers import augment
from keras_vit.data.pixels import convert_channels, normalized
from keras_vit.data.transform import apply
from keras_vit.heads import map_heads
from keras_vit.workarounds import report_ended_workers

LOST_AT_MOST = 4  # one in four examples may be unreadable


def make_batches(read, batch_size, seed, num_classes, mixing=(0, 0), share=(0, 1), layers=()):
    """A `grain.MapDataset` of the batches of a split, by step.

    For training they are shuffled, mixed, full, and repeated without end, with one-hot labels in
    place of class numbers.

    Args:
        read: a `Reader`.
        batch_size: examples per batch, of all processes together.
        seed: decides all that is random.
        num_classes: of the labels.
        mixing: parameters of mixup and CutMix, 0 for none.
        share: (process, processes); the batches hold this process's part.
        layers: configs of `keras_layers.layer_configs`, applied before images are mixed.
    """
    process, processes = share
    collate = functools.partial(_collate, empty=read.empty)
    if not read.training:
        rows = rows_of(share, read.rows, batch_size)
        dataset = import_grain().MapDataset.source(rows).seed(seed).random_map(read)
        return dataset.batch(batch_size // processes, batch_fn=collate)

    # An image is mixed with one that may belong to another process, so that batches are cut later.
    mixes = any(mixing) or bool(layers)
    parts = 1 if mixes else processes
    dataset = import_grain().MapDataset.source(read.rows).seed(seed)
    dataset = dataset.shuffle()  # anew in each epoch
    dataset = dataset.random_map(read)  # read, decode, crop, flip, ...: one uint8 image
    dataset = dataset[: len(read.rows) // batch_size * batch_size]  # full batches only
    dataset = dataset.batch(batch_size // parts, batch_fn=collate)[process % parts :: parts]
    dataset = dataset.map(functools.partial(_one_hot, num_classes=num_classes))
    if layers:
        dataset = dataset.random_map(functools.partial(augment, configs=layers))
    if mixes:
        dataset = dataset.random_map(functools.partial(_mixed_part, alphas=mixing, share=share))
    return dataset.repeat()


def rows_of(share, rows, batch_size):
    """The rows that a process evaluates: its part of every batch, the smaller last one included."""
    process, processes = share
    step, place = np.divmod(np.arange(len(rows)), batch_size)
    size = np.minimum(batch_size, len(rows) - step * batch_size)
    first, last = size * process // processes, size * (process + 1) // processes
    return rows[(place >= first) & (place < last)]


def read_ahead(dataset, mean, std, threads, workers=0):
    """Yields the batches of a finite part of `make_batches`, read ahead, with images in float32.

    `mean` and `std` are those of `normalized`.
    `threads` is how many batches are read at a time, in this process or each of `workers` others.
    """
    grain = import_grain()
    finish = functools.partial(_finish, mean=mean, std=std)
    # One batch waits for each thread: Grain's default of 500 would hold gigabytes.
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=threads)
    if workers:  # bytes travel between processes, a quarter of floats
        from absl import flags

        _check_main()
        report_ended_workers()

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


def threads_for(source, image_size):
    """The number of cores, up to 16; 0 for small images in memory, which threads slow down."""
    if isinstance(source, ArraySource) and math.prod(image_size) <= 64 * 64:
        return 0
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(count or 1, 16)


def _check_main():
    """Lets no worker process start workers of its own while it imports the script."""
    imported = sys.modules.get("__mp_main__")  # the name of the script in a worker
    if imported is not None and imported is not sys.modules["__main__"]:
        raise RuntimeError(
            "A worker process imports the script that was started, which reads a pipeline with "
            'workers at once. Put what the script does below `if __name__ == "__main__":`, or use '
            "workers=0"
        )


def import_grain():
    """The `grain` module, or an ImportError that names the extra."""
    try:
        import grain
    except ImportError as error:
        raise ImportError(
            'A pipeline needs Grain. Install it with: pip install "keras3-vit[data]"'
        ) from error
    return grain


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


def _collate(examples, empty):
    images = [pixels for pixels, _, _ in examples if pixels is not None]
    labels = [label for pixels, label, _ in examples if pixels is not None]
    notes = [note for _, _, notes in examples for note in notes]
    if not images:
        return *empty, notes
    # Of several heads each label is a dict, as the labels of no example are.
    labels = keras.tree.map_structure(
        lambda none, *each: np.array(each, none.dtype), empty[1], *labels
    )
    return np.stack(images), labels, notes


def _one_hot(batch, num_classes):
    images, labels, notes = batch

    def one_hot(numbers, count):
        if numbers.dtype != np.int32:  # several labels, or values
            return numbers
        rows = (numbers[:, None] == np.arange(count)).astype(np.float32)
        rows[numbers < 0] = np.nan  # a label that lacks, also of what is mixed with it
        return rows

    return images, map_heads(one_hot, labels, num_classes), notes


def _mixed_part(batch, rng, alphas, share):
    (images, labels, notes), (process, processes) = batch, share
    images, labels = mix(images, labels, rng, *alphas)
    size = len(images) // processes
    part = slice(process * size, (process + 1) * size)
    return images[part], map_heads(lambda y: y[part], labels), notes


def _finish(batch, mean, std):
    images, labels, notes = batch
    return normalized(images, mean, std), labels, notes


def mix(images, labels, rng, mixup_alpha=0.0, cutmix_alpha=0.0):
    """Mixes a batch by `mixup` or `cutmix`; where both have an alpha, each is equally likely.

    Images are uint8 or float32 of shape (batch, height, width, channels), and float32 where they
    were blended; labels are float32 of shape (batch, classes) or (batch,), of several heads a dict
    of them. An alpha of 0 means no mixing.
    """
    if cutmix_alpha and (not mixup_alpha or rng.random() < 0.5):
        return cutmix(images, labels, rng, cutmix_alpha)
    if mixup_alpha:
        return mixup(images, labels, rng, mixup_alpha)
    return images, labels


def mixup(images, labels, rng, alpha):
    """Mixes every image with its partner: a * image + (1 - a) * partner, the labels alike.

    a is drawn from Beta(alpha, alpha) and replaced by max(a, 1 - a), so that an image keeps at
    least half of itself. The authors use alpha = 0.2, 0.5 and 0.8. The results are float32.

    Source: `get_mixup`, utils.py of big_vision; https://arxiv.org/abs/1710.09412.
    """
    a = rng.beta(alpha, alpha)
    own = np.float32(max(a, 1 - a))
    return tuple(map_heads(_blended, x, own) for x in (images, labels))


def cutmix(images, labels, rng, alpha):
    """Puts a box of its partner into every image, and mixes the labels by its area.

    The share of the box is drawn from Beta(alpha, alpha), with alpha = 1 in the paper, and its
    centre uniformly. The box is cut at the border, and the labels follow the area that is left.

    Source: `rand_bbox`, train.py of clovaai/CutMix-PyTorch; https://arxiv.org/abs/1905.04899.
    """
    height, width = images.shape[1:3]
    side = np.sqrt(1 - rng.beta(alpha, alpha))
    bounds = []
    for length in (height, width):
        half, center = int(length * side) // 2, int(rng.integers(length))
        bounds.append(slice(max(center - half, 0), min(center + half, length)))
    box = (slice(None), *bounds)
    mixed = images.copy()
    mixed[box] = np.roll(images, 1, axis=0)[box]
    share = np.float32(mixed[box][0, ..., 0].size / (height * width))
    return mixed, map_heads(_blended, labels, 1 - share)


def _blended(rows, own):
    """Each row with its partner, of which it keeps the share `own`."""
    return rows * own + np.roll(rows, 1, axis=0) * (1 - own)
