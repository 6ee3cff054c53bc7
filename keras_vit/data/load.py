"""`load`: datasets that fit in memory, as checked arrays."""

import dataclasses
import difflib
import os
from pathlib import Path

import numpy as np

from keras_vit.checks import pair
from keras_vit.data import tfds
from keras_vit.data.checks import check_channels, check_dataset
from keras_vit.data.dataset import ImageDataset, check_memory, split_dataset
from keras_vit.data.files import ARCHIVES, HELD_OUT, labelled_files, open_files
from keras_vit.data.formats import load_digits, load_fashion_mnist, load_npz
from keras_vit.data.images import listed, open_image, orientation, pixels_of
from keras_vit.data.resize import convert_channels, pillow_resize
from keras_vit.data.splits import check_test_fraction
from keras_vit.data.vtab import VTAB_TASKS

IN_MEMORY = ("digits", "fashion_mnist")


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
              with such folders below train/ and test/ (or val/, validation/).
            To read a folder that is called like a built-in set, write "./digits".
        data_dir: where "fashion_mnist" lies.
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
        A checked `ImageDataset`.

    Raises:
        ValueError: an unknown source, an argument out of range, or data that is missing, damaged,
            inconsistent or too large for memory; the message tells which and what to do.
        ImportError: a package that this source needs is missing.
    """
    size = None if image_size is None else pair(image_size, "image_size")
    check_channels(channels)
    check_test_fraction(test_fraction)
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ValueError(f"seed must be a whole number >= 0. Received: seed={seed!r}")
    # Comparing anything else, such as an array, with a name need not give a truth value.
    name = source if isinstance(source, str) else None
    if name == "digits":
        dataset = load_digits(test_fraction, seed)
    elif name == "fashion_mnist":
        dataset = load_fashion_mnist(data_dir)
    else:
        path = _existing_path(source)
        if path.suffix.lower() != ".npz" or path.is_dir():
            dataset = _load_files(path, size, channels or 3, test_fraction, skip_corrupt, seed)
            return check_dataset(dataset)
        dataset = load_npz(path, test_fraction, seed)
    return _converted(check_dataset(dataset), size, channels)


def known_datasets():
    """Every name that `load` or `pipeline` knows without a look at the disk."""
    return (*IN_MEMORY, *tfds.TFDS_SETS, *(f"vtab/{name}" for name in VTAB_TASKS))


def nearest(name, names):
    """What a misspelt name could mean, as a part of a message."""
    close = difflib.get_close_matches(str(name).lower(), names, n=3, cutoff=0.5)
    return f"Did you mean {' or '.join(map(repr, close))}? " if close else ""


def _existing_path(source):
    """The path of a folder, archive or .npz file, or ValueError."""
    accepted = (
        "source must be 'digits', 'fashion_mnist', the path of a .npz file, or the path of a "
        "folder, .zip or .tar archive with one subfolder of images per class."
    )
    if not isinstance(source, (str, os.PathLike)) or not str(source):
        raise ValueError(f"{accepted} Received: {source!r}")
    path = Path(source).expanduser()
    if path.is_dir() or (path.is_file() and path.suffix.lower() in (".npz", *ARCHIVES)):
        return path
    if path.exists():
        raise ValueError(f"{accepted} Received: the file {str(path)!r}")
    if isinstance(source, os.PathLike) or path.suffix or len(path.parts) > 1:
        raise ValueError(
            f"No such file or folder, or it cannot be reached. Received: {str(path)!r}. {accepted}"
        )
    if source in known_datasets():
        hint = "It can be read as batches: keras_vit.data.pipeline(name, recipe)."
    else:
        hint = nearest(source, known_datasets())
    raise ValueError(f"{accepted} Received: {source!r}, and no folder has that name. {hint}")


def _load_files(path, size, channels, test_fraction, skip_corrupt, seed):
    files = open_files(path)
    names, parts = labelled_files(files)
    if set(parts) == {"train"}:
        raise ValueError(
            f"{path} holds a folder train, so one of {', '.join(HELD_OUT)} must stand "
            "beside it. Received: train alone; to have it split, pass that folder itself"
        )
    test = next((part for part in HELD_OUT if part in parts), None)
    first = parts["train" if test else "all"]
    listing = first + (parts[test] if test else [])
    images, readable, reasons = _decode([name for name, _ in listing], files, size, channels)
    if reasons and not skip_corrupt:
        raise ValueError(
            f"{len(reasons)} of {len(listing)} images cannot be read. Received:\n"
            f"{listed(reasons)}\n"
            "Repair or remove them, or pass skip_corrupt=True to leave them out."
        )
    labels = np.array([label for _, label in listing], np.int32)[readable]
    skipped = tuple(files.place(name) for (name, _), ok in zip(listing, readable) if not ok)
    count = int(readable[: len(first)].sum())
    gone = [name for label, name in enumerate(names) if label not in labels[:count]]
    if gone:
        raise ValueError(
            f"Every class in {path} must keep a readable image. Received: none readable in "
            f"{', '.join(map(repr, gone))}, {len(skipped)} corrupt images skipped altogether; "
            "repair the images or remove the class folder"
        )
    name = path.resolve().stem if path.is_file() else path.resolve().name
    if test is None:
        return split_dataset(name, images, labels, names, test_fraction, seed, skipped)
    if count == len(labels):
        raise ValueError(f"{files.place(test)} must hold a readable image. Received: none")
    arrays = images[:count], labels[:count], images[count:], labels[count:]
    return ImageDataset(name, *arrays, names, skipped)


def _decode(names, files, size, channels):
    """(uint8 images, which of the files they are, a line for each that cannot be read)."""
    reasons = {}

    def attempt(function, name):
        try:
            with open_image(files.read(name)) as image:
                return function(image)
        except MemoryError:
            raise
        # Pillow's decoders answer damaged files with errors of many unrelated types. None is
        # swallowed: each is reported with its path.
        except Exception as error:
            reasons[name] = f"{files.place(name)}: {type(error).__name__}: {error}"
            return None

    def sides(image):
        return image.size if orientation(image) >= 5 else image.size[::-1]

    if size is None:
        found = {name: attempt(sides, name) for name in names}
        found = {name: sides for name, sides in found.items() if sides}
        size = next(iter(found.values()), (1, 1))
        other = next((name for name in found if found[name] != size), None)
        if other:
            first = next(iter(found))
            raise ValueError(
                "The images differ in size, so image_size is needed, such as image_size=224. "
                f"Received: {files.place(first)} of {size[0]}x{size[1]} and "
                f"{files.place(other)} of {found[other][0]}x{found[other][1]} (height x width)"
            )
    check_memory((len(names) - len(reasons), *size, channels))
    images = np.empty((len(names), *size, channels), np.uint8)
    readable = np.zeros(len(names), bool)
    for index, name in enumerate(names):
        pixels = None if name in reasons else attempt(lambda i: pixels_of(i, channels), name)
        if pixels is not None:
            if pixels.shape[:2] != tuple(size):
                pixels = pillow_resize(pixels, size, "bilinear")
            images[readable.sum()] = pixels
            readable[index] = True
    return images[: readable.sum()], readable, list(reasons.values())


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
