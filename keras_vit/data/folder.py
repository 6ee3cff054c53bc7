"""Datasets in a folder of class folders."""

import os
from collections import Counter
from pathlib import Path

import numpy as np

from keras_vit.data.dataset import ImageDataset
from keras_vit.data.decode import decode_images
from keras_vit.data.split import stratified_split

EXTENSIONS = frozenset(
    ".png .jpg .jpeg .bmp .gif .webp .tif .tiff .ppm .pgm".split()  # lower case
)
_TEST_NAMES = ("test", "val", "validation")  # the first one present is the test set
_LAYOUT = "folder/<class>/<image>, or folder/train/<class>/<image> with folder/test/... beside it"


def load_folder(path, *, image_size, channels, test_fraction, skip_corrupt, seed):
    """Reads a folder whose subfolders are the classes, or hold train and test sets of them.

    Images count at any depth below their class folder. Hidden files and folders and files
    of other extensions are ignored, and so are images outside class folders as long as
    there are class folders.

    Args:
        path: the folder.
        image_size: (height, width) to resize to; None if all images have the same size.
        channels: 3 or 1.
        test_fraction: share of each class for the test set, where there is none.
        skip_corrupt: whether to leave out unreadable images instead of raising.
        seed: decides the split.

    Returns:
        An `ImageDataset` of uint8 images, classes and files in sorted order.

    Raises:
        ValueError: see the messages: an unreadable or empty folder, no class folders, a
            class without images, test classes unknown to train, or bad images.
        ImportError: Pillow is not installed.
    """
    path = Path(path)
    train_dir, test_dir = _train_and_test(path)
    names, train_files = _training_files(train_dir)
    files = train_files + (_known_files(test_dir, names, train_dir) if test_dir else [])
    num_train = len(train_files)
    images, readable = decode_images(
        [file for file, _ in files],
        image_size=image_size,
        channels=channels,
        skip_corrupt=skip_corrupt,
    )
    labels = np.array([label for _, label in files], dtype=np.int32)[readable]
    num_train = int(readable[:num_train].sum())
    skipped = tuple(str(file) for (file, _), ok in zip(files, readable) if not ok)
    _check_remaining(labels[:num_train], names, train_dir, skipped)
    if test_dir is None:
        train, test = stratified_split(labels, test_fraction, seed)
    else:
        if num_train == len(labels):
            raise ValueError(
                f"{test_dir} must hold a readable image ({_extensions()}). Received: none"
            )
        # Slices, unlike index arrays, do not copy the images.
        train, test = slice(0, num_train), slice(num_train, None)
    name = path.resolve().name
    return ImageDataset(
        name, images[train], labels[train], images[test], labels[test], names, skipped
    )


def find_files(path):
    """Finds the images of a folder without opening them.

    Args:
        path: a folder whose subfolders are the classes, or one with a folder train, and perhaps
            val or validation and test, of such.

    Returns:
        (class names, dict from each part to a list of (path, label)), classes and files in sorted
        order. Where there are no parts, a fifth of each class is `"test"`.

    Raises:
        ValueError: as `load_folder`, but images are not read.
    """
    path = Path(path)
    subfolders, _ = _entries(path)
    if "train" not in subfolders or not set(subfolders) & set(_TEST_NAMES):
        train_dir = path / "train" if subfolders == ["train"] else path
        names, files = _training_files(train_dir)
        if train_dir != path:
            return names, {"train": files}
        labels = np.array([label for _, label in files])
        parts = dict(zip(("train", "test"), stratified_split(labels, 0.2, seed=0)))
        return names, {part: [files[row] for row in rows] for part, rows in parts.items()}
    names, train_files = _training_files(path / "train")
    files = {"train": train_files}
    for part in _TEST_NAMES:
        if part in subfolders:
            files[part] = _known_files(path / part, names, path / "train")
            if not files[part]:
                raise ValueError(f"{path / part} must hold an image ({_extensions()}).")
    return names, files


