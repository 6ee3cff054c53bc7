"""What a model gives for labelled images of any origin, batch by batch."""

import collections.abc
import itertools
import warnings

import keras
import numpy as np

from keras_vit.checks import positive_int
from keras_vit.data.preprocess import preprocess

_EXPECTED = (
    "data must be a pair (images, labels) of arrays, a dataset or a pipeline of keras_vit.data, a "
    "tf.data dataset, a PyDataset, or an iterable of batches (images, labels)"
)
_MARGIN = 0.1  # beyond the range of preprocessed values, which a bicubic resize may leave


def labelled_outputs(model, data, batch_size=64, steps=None, progress=None):
    """Yields (outputs, labels), two arrays, for each batch of the data.

    The model is called with batches of one size, for which a backend compiles once; what fills
    up the last of them is dropped. One batch of images is in memory at a time.

    Args:
        model, data, batch_size, steps, progress: as in `keras_vit.evaluation.evaluate`.

    Raises:
        TypeError: not a Keras model, or data of an unknown kind.
        ValueError: no images, batches that are no (images, labels), images of another shape than
            the model's, or data without an end and no `steps`.
    """
    from rich.console import Console
    from rich.progress import track

    if not isinstance(model, keras.Model):
        raise TypeError(f"model must be a Keras model. Received: {type(model).__name__}")
    found, total = _batches(data, positive_int(batch_size, "batch_size"))
    if steps is not None:
        found = itertools.islice(found, positive_int(steps, "steps"))
        total = steps if total is None else min(steps, total)
    elif total == np.inf:
        raise ValueError("The data never ends. Say after how many batches to stop: steps=...")
    if progress is None:
        console = Console()
        progress = console.is_terminal or console.is_jupyter
    stored, size = hasattr(data, "test_images"), None
    for index, batch in enumerate(track(found, model.name, total, disable=not progress)):
        images, labels = _split(batch, index)
        if not len(labels):
            continue
        images = _prepared(model, images, stored)
        if size is None:
            _warn_of_values(model, images)
            size = len(images)
        yield _predict(model, images, size), labels
    if size is None:
        raise ValueError("The data must hold at least one image. Received: none")


def _batches(data, batch_size):
    """The batches of the data, and how many: infinity where they never end, None if unknown."""
    if hasattr(data, "test_images"):
        data = data.test_images, data.test_labels
    if isinstance(data, tuple):
        return _slices(data, batch_size)
    if isinstance(data, keras.utils.PyDataset):
        return iter(data), np.inf if data.num_batches is None else data.num_batches
    if isinstance(data, (str, bytes, collections.abc.Mapping)) or not hasattr(data, "__iter__"):
        raise TypeError(f"{_EXPECTED}. Received: {type(data).__name__}")
    if hasattr(data, "cardinality"):  # tf.data: -1 for no end, -2 for unknown
        total = int(data.cardinality())
        return iter(data), {-1: np.inf, -2: None}.get(total, total)
    return iter(data), len(data) if hasattr(data, "__len__") else None


def _slices(data, batch_size):
    """Batches of arrays, or of a list of paths with labels."""
    if len(data) != 2 or not all(hasattr(part, "__len__") for part in data):
        kinds = ", ".join(type(part).__name__ for part in data)
        raise TypeError(f"{_EXPECTED}. Received: a tuple of {kinds}")
    images, labels = data
    if len(images) != len(labels):
        raise ValueError(
            "There must be one label for each image. Received: "
            f"{len(images)} images and {len(labels)} labels"
        )
    starts = range(0, len(images), batch_size)
    parts = ((images[i : i + batch_size], labels[i : i + batch_size]) for i in starts)
    return parts, len(starts)


def _split(batch, index):
    """(images, labels) of a batch in NumPy, without the rows of weight 0 that fill it up."""
    if not isinstance(batch, (tuple, list)) or len(batch) not in (2, 3):
        raise ValueError(
            "Every batch must be (images, labels); map other structures to it, for example "
            "dataset.map(lambda e: (e['image'], e['label'])). "
            f"Received: {type(batch).__name__} as batch {index}"
        )
    images = batch[0] if isinstance(batch[0], list) else to_numpy(batch[0])
    labels = to_numpy(batch[1])
    if labels.ndim == 0 or len(labels) != len(images):
        raise ValueError(
            "There must be one label for each image of a batch; call .batch(...) on a dataset of "
            f"single images. Received: images of length {len(images)} and labels of shape "
            f"{labels.shape} in batch {index}"
        )
    if len(batch) == 2 or batch[2] is None:
        return images, labels
    weights = to_numpy(batch[2])
    if weights.shape != labels.shape[:1] or not np.isin(weights, (0, 1)).all():
        raise ValueError(
            "Weights of examples must be 0 or 1, one for each: an evaluation counts all examples "
            f"alike. Received: weights of shape {weights.shape} from {weights.min():g} to "
            f"{weights.max():g} in batch {index}"
        )
    kept = np.flatnonzero(weights)
    images = [images[i] for i in kept] if isinstance(images, list) else images[kept]
    return images, labels[kept]


