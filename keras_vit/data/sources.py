"""`load`: one entry for every place a dataset can come from."""

import dataclasses
import os
from pathlib import Path

import numpy as np

from keras_vit.data.checks import check_dataset
from keras_vit.data.dataset import ImageDataset
from keras_vit.data.fashion_mnist import load_fashion_mnist
from keras_vit.data.folder import load_folder
from keras_vit.data.npz import load_npz
from keras_vit.data.resize import (
    check_channels,
    check_memory,
    convert_channels,
    parse_image_size,
    resize_images,
)
from keras_vit.data.split import check_test_fraction, stratified_split


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
    """Loads an image classification dataset into memory and checks it.

    Args:
        source: one of
            - "digits": scikit-learn's 1,797 handwritten digits, 8x8 grayscale, always there;
            - "fashion_mnist": 28x28 grayscale, from files in `data_dir` (IDX files, or
              prepared by TensorFlow Datasets); nothing is downloaded;
            - the path of a .npz file, see `keras_vit.data.npz`;
            - the path of a folder with one subfolder of images per class, or with such
              folders below train/ and test/ (or val/, validation/).
            To read a folder that is called like a built-in set, write "./digits".
        data_dir: where "fashion_mnist" lies; other sources do not use it.
        image_size: height and width in pixels, one int or (height, width), to resize to,
            bilinear and without regard to the aspect ratio. None keeps the size.
        channels: 1 (grayscale) or 3 (RGB) to convert to. None keeps what there is, and
            means 3 for folders.
        test_fraction: share of each class that becomes the test set, in (0, 1), for
            sources that have none of their own.
        skip_corrupt: for folders, leave out unreadable images and list them in `skipped`
            instead of raising.
        seed: non-negative int that decides the split.

    Returns:
        A checked `ImageDataset`.

    Raises:
        ValueError: an unknown source, an argument out of range, or data that is missing,
            damaged, inconsistent or too large for memory; the message tells which and what
            to do.
        ImportError: a package that this source needs is missing.
    """
    size = parse_image_size(image_size)
    check_channels(channels)
    check_test_fraction(test_fraction)
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ValueError(f"seed must be a whole number >= 0. Received: {seed!r}")
    # Comparing anything else, such as an array, with a name need not give a truth value.
    name = source if isinstance(source, str) else None
    if name == "digits":
        dataset = _load_digits(test_fraction, seed)
    elif name == "fashion_mnist":
        dataset = load_fashion_mnist(data_dir)
    else:
        path = _existing_path(source)
        if os.path.isdir(path):
            return check_dataset(
                load_folder(
                    path,
                    image_size=size,
                    channels=channels or 3,
                    test_fraction=test_fraction,
                    skip_corrupt=skip_corrupt,
                    seed=seed,
                )
            )
        dataset = load_npz(path, test_fraction, seed)
    return _converted(check_dataset(dataset), size, channels)


def _existing_path(source):
    """The path of a folder or .npz file, or ValueError."""
    if not isinstance(source, (str, os.PathLike)) or not str(source):
        raise ValueError(f"{_accepted()} Received: {source!r}")
    path = Path(source).expanduser()
    if os.path.isdir(path) or (os.path.isfile(path) and path.suffix.lower() == ".npz"):
        return path
    if os.path.exists(path):
        raise ValueError(f"{_accepted()} Received: the file {str(path)!r}")
    looks_like_a_path = isinstance(source, os.PathLike) or path.suffix or len(path.parts) > 1
    if looks_like_a_path:
        raise ValueError(
            f"No such file or folder, or it cannot be reached. Received: {str(path)!r}. "
            f"{_accepted()}"
        )
    raise ValueError(f"{_accepted()} Received: {source!r}, and no folder has that name")


def _accepted():
    return (
        "source must be 'digits', 'fashion_mnist', the path of a .npz file, or the path of a "
        "folder with one subfolder of images per class."
    )


def _load_digits(test_fraction, seed):
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError(
            "'digits' comes with scikit-learn, which is not installed. Install it with: "
            'pip install "keras3-vit[data]"'
        ) from error
    digits = load_digits()
    # 17 gray levels, 0..16, spread over the range that every other source has.
    images = np.round(digits.images * (255.0 / 16.0)).astype(np.uint8)[..., None]
    labels = digits.target.astype(np.int32)
    train, test = stratified_split(labels, test_fraction, seed)
    return ImageDataset(
        "digits",
        images[train],
        labels[train],
        images[test],
        labels[test],
        tuple(str(name) for name in digits.target_names),
    )


def _converted(dataset, size, channels):
    """The dataset with the image size and channels asked for."""
    height, width, present = dataset.image_shape
    wanted = (*(size or (height, width)), channels or present)
    if wanted == dataset.image_shape:
        return dataset
    count = len(dataset.train_images) + len(dataset.test_images)
    itemsize = max(dataset.train_images.itemsize, dataset.test_images.itemsize)
    check_memory((count, *wanted), itemsize)
    arrays = {
        part: resize_images(convert_channels(getattr(dataset, part), channels), size)
        for part in ("train_images", "test_images")
    }
    return dataclasses.replace(dataset, **arrays)