def _training_files(folder):
    """(class names, list of (path, label)), where every class has an image."""
    classes = _class_files(folder)
    empty = [name for name, files in classes.items() if not files]
    if empty:
        raise ValueError(
            f"Every class folder in {folder} must hold an image ({_extensions()}). "
            f"Received: none in {', '.join(map(repr, empty))}; add images, or remove or hide "
            "the folders that are no classes"
        )
    return tuple(classes), _labelled(classes, tuple(classes))


def _known_files(folder, names, train_dir):
    """List of (path, label) of a held-out part, whose classes must be known."""
    classes = {name: found for name, found in _class_files(folder).items() if found}
    strangers = sorted(set(classes) - set(names))
    if strangers:
        raise ValueError(
            f"The classes in {folder} must be among those in {train_dir} "
            f"({', '.join(names)}). Received: unknown {', '.join(strangers)}"
        )
    return _labelled(classes, names)


def _labelled(classes, names):
    numbers = {name: number for number, name in enumerate(names)}
    return [(file, numbers[name]) for name, files in classes.items() for file in files]


def _train_and_test(path):
    """(train folder, test folder or None)."""
    subfolders, _ = _entries(path)
    if "train" not in subfolders:
        return path, None
    for name in _TEST_NAMES:
        if name in subfolders:
            return path / "train", path / name
    if len(subfolders) == 1:
        raise ValueError(
            f"{path} holds a folder train, so one of {', '.join(_TEST_NAMES)} must stand "
            "beside it. Received: train alone; to have it split, pass that folder itself"
        )
    return path, None


def _class_files(folder):
    """{class name: sorted image paths}, classes sorted."""
    subfolders, files = _entries(folder)
    if not subfolders:
        if any(_is_image(name) for name in files):
            raise ValueError(
                f"Images must lie in one subfolder per class: {_LAYOUT}. Received: {folder} "
                f"with {sum(map(_is_image, files))} images directly in it and no subfolder"
            )
        raise ValueError(
            f"No images found; expected {_LAYOUT}. Received: {folder} with {_found(files)}"
        )
    classes, others = {}, list(files)
    for name in subfolders:
        classes[name], strays = _walk(folder / name)
        others += strays
    if not any(classes.values()):
        raise ValueError(
            f"No images ({_extensions()}) found below the {len(subfolders)} subfolders of "
            f"{folder}. Received: {_found(others)}"
        )
    return classes


def _walk(folder):
    """(sorted image paths, names of the other files) at any depth below a folder."""
    images, others, pending = [], [], [folder]
    while pending:
        current = pending.pop()
        subfolders, files = _entries(current)
        # A link to a folder could lead back up, so below a class folder none is followed.
        pending += [current / name for name in subfolders if not (current / name).is_symlink()]
        images += [current / name for name in files if _is_image(name)]
        others += [name for name in files if not _is_image(name)]
    return sorted(images), others


def _entries(folder):
    """(subfolder names, file names) of a folder, sorted, without the hidden ones."""
    subfolders, files = [], []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.startswith("."):
                    (subfolders if entry.is_dir() else files).append(entry.name)
    except OSError as error:
        raise ValueError(
            f"The folder {folder} cannot be read; check its permissions. Received: {error}"
        ) from error
    return sorted(subfolders), sorted(files)


def _is_image(name):
    return Path(name).suffix.lower() in EXTENSIONS


def _extensions():
    return " ".join(sorted(extension[1:] for extension in EXTENSIONS))


def _found(files):
    """What a folder holds instead of images: extensions and how many of each."""
    if not files:
        return "no files at all"
    counts = Counter(Path(name).suffix.lower() or "no extension" for name in files)
    return "files " + ", ".join(f"{suffix} x{count}" for suffix, count in counts.most_common())


def _check_remaining(labels, names, folder, skipped):
    """Raises if skipping corrupt images has emptied a class."""
    gone = [name for label, name in enumerate(names) if label not in labels]
    if gone:
        raise ValueError(
            f"Every class in {folder} must keep a readable image. Received: none readable in "
            f"{', '.join(map(repr, gone))}, {len(skipped)} corrupt images skipped altogether; "
            "repair the images or remove the class folder"
        )