def _prepared(model, images, stored):
    """Images as the model takes them: see `evaluate` for which ones are preprocessed."""
    files = isinstance(images, list) or images.dtype.kind in "OSU"
    pixels = not files and images.dtype == np.uint8 and hasattr(model, "preprocessing")
    if files or stored or pixels:
        images = preprocess(list(images) if files else images, model)
    expected = getattr(model, "input_shape", None)
    if isinstance(expected, tuple) and (
        images.ndim != len(expected)
        or any(side not in (None, real) for side, real in zip(expected[1:], images.shape[1:]))
    ):
        raise ValueError(
            f"{model.name} takes images of shape {('batch', *expected[1:])}. Received: "
            f"shape {images.shape}; resize the images, or let keras_vit.data.preprocess do it"
        )
    return images


def _warn_of_values(model, images):
    """Warns where values are hardly what the preprocessing of the model makes of pixels."""
    facts = getattr(model, "preprocessing", None)
    if facts is None or images.dtype.kind not in "fiu":
        return
    low = min((0 - mean) / std for mean, std in zip(facts.mean, facts.std))
    high = max((1 - mean) / std for mean, std in zip(facts.mean, facts.std))
    margin = _MARGIN * (high - low)
    least, most = float(images.min()), float(images.max())
    if least < low - margin or most > high + margin or (low < 0 <= least < most):
        warnings.warn(
            f"{model.name} was trained on values from {low:.3g} to {high:.3g}. Received: values "
            f"from {least:.3g} to {most:.3g}, which go into the model as they are; "
            "keras_vit.data.preprocess(images, model) makes them of pixels, and uint8 pixels are "
            "preprocessed here.",
            stacklevel=4,
        )


def _predict(model, images, size):
    """The outputs for images, in calls of `size` images each."""
    outputs = []
    for start in range(0, len(images), size):
        part = images[start : start + size]
        filling = np.repeat(part[-1:], size - len(part), axis=0)
        output = model.predict_on_batch(np.concatenate([part, filling]) if len(filling) else part)
        output = keras.tree.flatten(output)
        if len(output) != 1:
            raise ValueError(
                f"The model must have one output. Received: {model.name!r} with {len(output)}; "
                "pick one: keras.Model(model.inputs, model.outputs[0])"
            )
        outputs.append(to_numpy(output[0])[: len(part)])
    return np.concatenate(outputs)


def class_numbers(labels, num_classes=None, what="labels"):
    """Labels as int64 class numbers of shape (images,).

    Args:
        labels: whole numbers of shape (images,) or (images, 1), or one-hot rows.
        num_classes: how many classes there are, or None if any number will do.
        what: the name that errors use.

    Raises:
        ValueError: mixed or several classes in one row, another number of columns than classes,
            fractions, or numbers outside 0..num_classes - 1.
    """
    labels = to_numpy(labels)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.dtype.kind not in "biuf" or labels.ndim not in (1, 2):
        raise ValueError(
            f"{what} must be class numbers, not names, of shape (images,), or one-hot rows. "
            f"Received: {labels.dtype} of shape {labels.shape}"
        )
    if labels.ndim == 2:
        if num_classes is not None and labels.shape[1] != num_classes:
            raise ValueError(
                f"One-hot {what} must have one column for each of the {num_classes} classes. "
                f"Received: shape {labels.shape}"
            )
        wrong = ~(np.isin(labels, (0, 1)).all(axis=1) & (labels.sum(axis=1) == 1))
        if wrong.any():
            raise ValueError(
                f"{what} must name one class for each image: class numbers, or rows with a single "
                "1. Labels that Mixup or smoothing changed are for training only; for several "
                f"right classes see real_accuracy. Received: {int(wrong.sum())} other rows, the "
                f"first at index {int(wrong.argmax())}"
            )
        return labels.argmax(axis=1)
    highest = 2**53 if num_classes is None else num_classes - 1
    labels = labels.astype("float64") if labels.dtype.kind == "b" else labels
    wrong = ~((labels == np.floor(labels)) & (labels >= 0) & (labels <= highest))
    if wrong.any():
        index = int(wrong.argmax())
        span = "of at least 0" if num_classes is None else f"in 0..{num_classes - 1}"
        raise ValueError(
            f"{what} must be whole numbers {span}. Received: {int(wrong.sum())} others, the first "
            f"{labels[index]} at index {index}"
        )
    return labels.astype(np.int64)


def count_classes(labels, most=10**6):
    """One more than the highest class number, or a ValueError where numbers are hardly classes."""
    count = int(labels.max()) + 1
    if count > most:
        raise ValueError(
            f"There may be at most {most:,} classes. Received: labels up to {count - 1:,}; are "
            "they ids, which np.unique(labels, return_inverse=True) numbers?"
        )
    return count


def to_numpy(x):
    """A tensor of any backend as an array, whichever backend Keras runs on."""
    if hasattr(x, "detach"):  # torch, perhaps on another device, perhaps in bfloat16
        x = x.detach().cpu()
        x = x.float() if str(x.dtype) == "torch.bfloat16" else x
    return np.asarray(x)
