"""Datasets in a NumPy .npz archive."""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from keras_vit.data.checks import whole_numbers
from keras_vit.data.dataset import ImageDataset
from keras_vit.data.split import stratified_split

# In this order; names of a train/test pair come before names of one undivided set.
_LAYOUTS = (
    ("x_train", "y_train", "x_test", "y_test"),
    ("train_images", "train_labels", "test_images", "test_labels"),
    ("x", "y"),
    ("images", "labels"),
)


def load_npz(path, test_fraction, seed):
    """Reads an archive of image and label arrays.

    The arrays are called x_train, y_train, x_test, y_test, or train_images, train_labels,
    test_images, test_labels; or x, y, or images, labels, which are then split. An optional
    class_names gives the classes; without it they are 0..largest training label.

    Args:
        path: the file. It is read without unpickling anything.
        test_fraction: share of each class for the test set, where there is none.
        seed: decides that split.

    Returns:
        An `ImageDataset`; images (n, height, width) have gained a channel axis and labels
        (n, 1) have lost theirs.

    Raises:
        ValueError: missing, damaged, not an archive, object arrays, or missing keys.
    """
    path = Path(path)
    if not path.exists():
        raise ValueError(f"No such file. Received: {str(path)!r}")
    arrays = _read(path)
    keys = next((layout for layout in _LAYOUTS if set(layout) <= set(arrays)), None)
    if keys is None:
        expected = " or ".join(", ".join(layout) for layout in _LAYOUTS)
        raise ValueError(
            f"{path} must hold the arrays {expected}. Received: keys "
            f"{', '.join(sorted(arrays)) or 'none'}; rename them and save again"
        )
    images, labels = (
        [_shaped(arrays[key], is_images) for key in keys[start::2]]
        for start, is_images in ((0, True), (1, False))
    )
    labels = [whole_numbers(array, f"{key} in {path}") for array, key in zip(labels, keys[1::2])]
    for image_array, label_array, key in zip(images, labels, keys[::2]):
        if image_array.ndim == 0 or len(image_array) != len(label_array):
            raise ValueError(
                f"{key} in {path} must have as many images as there are labels. Received: "
                f"{image_array.shape[:1]} images and {label_array.shape} labels"
            )
    names = _class_names(arrays.get("class_names"), labels[0], path)
    if len(keys) == 2:
        train, test = stratified_split(labels[0], test_fraction, seed)
        images = [images[0][train], images[0][test]]
        labels = [labels[0][train], labels[0][test]]
    return ImageDataset(path.stem, images[0], labels[0], images[1], labels[1], names)


def _read(path):
    try:
        # Asked first, since np.load would take a .npy file too, whatever its name.
        if not zipfile.is_zipfile(path):
            raise ValueError("not a zip archive")
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        hint = "save it with numpy.savez"
        if "allow_pickle" in str(error):
            hint = "object arrays are not read; save arrays of numbers, and names as text"
        raise ValueError(
            f"{path} cannot be read as a .npz archive: {hint}. Received: {error}"
        ) from error


def _shaped(array, is_images):
    if is_images:
        return array[..., None] if array.ndim == 3 else array
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def _class_names(names, train_labels, path):
    if names is None:
        if not len(train_labels):
            raise ValueError(f"{path} must hold at least one training image. Received: none")
        return tuple(str(label) for label in range(int(train_labels.max()) + 1))
    if names.ndim != 1 or names.dtype.kind not in "US":
        raise ValueError(
            f"class_names in {path} must be a list of text. Received: shape {names.shape}, "
            f"dtype {names.dtype}"
        )
    return tuple(n.decode("utf-8") if isinstance(n, bytes) else str(n) for n in names.tolist())
