"""`load`: datasets that fit in memory, as checked arrays. Nothing is downloaded."""

import math
import numbers
import os
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit.checks import check_choice, must_be, pair, rate, require
from keras_vit.data import arrays, dataset, tfds
from keras_vit.data.dataset import ImageDataset, check_problem
from keras_vit.data.files import ARCHIVES, listed
from keras_vit.data.folders import FileSource
from keras_vit.data.pixels import PATHS, ImageError, decoding, pixels_of
from keras_vit.data.resize import pillow_resize
from keras_vit.data.sources import HELD_OUT, Source, part_of
from keras_vit.data.vtab import VTAB_TASKS
from keras_vit.text import nearest

FASHION_MNIST_CLASSES = tuple(
    "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot".split(",")
)
_IDX_FILES = {
    "train_images": "train-images-idx3-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}


def load(
    source: str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    image_size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    test_fraction: float = 0.2,
    skip_corrupt: bool = False,
    seed: int = 0,
    labels: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    problem: str | dict[str, str] | None = None,
) -> ImageDataset:
    """Loads an image classification dataset into memory.

        dataset = load("digits")
        model.fit(preprocess(dataset.train_images), dataset.train_labels)

    Args:
        source: one of

            - "digits": scikit-learn's 1,797 handwritten digits, 8x8 grayscale, always there;
            - "fashion_mnist": 28x28 grayscale, IDX files or as TensorFlow Datasets prepares it;
            - the path of a .npz file with the arrays x_train, y_train, x_test, y_test, or
              train_images, ..., or x, y, or images, labels, and perhaps class_names;
            - the path of a folder, .zip or .tar archive with one subfolder of images per class, or
              with such folders below train/, validation/ and test/ or other usual names of these,
              such as Training/, valid/ and val/; or with images in any folders, and `labels`;
            - a name of TensorFlow Datasets, such as "cifar10", that lies prepared in `data_dir`.

            To read a folder that is called like a built-in set, write "./digits".
        data_dir: where "fashion_mnist" or the prepared datasets lie; None is, for the latter, the
            environment variable TFDS_DATA_DIR or ~/tensorflow_datasets.
        image_size: int or (height, width) in pixels to resize to, bilinear, antialiased and without
            regard to the aspect ratio. None keeps the size.
        channels: 1 (grayscale) or 3 (RGB) to convert to. None keeps what there is, and means 3 for
            image files.
        test_fraction: share of each class that becomes the test set, in (0, 1), for sources that
            have none of their own.
        skip_corrupt: whether unreadable images are left out and listed in `skipped`, instead of
            an error.
        seed: whole number that decides the split.
        labels: the labels of the images in a folder or an archive: the path of a .csv or .json
            file, or a mapping from files to labels, as docs/data.md describes.
        problem: "single_label", "multi_label" or "regression", for labels that could be read in
            several ways, such as numbers. "single_label" also allows a folder of one class. Of
            several heads, {head: problem}: columns of a CSV file, or keys of each label.

    Returns:
        An `ImageDataset` of the training part and of the test part, or of the validation part where
        there is no test part; a validation part beside a test part is for `pipeline`.

    Raises:
        ValueError: an unknown source, an argument out of range, or data that is missing, damaged,
            inconsistent or too large for memory; the message tells which and what to do.
        ImportError: a package that this source needs is missing.
    """
    size = None if image_size is None else pair(image_size, "image_size")
    check_choice("channels", channels, (None, 1, 3))
    rate(test_fraction, "test_fraction", within="(0, 1)")
    split = {"test_fraction": test_fraction, "seed": check_seed(seed, "seed")}
    opened = _check_problem(find_source(source, data_dir, labels, problem, **split), problem)
    if isinstance(opened, ImageDataset):
        shape = opened.image_shape
        if (*(size or shape[:2]), channels or shape[2]) == shape:
            source = open_source(opened)
            source.warn_of_copies(source.rows("train"), source, source.rows("test"))
            return opened
    return _in_memory(open_source(opened), size, channels, skip_corrupt)


check_seed = must_be(  # one that NumPy and Grain take
    "a whole number in 0..2**32-1",
    lambda seed: isinstance(seed, numbers.Integral) and 0 <= seed < 2**32,
    int,
)


def open_source(source, data_dir=None, labels=None, problem=None):
    """The data source of what `pipeline` takes."""
    if isinstance(source, PATHS) or labels is not None:
        source = find_source(source, data_dir, labels, problem)
    opened = source if isinstance(source, Source) else arrays.array_source(source, problem)
    return _check_problem(opened, problem)


def find_source(source, data_dir, labels=None, problem=None, test_fraction=0.2, seed=0):
    """The `ImageDataset` or the `Source` that a name or a path stands for."""
    if problem is not None:
        check_problem(problem)
    path = Path(source).expanduser() if isinstance(source, PATHS) and str(source) else None
    suffix, is_folder = path and path.suffix.lower(), path and path.is_dir()
    if labels is not None:
        rule = "labels belong to the images of a folder, .zip or .tar archive"
        require(is_folder or suffix in ARCHIVES, rule, received=source)
    elif isinstance(source, str):
        if source == "digits":
            named = arrays.load_digits(test_fraction, seed)
        else:
            named = _find_named(source, data_dir)
        if named and is_folder and path.resolve().parent != tfds.data_folder(data_dir).resolve():
            warnings.warn(
                f"{source!r} is read as the set of that name, and not as the folder that lies "
                f"here. Received: {source!r}; for the folder write './{source}'.",
                stacklevel=4,
            )
        if named:
            return named
    if suffix == ".npz" and path.is_file():
        return arrays.load_npz(path, test_fraction, seed, problem)
    if is_folder or (suffix in ARCHIVES and path.is_file()):
        return FileSource(path, None, test_fraction, seed, labels, problem)
    known = ["digits", "fashion_mnist", *tfds.TFDS_SETS, *(f"vtab/{name}" for name in VTAB_TASKS)]
    raise ValueError(
        f"There is no such dataset, file or folder. Received: {source!r}; the nearest names are "
        f"{nearest(source, known)}. Expected the path of a .npz file, or of a folder, .zip or .tar "
        "archive with one subfolder of images per class, or one of "
        f"{', '.join(map(repr, known))}"
    )


def is_named(source, data_dir=None):
    """Whether a source is a set with a name, built in or prepared; all others are one's own."""
    if source in ("digits", "fashion_mnist"):
        return True
    return isinstance(source, str) and _find_named(source, data_dir) is not None


def _check_problem(source, problem):
    """A set whose labels are what was said, or a ValueError."""
    if isinstance(problem, Mapping) and len(problem) == 1:
        (problem,) = problem.values()  # of one column of a file
    if problem not in (None, source.problem):
        raise ValueError(
            f"The labels of {source.name} are given: problem={source.problem!r}. Received: "
            f"problem={problem!r}"
        )
    return source


def _find_named(name, data_dir):
    """The set of that name in a data folder, or None where it is no name of a set."""
    if name == "fashion_mnist":
        return _find_fashion_mnist(name, data_dir)
    if name.startswith("vtab/") and (task := VTAB_TASKS.get(name.removeprefix("vtab/"))):
        folder = tfds.find_prepared(task.dataset, data_dir, task.major)
        return tfds.PreparedSource(name, folder, task)
    first, folder = re.split("[:/]", name)[0], tfds.data_folder(data_dir)
    places = f"{first}/*/{tfds.INFO}", f"{first}/*/*/{tfds.INFO}", f"{first}/train"
    is_there = first.isidentifier() and any(any(folder.glob(place)) for place in places)
    is_known = first in tfds.TFDS_SETS
    # A path comes before a name that is not known, or of which nothing is in the data folder.
    if not (is_there or is_known) or (Path(name).exists() and not (is_there and is_known)):
        return None
    if (folder / name / "train").is_dir():
        return FileSource(folder / name, name)
    return tfds.PreparedSource(name, tfds.find_prepared(name, data_dir))


def _find_fashion_mnist(name, data_dir):
    """From IDX files, or else as prepared by TensorFlow Datasets."""
    folder = Path("." if data_dir is None else data_dir).expanduser()
    for place in (folder, folder / "fashion_mnist", folder / "fashion-mnist"):
        paths = {part: place / file for part, file in _IDX_FILES.items()}
        paths = {p: x if x.is_file() else place / f"{x.name}.gz" for p, x in paths.items()}
        if data_dir is not None and all(path.is_file() for path in paths.values()):
            of_part = {p: arrays.read_idx(x, 3 if "images" in p else 1) for p, x in paths.items()}
            of_part |= {p: x[..., None] for p, x in of_part.items() if x.ndim == 3}
            return ImageDataset(name, **of_part, class_names=FASHION_MNIST_CLASSES)
    # Looked for on disk first: asking TensorFlow Datasets for a set that is not there makes
    # it try the network, for minutes where there is none.
    if data_dir is None or not any(folder.glob(f"fashion_mnist/*/{tfds.INFO}")):
        raise ValueError(
            "'fashion_mnist' needs data_dir, a folder that holds it, or its folder fashion_mnist: "
            f"{', '.join(_IDX_FILES.values())}, plain or with .gz. Received: "
            f"data_dir={data_dir and str(data_dir)!r}, where not all of them are. "
            f"{tfds.how_to_prepare('fashion_mnist', data_dir or 'DIR')}"
        )
    source = tfds.PreparedSource(name, tfds.find_prepared(name, folder))
    source.channels, source.class_names = 1, FASHION_MNIST_CLASSES
    return source


def _in_memory(source, size, channels, skip_corrupt):
    """The `ImageDataset` of a `Source`; its first held-out part becomes the test set."""
    called = {part_of(part): part for part in source.parts}
    test = next((called[part] for part in HELD_OUT if part in called), None)
    if test is None or "train" not in source.parts:
        raise ValueError(
            f"{source.name} must have the parts train and one of {', '.join(HELD_OUT)}. Received: "
            f"{', '.join(source.parts)}; to have a folder split, pass that folder itself"
        )
    train_rows, test_rows = source.rows("train"), source.rows(test)
    source.warn_of_copies(train_rows, source, test_rows)
    rows = [(0, row) for row in train_rows] + [(1, row) for row in test_rows]
    channels = channels or source.channels or 3
    count, given, images, labels, reasons, resized = len(rows), size, None, ([], []), {}, False
    for part, row in rows:
        try:
            with decoding():
                image, label = source[row]
                pixels = pixels_of(image, channels, source.upright)
        except ImageError as error:
            reasons[source.place(row)] = error
            continue
        if images is None:
            size, first = given or pixels.shape[:2], source.place(row)
            gib = count * math.prod(size) * channels * pixels.itemsize / 2**30
            if gib > dataset.MAX_BYTES / 2**30:
                raise ValueError(
                    f"A dataset in memory may take at most {dataset.MAX_BYTES / 2**30:.3g} GiB. "
                    f"Received: {count} images of {size[0]}x{size[1]}x{channels}, which is "
                    f"{gib:.3g} GiB. Lower image_size, use fewer images, or read it as batches: "
                    "keras_vit.data.pipeline"
                )
            images = np.empty((count, *size, channels), pixels.dtype)
        if pixels.shape[:2] != size:
            if given is None:
                raise ValueError(
                    "The images differ in size, so image_size is needed, such as image_size=224. "
                    f"Received: {first} of {size[0]}x{size[1]} and {source.place(row)} of "
                    f"{pixels.shape[0]}x{pixels.shape[1]} (height x width)"
                )
            ratios = [new / old for new, old in zip(size, pixels.shape)]
            resized = resized or min(ratios) < 1 or ratios[0] != ratios[1]
            pixels = pillow_resize(pixels, size, "bilinear")
        images[len(labels[0]) + len(labels[1])] = pixels
        labels[part].append(label)
    if reasons and not skip_corrupt:
        raise ValueError(
            f"{len(reasons)} of {count} images cannot be read. Received:\n"
            f"{listed([f'{place}: {reason}' for place, reason in reasons.items()])}\n"
            "Repair or remove them, or pass skip_corrupt=True to leave them out."
        )
    gone, (first, second) = [], map(len, labels)
    if source.problem == "single_label":
        gone = sorted({*range(source.num_classes)} - {*labels[0]})
        gone = [source.class_names[number] for number in gone]
    if reasons and (gone or not second):
        raise ValueError(
            f"Every class of {source.name} must keep a readable image for training, and the part "
            f"{test} one. Received: {len(reasons)} corrupt images, no readable ones in "
            f"{', '.join(map(repr, gone or [test]))}; repair the images or remove the class folder"
        )
    if isinstance(source.problem, Mapping):
        labels = [{h: [each[h] for each in part] for h in source.problem} for part in labels]
    parts = images[:first], labels[0], images[first : first + second], labels[1]
    left_out = tuple(sorted(reasons)), tuple(source.left_out)
    fields = source.class_names, *left_out, source.problem, resized
    return ImageDataset(source.name, *parts, *fields)
