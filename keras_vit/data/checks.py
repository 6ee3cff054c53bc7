"""Checks that stop bad data before training starts, where the cause is still in sight."""

import dataclasses

import numpy as np

MOST_CLASSES = 100_000
# Floats that went through a resize can overshoot 1 by a few units in the last place.
_TOLERANCE = 1e-6


def check_images(images, what="images"):
    """Checks image pixels and returns them as uint8 or float32.

    Args:
        images: shape (images, height, width, channels); uint8 in 0..255, or floats in
            [0, 1].
        what: the name that errors use for this array.

    Returns:
        The same pixels: uint8 unchanged, any float type as float32.

    Raises:
        ValueError: not rank 4, empty, another dtype, NaN or infinite pixels, or floats
            outside [0, 1].
    """
    images = np.asarray(images)
    if images.ndim != 4:
        hint = " Add the channel axis with images[..., None]." if images.ndim == 3 else ""
        raise ValueError(
            f"{what} must have shape (images, height, width, channels).{hint} "
            f"Received: shape {images.shape}"
        )
    if images.size == 0:
        raise ValueError(
            f"{what} must hold at least one image with at least one pixel. "
            f"Received: shape {images.shape}"
        )
    if images.dtype == np.uint8:
        return images
    if images.dtype.kind != "f":
        raise ValueError(
            f"{what} must be uint8 in 0..255 or float in [0, 1]; convert with "
            f"images.astype('uint8') if the values are 0..255. Received: dtype {images.dtype}"
        )
    _check_floats(images, what)
    return images.astype(np.float32, copy=False)


def _check_floats(images, what):
    finite = np.isfinite(images)
    if not finite.all():
        first = int(np.flatnonzero(~finite.all(axis=(1, 2, 3)))[0])
        nans = int(np.isnan(images).sum())
        infinite = int(finite.size - finite.sum()) - nans
        raise ValueError(
            f"{what} must be finite; repair or remove the images concerned. Received: "
            f"{nans} NaN and {infinite} infinite pixels, the first in image {first}"
        )
    low, high = float(images.min()), float(images.max())
    if low < -_TOLERANCE or high > 1 + _TOLERANCE:
        raise ValueError(
            f"{what} of a float dtype must lie in [0, 1]. Received: values from {low:g} to "
            f"{high:g}. Divide by 255 if they are 0..255, or use (images + 1) / 2 if they "
            "are -1..1"
        )


def check_labels(labels, num_classes, what="labels"):
    """Checks class labels and returns them as int32.

    Args:
        labels: shape (images,), whole numbers in 0..num_classes - 1 of any numeric type.
        num_classes: how many classes there are.
        what: the name that errors use for this array.

    Returns:
        int32 array, shape (images,).

    Raises:
        ValueError: one-hot or otherwise not rank 1, not numbers, fractional, negative, or
            not below `num_classes`.
    """
    labels = whole_numbers(labels, what, num_classes)
    wrong = (labels < 0) | (labels >= num_classes)
    if wrong.any():
        values = _some(np.unique(labels[wrong]))
        raise ValueError(
            f"{what} must lie in 0..{num_classes - 1} for {num_classes} classes. Received: "
            f"{int(wrong.sum())} labels outside, with values {values}, the first at index "
            f"{int(np.flatnonzero(wrong)[0])}. Renumber the labels from 0, or give every "
            "class a name"
        )
    return labels.astype(np.int32)


def whole_numbers(labels, what, num_classes=None):
    """Returns labels as a rank-1 array of whole numbers, of whatever numeric type came.

    Raises:
        ValueError: not rank 1, not numbers, or fractional.
    """
    labels = np.asarray(labels)
    if labels.ndim == 2 and labels.shape[1] > 1:
        width = f" and num_classes={num_classes}" if num_classes is not None else ""
        raise ValueError(
            f"{what} must have shape (images,), one class number per image; for one-hot "
            "labels or probabilities take labels.argmax(axis=-1). Received: shape "
            f"{labels.shape}{width}"
        )
    if labels.ndim != 1:
        raise ValueError(
            f"{what} must have shape (images,), one class number per image; flatten with "
            f"labels.reshape(-1). Received: shape {labels.shape}"
        )
    if labels.dtype.kind not in "biuf":
        raise ValueError(
            f"{what} must be whole numbers, not names; number the classes from 0. "
            f"Received: dtype {labels.dtype}"
        )
    if labels.dtype.kind == "f":
        # Written so that NaN, which equals nothing, counts as fractional.
        fractional = ~(labels == np.floor(labels))
        if fractional.any():
            raise ValueError(
                f"{what} must be whole numbers; class probabilities and regression targets "
                f"are not labels. Received: values {_some(np.unique(labels[fractional]))}, "
                f"the first at index {int(np.flatnonzero(fractional)[0])}"
            )
    return labels


def count_classes(labels, what="labels"):
    """The number of classes of labels without names: one more than the largest.

    Args:
        labels: list of arrays of whole numbers.
        what: the name that errors use.

    Raises:
        ValueError: so many that the labels are identifiers rather than classes.
    """
    count = 1 + max((int(values.max()) for values in labels if len(values)), default=0)
    if count > MOST_CLASSES:
        raise ValueError(
            f"{what} must number the classes from 0 on; at most {MOST_CLASSES} are taken. "
            f"Received: {count - 1}. Are they identifiers? Renumber them with "
            "numpy.unique(labels, return_inverse=True)[1]"
        )
    return count


def check_channels(channels):
    """Raises ValueError unless `channels` is None, 1 (grayscale) or 3 (RGB)."""
    if channels is not None and not (type(channels) is int and channels in (1, 3)):
        raise ValueError(
            "channels must be 1 (grayscale), 3 (RGB) or None (as they come). "
            f"Received: channels={channels!r}"
        )


def check_dataset(dataset):
    """Checks a whole dataset: each array, and that the arrays belong together.

    Args:
        dataset: an `ImageDataset`.

    Returns:
        The dataset with labels as int32 and images as uint8 or float32.

    Raises:
        ValueError: whatever `check_images` and `check_labels` refuse, images and labels of
            different lengths, train and test images of different shapes, or no class names.
    """
    if not dataset.class_names:
        raise ValueError(
            f"class_names of {dataset.name!r} must name at least one class. "
            f"Received: {dataset.class_names!r}"
        )
    arrays = {}
    for part in ("train", "test"):
        images = check_images(getattr(dataset, f"{part}_images"), f"{part}_images")
        labels = check_labels(
            getattr(dataset, f"{part}_labels"), dataset.num_classes, f"{part}_labels"
        )
        if len(images) != len(labels):
            raise ValueError(
                f"{part}_images and {part}_labels must have the same length. Received: "
                f"{len(images)} images and {len(labels)} labels"
            )
        arrays[f"{part}_images"], arrays[f"{part}_labels"] = images, labels
    train_shape, test_shape = (arrays[f"{part}_images"].shape[1:] for part in ("train", "test"))
    if train_shape != test_shape:
        raise ValueError(
            "train_images and test_images must have the same (height, width, channels). "
            f"Received: {train_shape} and {test_shape}; resize one of them"
        )
    return dataclasses.replace(dataset, **arrays)


def _some(values, limit=5):
    """The first few values, as text."""
    shown = ", ".join(str(value) for value in values[:limit].tolist())
    return f"[{shown}, ...]" if len(values) > limit else f"[{shown}]"
