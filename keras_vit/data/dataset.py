"""`ImageDataset`, what every dataset in memory is, and the checks of images and labels."""

import dataclasses
import math
import operator
import warnings
from collections.abc import Mapping

import numpy as np

from keras_vit.checks import check_choice, require
from keras_vit.data.sources import PROBLEMS, count_classes
from keras_vit.heads import map_heads

MAX_BYTES = 4 * 2**30  # of a dataset: a larger one is refused before memory runs out
MOST_CLASSES = 100_000  # labels beyond it are identifiers
_EXPECTED = {
    "single_label": (
        "must have shape (images,), one class number per image, counted from 0; take "
        "labels.argmax(axis=-1) of one-hot labels, labels.reshape(-1) of a column, and "
        "problem='multi_label' for labels of several classes per image"
    ),
    "multi_label": "must have shape (images, classes), 1 for the classes of an image, 0 for others",
    "regression": "must have shape (images,) or (images, targets), the values to estimate",
}
_TOLERANCE = 1e-6  # floats can pass 1 by a few units in the last place


# eq=False: comparing arrays field by field has no single truth value.
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ImageDataset:
    """An image classification dataset held in memory, whose arrays are checked when it is made.

    Attributes:
        name: what the dataset is called in reports and file names.
        train_images, test_images: shape (images, height, width, channels); uint8 in
            0..255, or floats in [0, 1], which become float32.
        train_labels, test_labels: shape (images,), whole numbers in 0..num_classes - 1, which
            become int32.
        class_names: the name of each label, in label order.
        skipped: paths of the corrupt images that were left out.
        left_out: paths of the files that are no images, or lie where none of the set should be.
        problem: "single_label"; "multi_label", whose labels are float32 of shape (images, classes),
            1 for the classes that an image shows and 0 for the others; or "regression", whose
            labels are float32 of shape (images,) or (images, targets) and class_names None or the
            names of the targets. Of several heads a dict {head: problem}, and labels and
            class_names dicts by head, too; -1 and NaN are labels that an image lacks.
        resized: whether `load` has made images smaller or of another shape, by Pillow's bilinear
            resize of the whole image; see `keras_vit.data.resize.as_loaded`.

    Raises:
        ValueError: an array of another shape, dtype or range, images and labels of different
            lengths, training and test images of different shapes, or no class names.
    """

    name: str
    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    class_names: tuple[str, ...] | None
    skipped: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    problem: str | dict[str, str] = "single_label"
    resized: bool = False

    def __post_init__(self):
        check_problem(self.problem)
        names, partly = ("train_images", "test_images"), isinstance(self.problem, Mapping)
        images = [check_images(getattr(self, name), name) for name in names]

        def checked(problem, class_names, *labels):
            is_text = isinstance(class_names, list | tuple) and {*map(type, class_names)} == {str}
            fits = is_text or (problem == "regression" and not class_names)
            rule = "class_names must be a list or tuple that names each class, as text"
            require(fits, rule, received=class_names)
            return check_parts(images, labels, problem, class_names, partly)

        labels = self.train_labels, self.test_labels
        labels = map_heads(checked, self.problem, self.class_names, *labels)
        for part, name in enumerate(("train", "test")):
            object.__setattr__(self, f"{name}_images", images[part])
            object.__setattr__(self, f"{name}_labels", map_heads(operator.itemgetter(part), labels))
        shapes = [each.shape[1:] for each in images]
        rule = "train_images and test_images must have the same (height, width, channels)"
        received = f"{shapes[0]} and {shapes[1]}"
        require(shapes[0] == shapes[1], f"{rule}; resize one of them", received=received)

    @property
    def num_classes(self):
        """Number of classes, with or without test images, or of the targets of regression."""
        shape = map_heads(lambda labels: labels.shape[1:], self.train_labels)
        return map_heads(count_classes, self.class_names, shape)

    @property
    def image_shape(self):
        """(height, width, channels) of every image, in pixels."""
        return self.train_images.shape[1:]

    def __repr__(self):
        height, width, channels = self.image_shape
        return (
            f"ImageDataset({self.name!r}, train={len(self.train_images)}, "
            f"test={len(self.test_images)}, image={height}x{width}x{channels} "
            f"{self.train_images.dtype}, classes={self.num_classes}, "
            f"skipped={len(self.skipped)}{problem_told(self.problem)})"
        )


def check_parts(images, labels, problem, class_names=None, partly=False):
    """The labels of one or two parts of a set as of `check_labels`, which have the same columns."""
    count = len(class_names or ())
    names = ("train_labels", "test_labels") if len(labels) == 2 else ("labels",)
    checked = [
        check_labels(y, x, name, count or MOST_CLASSES, problem, partly)
        for name, x, y in zip(names, images, labels)
    ]
    shapes = [each.shape[1:] for each in checked]
    fits = len(set(shapes)) == 1 and count in (0, math.prod(shapes[0]))
    if problem != "single_label" and not fits:
        raise ValueError(
            f"{' and '.join(names)} must have as many columns, one column for each of class_names. "
            f"Received: shapes {' and '.join(str(each.shape) for each in checked)}, and "
            f"class_names={class_names!r:.80}"
        )
    return checked


def check_problem(problem):
    """Raises ValueError unless a problem, or each of a dict by head, is one of `PROBLEMS`."""
    map_heads(lambda each: check_choice("problem", each, PROBLEMS), problem)


