"""`load`: one entry for every place a dataset can come from."""

import dataclasses
import difflib
import os
from pathlib import Path

import numpy as np

from keras_vit.data.checks import check_dataset
from keras_vit.data.dataset import ImageDataset
from keras_vit.data.fashion_mnist import load_fashion_mnist
from keras_vit.data.folder import load_folder
from keras_vit.data.load_pipeline import load_pipeline
from keras_vit.data.npz import load_npz
from keras_vit.data.open_examples import known_datasets
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
    recipe=None,
    split=None,
    batch=None,
    *,
    data_dir=None,
    image_size=None,
    channels=None,
    test_fraction=0.2,
    skip_corrupt=False,
    seed=None,
    engine="auto",
    training=None,
    threads=None,
):
    """Loads an image classification dataset: into memory, or as a pipeline for a recipe.

        dataset = load("digits")                          # arrays, an ImageDataset
        train = load("cifar10", recipe)                   # batches for model.fit
        test = load("cifar10", recipe, split="test")      # batches for model.evaluate

    Args:
        source: one of
            - "digits": scikit-learn's 1,797 handwritten digits, 8x8 grayscale, always there;
            - "fashion_mnist": 28x28 grayscale, from files in `data_dir` (IDX files, or
              prepared by TensorFlow Datasets); nothing is downloaded;
            - the path of a .npz file, see `keras_vit.data.npz`;
            - the path of a folder with one subfolder of images per class, or with such
              folders below train/ and test/ (or val/, validation/);
            and, with a recipe,
            - a name of TensorFlow Datasets, such as "cifar10" or "eurosat/rgb:2.0.0", that lies
              prepared in `data_dir`; or a task of VTAB, such as "vtab/clevr_count";
            - arrays (images, labels), or ((images, labels), (images, labels)) to train and test.
            To read a folder that is called like a built-in set, write "./digits".
        recipe: a `keras_vit.recipes.Recipe`. None reads arrays into memory.
        split: with a recipe, "train", "validation" or "test", a slice as "train[:98%]", several
            joined by "+", or a split of VTAB as "train800val200"; None is what the recipe trains
            on. A validation or test part that the set does not have is the recipe's, or else the
            other one. Slices of folders are drawn from all classes.
        batch: with a recipe, images per batch; None is the recipe's.
        data_dir: where "fashion_mnist" or the prepared datasets lie; None is, for the latter,
            the environment variable TFDS_DATA_DIR or ~/tensorflow_datasets.
        image_size: without a recipe, height and width in pixels, one int or (height, width), to
            resize to, bilinear and without regard to the aspect ratio. None keeps the size.
        channels: 1 (grayscale) or 3 (RGB) to convert to. None keeps what there is, and
            means 3 for image files.
        test_fraction: share of each class that becomes the test set, in (0, 1), for
            sources that have none of their own.
        skip_corrupt: without a recipe, for folders: leave out unreadable images and list them in
            `skipped` instead of raising. A pipeline always does.
        seed: non-negative int. Without a recipe it decides the split (None is 0); with one, order
            and augmentation (None is the recipe's), and the split is the same for all seeds.
        engine: with a recipe, "tensorflow" (tf.data), "grain", "numpy" (no threads, no package),
            or "auto": "numpy" for small images in memory whose batches it makes at once, else the
            first of the others that is installed. The batches are the same.
        training: with a recipe, whether to shuffle and augment. None: if the split begins with
            the first training example, so "train[:98%]" does and "train[98%:]" does not.
        threads: with a recipe, examples to read at a time; None is the number of cores.

    Returns:
        A checked `ImageDataset`, or, with a recipe, a `keras_vit.data.Pipeline`.

    Raises:
        ValueError: an unknown source, an argument out of range, or data that is missing,
            damaged, inconsistent or too large for memory; the message tells which and what
            to do.
        ImportError: a package that this source needs is missing.
    """
    size = parse_image_size(image_size)
    check_channels(channels)
    check_test_fraction(test_fraction)
    if seed is not None and (
        isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0
    ):
        raise ValueError(f"seed must be a whole number >= 0. Received: {seed!r}")
    if recipe is None:
        _only_with_recipe(split=split, batch=batch, training=training, threads=threads)
        return _load_arrays(
            source, data_dir, size, channels, test_fraction, skip_corrupt, seed or 0
        )
    if size is not None:
        raise ValueError(
            "With a recipe, images have the size of its transforms: change the recipe. Received: "
            f"image_size={image_size!r}"
        )

    def in_memory(name):
        # Always the same split: what one seed trains on must not be what another one tests on.
        return _load_arrays(name, data_dir, None, None, test_fraction, False, seed=0)

    return load_pipeline(
        source,
        recipe,
        split,
        batch,
        engine=engine,
        training=training,
        seed=seed,
        data_dir=data_dir,
        channels=channels,
        threads=threads,
        load_in_memory=in_memory,
    )


def _only_with_recipe(**options):
    given = [f"{name}={value!r}" for name, value in options.items() if value is not None]
    if given:
        raise ValueError(
            "Without a recipe, load reads all of a dataset into memory. Received: "
            f"{', '.join(given)}; pass a recipe, or leave them out"
        )


def _load_arrays(source, data_dir, size, channels, test_fraction, skip_corrupt, seed):
    """An `ImageDataset`: see `load`."""
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
    hint = _nearest(str(source))
    raise ValueError(f"{_accepted()} Received: {source!r}, and no folder has that name.{hint}")


def _nearest(name):
    """What a name could mean, as the end of a message."""
    known = known_datasets()
    if name in known:
        return " It can be loaded as a pipeline: pass a recipe."
    close = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    return f" Did you mean {' or '.join(map(repr, close))}?" if close else ""


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
