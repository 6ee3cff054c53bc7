"""`load`: datasets that fit in memory, as checked arrays. Nothing is downloaded."""

import dataclasses
import difflib
import gzip
import math
import os
import struct
from pathlib import Path

import numpy as np

from keras_vit.checks import check_choice, pair, positive_int
from keras_vit.data import tfds
from keras_vit.data.dataset import (
    MOST_DEFLATED,
    UNREADABLE,
    ImageDataset,
    check_memory,
    load_npz,
    split_dataset,
)
from keras_vit.data.files import (
    ARCHIVES,
    HELD_OUT,
    labelled_files,
    listed,
    open_files,
    open_image,
    pixels_of,
)
from keras_vit.data.resize import convert_channels, pillow_resize
from keras_vit.data.vtab import VTAB_TASKS

IN_MEMORY = ("digits", "fashion_mnist")
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
    # Comparing anything else, such as an array, with a name need not give a truth value.
    name = source if isinstance(source, str) else None
    if name == "digits":
        return _converted(_load_digits(test_fraction, seed), size, channels)
    if name == "fashion_mnist":
        return _converted(_load_fashion_mnist(data_dir), size, channels)
    is_path = isinstance(source, (str, os.PathLike)) and str(source)
    path = Path(source).expanduser() if is_path else None
    if path and path.suffix.lower() == ".npz" and path.is_file():
        return _converted(load_npz(path, test_fraction, seed), size, channels)
    if path and (path.is_dir() or (path.suffix.lower() in ARCHIVES and path.is_file())):
        return _load_files(path, size, channels or 3, test_fraction, skip_corrupt, seed)
    raise ValueError(unknown(source))


def unknown(source):
    """The message for a source that `load` or `pipeline` cannot read, with the nearest names."""
    known = (*IN_MEMORY, *tfds.TFDS_SETS, *(f"vtab/{name}" for name in VTAB_TASKS))
    close = difflib.get_close_matches(str(source).lower(), known, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(map(repr, close))}? " if close else ""
    if str(source) in known:
        hint = "It can be read as batches: keras_vit.data.pipeline(name, recipe). "
    return (
        f"There is no such dataset, file or folder. Received: {source!r}. {hint}Expected the path "
        "of a .npz file, or of a folder, .zip or .tar archive with one subfolder of images per "
        f"class, or one of {', '.join(map(repr, known))}"
    )


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
    if gone := [name for label, name in enumerate(names) if label not in labels[:count]]:
        raise ValueError(
            f"Every class in {path} must keep a readable image. Received: none readable in "
            f"{', '.join(map(repr, gone))}, {len(skipped)} corrupt images skipped altogether; "
            "repair the images or remove the class folder"
        )
    if test is None:
        return split_dataset(files.name, images, labels, names, test_fraction, seed, skipped)
    if count == len(labels):
        raise ValueError(f"{files.place(test)} must hold a readable image. Received: none")
    arrays = images[:count], labels[:count], images[count:], labels[count:]
    return ImageDataset(files.name, *arrays, names, skipped)


def _decode(names, files, size, channels):
    """(uint8 images, which of the files they are, a line for each that cannot be read)."""
    images, readable, reasons, given = None, np.zeros(len(names), bool), [], size
    for index, name in enumerate(names):
        try:
            with open_image(files.read(name)) as image:
                pixels = pixels_of(image, channels)
        except MemoryError:
            raise
        # Pillow's decoders answer damaged files with errors of many unrelated types. None is
        # swallowed: each is reported with its path.
        except Exception as error:
            reasons.append(f"{files.place(name)}: {type(error).__name__}: {error}")
            continue
        if images is None:
            size = given or pixels.shape[:2]
            check_memory((len(names), *size, channels))
            images = np.empty((len(names), *size, channels), np.uint8)
        if pixels.shape[:2] != size:
            if given is None:
                first = names[int(np.argmax(readable))]
                raise ValueError(
                    "The images differ in size, so image_size is needed, such as image_size=224. "
                    f"Received: {files.place(first)} of {size[0]}x{size[1]} and "
                    f"{files.place(name)} of {pixels.shape[0]}x{pixels.shape[1]} (height x width)"
                )
            pixels = pillow_resize(pixels, size, "bilinear")
        images[readable.sum()] = pixels
        readable[index] = True
    return images if images is None else images[: readable.sum()], readable, reasons


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
    prepared = tfds.Prepared(tfds.find_prepared("fashion_mnist", data_dir))
    arrays = {}
    for part in ("train", "test"):
        examples = list(prepared.examples(part))
        images = [pixels_of(open_image(example["image"]), 1) for example in examples]
        arrays[f"{part}_images"] = np.stack(images)
        arrays[f"{part}_labels"] = np.array([example["label"] for example in examples])
    return ImageDataset("fashion_mnist", **arrays, class_names=FASHION_MNIST_CLASSES)


def read_idx(path, rank):
    """Reads one IDX file of unsigned bytes, gzipped if its name ends in .gz.

    The layout is two zero bytes, the type code 8, the rank, then the rank big-endian 32-bit
    sizes and the bytes in row-major order.

    Returns:
        uint8 array of the rank given: 3 for images, 1 for labels.

    Raises:
        ValueError: unreadable, not IDX, another type or rank, truncated, or too long.
    """
    magic, most = bytes([0, 0, 8, rank]), MOST_DEFLATED * path.stat().st_size
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            start = file.read(4 + 4 * rank)
            if start[:4] != magic or len(start) != 4 + 4 * rank:
                raise ValueError(f"it begins with {start[:4].hex(' ')}, not {magic.hex(' ')}")
            sizes = struct.unpack(f">{rank}I", start[4:])
            wanted = math.prod(sizes)
            if wanted > most:
                raise ValueError(f"{path.stat().st_size} bytes that claim to hold {wanted}")
            content = file.read(wanted + 1)
        if len(content) != wanted:
            more = " or more" * (len(content) > wanted)
            raise ValueError(f"sizes {sizes}, {wanted} bytes, and {len(content)}{more} after them")
    except UNREADABLE as error:
        raise ValueError(
            f"{path} cannot be read as an IDX file of {rank}-dimensional unsigned bytes; it may be "
            f"truncated or damaged, fetch it again. Received: {error}"
        ) from error
    # A copy, since an array over bytes is read-only.
    return np.frombuffer(content, dtype=np.uint8).reshape(sizes).copy()
