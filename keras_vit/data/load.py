"""`load`: datasets that fit in memory, as checked arrays. Nothing is downloaded."""

import dataclasses
import difflib
import os
import re
from pathlib import Path

import numpy as np

from keras_vit.checks import check_choice, pair, positive_int
from keras_vit.data import tfds
from keras_vit.data.dataset import (
    ImageDataset,
    check_memory,
    load_npz,
    read_idx,
    split_dataset,
)
from keras_vit.data.files import (
    ARCHIVES,
    HELD_OUT,
    listed,
    open_image,
    pixels_of,
)
from keras_vit.data.resize import convert_channels, pillow_resize
from keras_vit.data.sources import FileSource
from keras_vit.data.vtab import VTAB_TASKS

FASHION_MNIST_CLASSES = tuple(
    "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot".split(",")
)
# Part -> name of the IDX file, and the rank of its array.
_IDX_FILES = {
    "train_images": ("train-images-idx3-ubyte", 3),
    "train_labels": ("train-labels-idx1-ubyte", 1),
    "test_images": ("t10k-images-idx3-ubyte", 3),
    "test_labels": ("t10k-labels-idx1-ubyte", 1),
}


def load(
    source,
    *,
    data_dir=None,
    image_size=None,
    channels=None,
    test_fraction=0.2,
    skip_corrupt=False,
    seed=0,
):
    """Loads an image classification dataset into memory.

        dataset = load("digits")
        model.fit(preprocess(dataset.train_images), dataset.train_labels)

    Args:
        source: one of
            - "digits": scikit-learn's 1,797 handwritten digits, 8x8 grayscale, always there;
            - "fashion_mnist": 28x28 grayscale, from files in `data_dir` (IDX files, or
              prepared by TensorFlow Datasets); nothing is downloaded;
            - the path of a .npz file with the arrays x_train, y_train, x_test, y_test, or
              train_images, ..., or x, y, or images, labels, and perhaps class_names;
            - the path of a folder, .zip or .tar archive with one subfolder of images per class, or
              with such folders below train/ and test/ (or val/, validation/);
            - a name of TensorFlow Datasets, such as "cifar10", that lies prepared in `data_dir`.
            To read a folder that is called like a built-in set, write "./digits".
        data_dir: where "fashion_mnist" or the prepared datasets lie; None is, for the latter, the
            environment variable TFDS_DATA_DIR or ~/tensorflow_datasets.
        image_size: height and width in pixels, one int or (height, width), to resize to, bilinear,
            antialiased and without regard to the aspect ratio. None keeps the size.
        channels: 1 (grayscale) or 3 (RGB) to convert to. None keeps what there is, and means 3 for
            image files.
        test_fraction: share of each class that becomes the test set, in (0, 1), for sources that
            have none of their own.
        skip_corrupt: for image files: leave out unreadable images and list them in `skipped`
            instead of raising.
        seed: whole number >= 0 that decides the split.

    Returns:
        An `ImageDataset`.

    Raises:
        ValueError: an unknown source, an argument out of range, or data that is missing, damaged,
            inconsistent or too large for memory; the message tells which and what to do.
        ImportError: a package that this source needs is missing.
    """
    size = None if image_size is None else pair(image_size, "image_size")
    channels = channels and positive_int(channels, "channels")
    check_choice("channels", channels, (None, 1, 3))
    if not isinstance(test_fraction, (int, float)) or not 0 < test_fraction < 1:
        raise ValueError(
            "test_fraction must lie strictly between 0 and 1, such as 0.2. "
            f"Received: test_fraction={test_fraction!r}"
        )
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ValueError(f"seed must be a whole number >= 0. Received: seed={seed!r}")
    found = find_source(source, data_dir, test_fraction, seed)
    if isinstance(found, ImageDataset):
        return _converted(found, size, channels)
    return _in_memory(found, size, channels or 3, skip_corrupt)


