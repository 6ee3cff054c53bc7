"""Labelled images of any origin as NumPy batches, one at a time."""

import collections.abc
import typing

import keras
import numpy as np

from keras_vit.checks import positive_int
from keras_vit.data.checks import check_labels, whole_numbers
from keras_vit.data.dataset import ImageDataset

_EXPECTED = (
    "data must be a pair (images, labels) of arrays, a dataset of keras_vit.data.load, a tf.data "
    "dataset, a PyDataset, or an iterable of batches (images, labels)"
)


class Stream(typing.NamedTuple):
    """Batches to go through once.

    Attributes:
        batches: iterator of (images, labels), the labels as the data gave them.
        total: how many batches come, or None where nobody knows.
        class_names: of the data, or None.
        stored: whether the images are pixels as stored, which a model needs preprocessed.
    """

    batches: typing.Iterator
    total: int | None
    class_names: tuple | None = None
    stored: bool = False


def open_stream(data, batch_size=64, steps=None):
    """A `Stream` over anything that Keras takes as labelled images.

    Args:
        data: an `ImageDataset` (its test images); a tuple (images, labels), where images are an
            array or a list of paths; a `keras.utils.PyDataset`; or any iterable of batches:
            tf.data, a torch `DataLoader`, a generator.
        batch_size: images per batch of data that is not batched yet.
        steps: stop after so many batches; needed where the data never ends.

    Raises:
        TypeError: data of another kind.
        ValueError: images and labels of different number, no images, or data without an end.
    """
    batch_size = positive_int(batch_size, "batch_size")
    steps = None if steps is None else positive_int(steps, "steps")
    names = getattr(data, "class_names", None)
    if isinstance(data, ImageDataset):
        batches, total = _slices(data.test_images, data.test_labels, batch_size)
        return _limited(Stream(batches, total, names, True), steps)
    if isinstance(data, tuple):
        return _limited(Stream(*_slices(*_pair(data), batch_size)), steps)
    if isinstance(data, keras.utils.PyDataset):
        _length(data.num_batches, steps)
        return _limited(Stream(iter(data), data.num_batches, names), steps)
    if isinstance(data, (str, bytes, collections.abc.Mapping)) or not hasattr(data, "__iter__"):
        raise TypeError(f"{_EXPECTED}. Received: {type(data).__name__}")
    total = _count(data)
    if total == np.inf:
        _length(None, steps)
        total = None
    return _limited(Stream(iter(data), total, names), steps)


def _pair(data):
    if len(data) != 2:
        raise ValueError(f"{_EXPECTED}. Received: a tuple of {len(data)}")
    images, labels = data
    if not hasattr(images, "__len__") or not hasattr(labels, "__len__"):
        raise TypeError(
            f"{_EXPECTED}. Received: a tuple of {type(images).__name__} and {type(labels).__name__}"
        )
    if len(images) != len(labels):
        raise ValueError(
            "There must be one label for each image. Received: "
            f"{len(images)} images and {len(labels)} labels"
        )
    return images, labels


def _slices(images, labels, batch_size):
    """Batches of arrays that lie in memory, and how many."""
    starts = range(0, len(images), batch_size)
    parts = (slice(start, start + batch_size) for start in starts)
    return ((images[part], labels[part]) for part in parts), len(starts)


def _count(data):
    """Number of batches of an iterable: an int, infinity, or None where it does not say."""
    if hasattr(data, "cardinality"):  # tf.data: -1 for no end, -2 for unknown
        cardinality = int(data.cardinality())
        return {-1: np.inf, -2: None}.get(cardinality, cardinality)
    try:
        return len(data)
    except (TypeError, NotImplementedError):
        return None


def _length(total, steps):
    if total is None and steps is None:
        raise ValueError("The data never ends. Say after how many batches to stop: steps=...")
    return min(n for n in (total, steps) if n is not None)


def _limited(stream, steps):
    """The stream, cut off after `steps` batches, which must be there."""
    if steps is None:
        return stream
    if stream.total is not None and stream.total < steps:
        raise ValueError(f"The data holds {stream.total} batches. Received: steps={steps}")
    return stream._replace(batches=_first(stream.batches, steps), total=steps)