def problem_told(problem):
    """A problem other than the usual one, as the end of what stands in parentheses."""
    return "" if problem == "single_label" else f", problem={problem!r}"


def split_rows(labels, test_fraction, seed, problem="single_label"):
    """(train, test): sorted indices, so that each class keeps its share in both parts.

    Of other problems all examples are one class. A class with two or more has at least one on each
    side; the only one of a class goes to training: no class can be learned from the test set.
    """
    classes = labels if problem == "single_label" else np.zeros(len(labels))
    rng, is_test = np.random.default_rng(seed), np.zeros(len(labels), dtype=bool)
    for label in np.unique(classes):
        members = rng.permutation(np.flatnonzero(classes == label))
        if len(members) >= 2:
            wanted = int(len(members) * test_fraction + 0.5)
            is_test[members[: min(max(wanted, 1), len(members) - 1)]] = True
    rule = "A train/test split needs two images, of one class where each has one"
    advice = "add images or supply a test set"
    require(is_test.any(), f"{rule}; {advice}", received=f"{len(labels)} images")
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)


def check_images(images, name="images"):
    """`images` as uint8 or float32 of shape (images, height, width, channels), or a ValueError."""
    images = np.asarray(images)
    rule = f"{name} must have shape (images, height, width, channels), and none of them may be 0; "
    rule += "a channel axis is added by images[..., None]"
    require(images.ndim == 4 and images.size, rule, received=images.shape)
    channels, *sides = images.shape[1:]
    if channels in (1, 3) and min(sides) > 4 and (sides[0] == sides[1] or min(sides) >= 16):
        raise ValueError(
            f"{name} must have their channels last, and seem to have them first; turn them by "
            f"np.moveaxis(images, 1, -1). Received: shape {images.shape}"
        )
    check_pixels(images, name)
    return images if images.dtype == np.uint8 else images.astype(np.float32, copy=False)


def check_pixels(images, name):
    """Raises ValueError unless an array is uint8, or floats in [0, 1]; warns of nearly black."""
    is_bytes = images.dtype == np.uint8
    if not images.size:
        return
    if not is_bytes and images.dtype.kind != "f":
        raise ValueError(
            f"{name} must be uint8 in 0..255 or float in [0, 1]; convert with "
            f"images.astype('uint8') if the values are 0..255. Received: dtype {images.dtype}"
        )
    low, high = 0 if is_bytes else float(images.min()), float(images.max())
    if 0 < high < (1.5 if is_bytes else 1.5 / 255):  # as of a mask, or divided by 255 twice
        warnings.warn(
            f"{name} are {'bytes of 0..255' if is_bytes else 'floats in [0, 1]'}. Received: none "
            f"above {high:.3g}, which is nearly black; multiply by 255 where that is white.",
            stacklevel=3,
        )
    in_range = low >= -_TOLERANCE and high <= 1 + _TOLERANCE  # False where they are not numbers
    if not (is_bytes or in_range):
        fits = (images >= -_TOLERANCE) & (images <= 1 + _TOLERANCE)
        raise ValueError(
            f"{name} of a float dtype must lie in [0, 1]. Received: values from {low:g} to "
            f"{high:g}, the first outside at index {np.argwhere(~fits)[0].tolist()}; divide by 255 "
            "if they are 0..255, use (images + 1) / 2 if they are -1..1, and repair what is NaN"
        )


def check_labels(
    labels, images, name="labels", num_classes=MOST_CLASSES, problem="single_label", partly=False
):
    """`labels`, one for each image, as int32, or as float32 unless each is one class.

    With `partly`, -1 and NaN are labels that images lack.

    Raises:
        ValueError: another shape, dtype or value than labels of the problem have.
    """
    labels = np.asarray(labels)
    ranks = {"single_label": (1,), "multi_label": (2,), "regression": (1, 2)}[problem]
    fits = labels.ndim in ranks and labels.dtype.kind in "biuf"
    received = f"shape {labels.shape}, dtype {labels.dtype}"
    require(fits, f"{name} {_EXPECTED[problem]}", received=received)
    if np.ndim(images) == 0 or len(labels) != len(images):
        raise ValueError(
            f"{name} must have one label for each image. Received: {len(labels)} labels, and "
            f"images of shape {np.shape(images)}"
        )
    advice, missing = "", np.isnan
    if problem == "single_label":
        fits = (labels >= 0) & (labels < num_classes) & (labels == np.floor(labels))  # no NaN
        rule, missing = f"whole numbers in 0..{num_classes - 1}", lambda labels: labels == -1
        advice = (
            ". Give every class a name, or number the classes with "
            "numpy.unique(labels, return_inverse=True)[1]; values to estimate are "
            "problem='regression'"
        )
    elif problem == "multi_label":
        fits, rule = np.isin(labels, (0, 1)), "0 or 1"
    else:
        fits, rule = np.abs(labels) <= np.finfo(np.float32).max, "finite numbers"
    if partly:
        fits |= missing(labels)
    if not fits.all():
        first = np.argwhere(~fits)[0].tolist()
        raise ValueError(
            f"{name} must be {rule}. Received: {(~fits).sum()} others, the first is "
            f"{labels[tuple(first)]} at index {first[0] if len(first) == 1 else first}{advice}"
        )
    return labels.astype(np.int32 if problem == "single_label" else np.float32)