def find_source(source, data_dir, test_fraction=0.2, seed=0):
    """The `ImageDataset` or the `Source` that a name or a path stands for."""
    if isinstance(source, str) and source == "digits":
        return _load_digits(test_fraction, seed)
    if isinstance(source, str) and source == "fashion_mnist":
        return _load_fashion_mnist(data_dir)
    if isinstance(source, str) and (found := _find_prepared(source, data_dir)):
        return found
    if isinstance(source, (str, os.PathLike)) and str(source):
        path = Path(source).expanduser()
        if path.suffix.lower() == ".npz" and path.is_file():
            return load_npz(path, test_fraction, seed)
        if path.is_dir() or (path.suffix.lower() in ARCHIVES and path.is_file()):
            return FileSource(path, None, test_fraction, seed)
    tasks = [f"vtab/{name}" for name in VTAB_TASKS]
    known = ["digits", "fashion_mnist", *tfds.TFDS_SETS, *tasks]
    close = difflib.get_close_matches(str(source).lower(), known, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(map(repr, close))}? " if close else ""
    raise ValueError(
        f"There is no such dataset, file or folder. Received: {source!r}. {hint}Expected the path "
        "of a .npz file, or of a folder, .zip or .tar archive with one subfolder of images per "
        f"class, or one of {', '.join(map(repr, known))}"
    )


def _find_prepared(name, data_dir):
    """The source of a name of TensorFlow Datasets or of VTAB, or None where it is none."""
    if task := VTAB_TASKS.get(name.removeprefix("vtab/")) if name.startswith("vtab/") else None:
        folder = tfds.find_prepared(task.dataset, data_dir, task.major)
        return tfds.PreparedSource(name, folder, task)
    first, folder = re.split("[:/]", name)[0], tfds.data_folder(data_dir)
    places = f"{first}/*/dataset_info.json", f"{first}/*/*/dataset_info.json", f"{first}/train"
    is_there = first.isidentifier() and any(any(folder.glob(place)) for place in places)
    is_known = first in tfds.TFDS_SETS
    # A path comes before a name that is not known, or of which nothing is in the data folder.
    if not (is_there or is_known) or (Path(name).exists() and not (is_there and is_known)):
        return None
    if (folder / name / "train").is_dir():
        return FileSource(folder / name, name)
    return tfds.PreparedSource(name, tfds.find_prepared(name, data_dir))


def _in_memory(source, size, channels, skip_corrupt=False):
    """The `ImageDataset` of a `Source`; its first held-out part becomes the test set."""
    test = next((part for part in HELD_OUT if part in source.parts), None)
    if test is None or "train" not in source.parts:
        raise ValueError(
            f"{source.name} must have the parts train and one of {', '.join(HELD_OUT)}. Received: "
            f"{', '.join(source.parts)}; to have a folder split, pass that folder itself"
        )
    rows = [(0, row) for row in source.rows("train")] + [(1, row) for row in source.rows(test)]
    count, given, images, labels, reasons = len(rows), size, None, [[], []], {}
    for part, row in rows:
        try:
            image, label = source[row]
            if isinstance(image, bytes):
                with open_image(image) as opened:
                    pixels = pixels_of(opened, channels, source.upright)
            else:
                pixels = convert_channels(image, channels)
        except MemoryError:
            raise
        # Pillow's decoders answer damaged files with errors of many unrelated types. None is
        # swallowed: each is reported with its path.
        except Exception as error:
            reasons[source.place(row)] = f"{type(error).__name__}: {error}"
            continue
        if images is None:
            size, first = given or pixels.shape[:2], source.place(row)
            check_memory((count, *size, channels))
            images = np.empty((count, *size, channels), np.uint8)
        if pixels.shape[:2] != size:
            if given is None:
                raise ValueError(
                    "The images differ in size, so image_size is needed, such as image_size=224. "
                    f"Received: {first} of {size[0]}x{size[1]} and {source.place(row)} of "
                    f"{pixels.shape[0]}x{pixels.shape[1]} (height x width)"
                )
            pixels = pillow_resize(pixels, size, "bilinear")
        images[len(labels[0]) + len(labels[1])] = pixels
        labels[part].append(label)
    if reasons and not skip_corrupt:
        raise ValueError(
            f"{len(reasons)} of {count} images cannot be read. Received:\n"
            f"{listed([f'{place}: {reason}' for place, reason in reasons.items()])}\n"
            "Repair or remove them, or pass skip_corrupt=True to leave them out."
        )
    left = set(labels[0])
    gone = [name for label, name in enumerate(source.class_names) if label not in left]
    if reasons and (gone or not labels[1]):
        raise ValueError(
            f"Every class of {source.name} must keep a readable image for training, and the part "
            f"{test} one. Received: {len(reasons)} corrupt images, no readable ones in "
            f"{', '.join(map(repr, gone or [test]))}; repair the images or remove the class folder"
        )
    first, end = len(labels[0]), len(labels[0]) + len(labels[1])
    arrays = images[:first], labels[0], images[first:end], labels[1]
    return ImageDataset(source.name, *arrays, source.class_names, tuple(sorted(reasons)))