def _first(batches, steps):
    for step in range(steps):
        try:
            yield next(batches)
        except StopIteration:
            raise ValueError(
                f"The data ended after {step} batches. Received: steps={steps}"
            ) from None


def split_batch(batch, index):
    """(images, labels) of a batch in NumPy, without the rows that its weights leave out.

    Args:
        batch: (images, labels), or (images, labels, weights) with weights 0 and 1: rows of weight
            0 fill up a batch and are no examples.
        index: number of the batch, for errors.

    Returns:
        The images, an array or a list of paths, and the labels as an array.
    """
    if not isinstance(batch, (tuple, list)) or len(batch) not in (2, 3):
        kind = f"a {type(batch).__name__} of {len(batch)}" if hasattr(batch, "__len__") else batch
        raise ValueError(
            "Every batch must be (images, labels); map other structures to it, for example "
            "dataset.map(lambda e: (e['image'], e['label'])). "
            f"Received: {kind} as batch {index}"
        )
    images, labels = batch[0], to_numpy(batch[1])
    if not isinstance(images, list):
        images = keras.tree.map_structure(to_numpy, images)
    count = len(images) if isinstance(images, list) else _rows(images, index)
    if labels.ndim == 0 or len(labels) != count:
        raise ValueError(
            "There must be one label for each image of a batch; call .batch(...) on a dataset of "
            f"single images. Received: images of length {count} and labels of shape "
            f"{labels.shape} in batch {index}"
        )
    if len(batch) == 2 or batch[2] is None:
        return images, labels
    kept = _mask(to_numpy(batch[2]), labels, index)
    if isinstance(images, list):
        return [image for image, keep in zip(images, kept) if keep], labels[kept]
    return keras.tree.map_structure(lambda x: x[kept], images), labels[kept]


def _rows(images, index):
    lengths = {len(x) if x.ndim else 0 for x in keras.tree.flatten(images)}
    if len(lengths) != 1:
        raise ValueError(
            f"The images of batch {index} must be arrays of one length. Received: {lengths}"
        )
    return lengths.pop()


def _mask(weights, labels, index):
    if weights.shape != labels.shape[:1] or not np.isin(weights, (0, 1)).all():
        raise ValueError(
            "Weights of examples must be 0 or 1, one for each: an evaluation counts all examples "
            f"alike. Received: weights of shape {weights.shape}, from {weights.min():g} to "
            f"{weights.max():g}, in batch {index}"
        )
    return weights.astype(bool)


def class_numbers(labels, num_classes=None, what="labels"):
    """Labels as int64 class numbers of shape (images,).

    Args:
        labels: whole numbers of shape (images,) or (images, 1), or one-hot rows.
        num_classes: how many classes there are, or None if any number will do.
        what: the name that errors use.

    Raises:
        ValueError: mixed or several classes in one row, another number of columns than classes,
            or numbers outside 0..num_classes - 1.
    """
    labels = to_numpy(labels)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim == 2:
        labels = _from_one_hot(labels, num_classes, what)
    if num_classes is not None:
        return check_labels(labels, num_classes, what).astype(np.int64)
    labels = whole_numbers(labels, what)
    if (labels < 0).any():
        raise ValueError(f"{what} must not be negative. Received: {labels.min()}")
    return labels.astype(np.int64)


def _from_one_hot(labels, num_classes, what):
    if num_classes is not None and labels.shape[1] != num_classes:
        raise ValueError(
            f"One-hot {what} must have one column for each of the {num_classes} classes of the "
            f"model. Received: shape {labels.shape}"
        )
    wrong = ~(np.isin(labels, (0, 1)).all(axis=1) & (labels.sum(axis=1) == 1))
    if wrong.any():
        raise ValueError(
            f"{what} must name one class for each image: class numbers, or rows with a single 1. "
            "Labels that Mixup or smoothing changed are for training only; for several right "
            f"classes see real_accuracy. Received: {int(wrong.sum())} other rows, the first at "
            f"index {int(np.flatnonzero(wrong)[0])}"
        )
    return labels.argmax(axis=1)


def to_numpy(x):
    """A tensor of any backend as an array, whichever backend Keras runs on."""
    if hasattr(x, "detach"):  # torch, perhaps on another device, perhaps in bfloat16
        x = x.detach().cpu()
        x = x.float() if str(x.dtype) == "torch.bfloat16" else x
    return np.asarray(x)