def _converted(dataset, size, channels):
    """The dataset with the image size and channels asked for."""
    height, width, present = dataset.image_shape
    wanted = (*(size or (height, width)), channels or present)
    if wanted == dataset.image_shape:
        return dataset
    count = len(dataset.train_images) + len(dataset.test_images)
    check_memory((count, *wanted), dataset.train_images.itemsize)
    arrays = {}
    for part in ("train_images", "test_images"):
        images = convert_channels(getattr(dataset, part), channels)
        if size is not None:
            images = np.stack([pillow_resize(image, size, "bilinear") for image in images])
        arrays[part] = images if images.dtype == np.uint8 else images.clip(0, 1)
    return dataclasses.replace(dataset, **arrays)


def _load_digits(test_fraction, seed):
    try:
        from sklearn import datasets
    except ImportError as error:
        raise ImportError(
            "'digits' comes with scikit-learn, which is not installed. Install it with: "
            'pip install "keras3-vit[data]"'
        ) from error
    digits = datasets.load_digits()
    # 17 gray levels, 0..16, spread over the range that every other source has.
    images = np.round(digits.images * (255.0 / 16.0)).astype(np.uint8)[..., None]
    names = tuple(str(name) for name in digits.target_names)
    return split_dataset("digits", images, digits.target, names, test_fraction, seed)


def _load_fashion_mnist(data_dir):
    """From IDX files, or else as prepared by TensorFlow Datasets."""
    if data_dir is None:
        raise ValueError(
            "'fashion_mnist' needs data_dir, the folder that holds it. Received: data_dir=None. "
            f"{tfds.how_to_prepare('fashion_mnist', 'DIR')}"
        )
    data_dir = Path(data_dir).expanduser()
    for folder in (data_dir, data_dir / "fashion_mnist", data_dir / "fashion-mnist"):
        paths = {}
        for part, (name, _) in _IDX_FILES.items():
            plain = folder / name
            paths[part] = plain if plain.is_file() else folder / f"{name}.gz"
        if all(path.is_file() for path in paths.values()):
            arrays = {part: read_idx(paths[part], rank) for part, (_, rank) in _IDX_FILES.items()}
            for part in ("train_images", "test_images"):
                arrays[part] = arrays[part][..., None]
            return ImageDataset("fashion_mnist", **arrays, class_names=FASHION_MNIST_CLASSES)
    # Looked for on disk first: asking TensorFlow Datasets for a set that is not there makes
    # it try the network, for minutes where there is none.
    if not any(data_dir.glob("fashion_mnist/*/dataset_info.json")):
        raise ValueError(
            "Fashion-MNIST must lie in data_dir or its folder fashion_mnist: the files "
            f"{', '.join(name for name, _ in _IDX_FILES.values())}, plain or with .gz. "
            f"Received: data_dir={str(data_dir)!r}, where not all of them are. "
            f"{tfds.how_to_prepare('fashion_mnist', data_dir)}"
        )
    folder = tfds.find_prepared("fashion_mnist", data_dir)
    found = _in_memory(tfds.PreparedSource("fashion_mnist", folder), None, 1)
    return dataclasses.replace(found, class_names=FASHION_MNIST_CLASSES)
