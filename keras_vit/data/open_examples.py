"""What a name, a path or arrays stand for, as the `Examples` of a pipeline."""

import difflib
import os
from pathlib import Path

import numpy as np

from keras_vit.data.checks import check_images, check_labels, whole_numbers
from keras_vit.data.dataset import ImageDataset
from keras_vit.data.examples import ArrayExamples, FileExamples
from keras_vit.data.folder import find_files
from keras_vit.data.record_examples import RecordExamples
from keras_vit.data.split_syntax import HELD_OUT
from keras_vit.data.tfds_sets import TFDS_SETS, default_data_dir, find_prepared
from keras_vit.data.vtab import VTAB_TASKS

IN_MEMORY = ("digits", "fashion_mnist")
ALIASES = {
    "imagenet": "imagenet2012",
    "imagenet-21k": "imagenet21k",
    "pets": "oxford_iiit_pet",
    "flowers": "oxford_flowers102",
    "cifar-10": "cifar10",
    "cifar-100": "cifar100",
}


def known_datasets():
    """Every name that `load` knows without a look at the disk."""
    tasks = tuple(f"vtab/{name}" for name in VTAB_TASKS)
    return (*IN_MEMORY, *TFDS_SETS, *tasks)


def open_examples(source, data_dir=None, load_in_memory=None):
    """Opens a dataset without reading its images.

    Args:
        source: what `load` takes.
        data_dir: the folder of prepared datasets, or of Fashion-MNIST.
        load_in_memory: name or path -> `ImageDataset`, for what is held in memory.

    Returns:
        An `Examples`.

    Raises:
        ValueError: an unknown name (the nearest ones are listed), or what the sources raise.
    """
    if isinstance(source, ImageDataset):
        return _from_dataset(source)
    if not isinstance(source, (str, os.PathLike)):
        return _from_arrays(source)
    text = str(source)
    path = Path(source).expanduser()
    name = ALIASES.get(text, text)
    if isinstance(source, str) and name in IN_MEMORY:
        return _from_dataset(load_in_memory(name))
    if isinstance(source, str) and is_tfds_name(name, data_dir):
        return _prepared(name, data_dir)
    if path.is_dir():
        return _from_folder(path, path.resolve().name)
    if path.suffix.lower() == ".npz" or path.exists():
        return _from_dataset(load_in_memory(source))
    raise ValueError(unknown(text))


def is_tfds_name(name, data_dir=None):
    """Whether a name means a dataset of TensorFlow Datasets or a task of VTAB."""
    first = name.split(":")[0].split("/")[0]
    if first == "vtab" or name in VTAB_TASKS or first in TFDS_SETS:
        return True
    folder = default_data_dir() if data_dir is None else Path(data_dir).expanduser()
    if not first.isidentifier() or Path(name).exists():
        return False
    return any(folder.glob(f"{first}/*/dataset_info.json")) or any(
        folder.glob(f"{first}/*/*/dataset_info.json")
    )


def unknown(text):
    """The message for a name that is none, with the nearest ones."""
    close = difflib.get_close_matches(text.lower(), [*known_datasets(), *ALIASES], n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(map(repr, close))}? " if close else ""
    looks_like_a_path = os.sep in text or Path(text).suffix
    what = "No such file or folder" if looks_like_a_path else "Unknown dataset"
    return (
        f"{what}. Received: {text!r}. {hint}Known names are {', '.join(known_datasets())}; also "
        "the path of a .npz file, of a folder with one subfolder of images per class, and arrays "
        "(images, labels)."
    )


def _prepared(name, data_dir):
    task_name = name.removeprefix("vtab/")
    if name.startswith("vtab/") and task_name not in VTAB_TASKS:
        raise ValueError(unknown(name))
    is_task = name.startswith("vtab/") or (name in VTAB_TASKS and name not in TFDS_SETS)
    if is_task:
        task = VTAB_TASKS[task_name]
        return RecordExamples(name, find_prepared(task.dataset, data_dir, task.major), task)
    folder = (default_data_dir() if data_dir is None else Path(data_dir).expanduser()) / name
    if (folder / "train").is_dir():
        return _from_folder(folder, name)
    return RecordExamples(name, find_prepared(name, data_dir))


def _from_folder(path, name):
    names, files = find_files(path)
    return FileExamples(name, names, files)


def _from_dataset(dataset):
    parts = {
        part: (getattr(dataset, f"{part}_images"), getattr(dataset, f"{part}_labels"))
        for part in ("train", "test")
    }
    return ArrayExamples(dataset.name, dataset.class_names, parts)


def _from_arrays(source):
    """(images, labels), which every split name means, or ((images, labels), (images, labels))."""
    try:
        first, second = source
        nested = isinstance(first, (tuple, list)) and len(first) == len(second) == 2
        pairs = [first, second] if nested else [(first, second)]
    except (TypeError, ValueError) as error:
        raise ValueError(
            "Arrays come as (images, labels), or as ((train_images, train_labels), (test_images, "
            f"test_labels)). Received: {type(source).__name__}. "
            + unknown("")
            * (not hasattr(source, "__len__"))
        ) from error
    pairs = [(np.asarray(images), np.asarray(labels)) for images, labels in pairs]
    pairs = [(images[..., None] if images.ndim == 3 else images, y) for images, y in pairs]
    labels = [whole_numbers(labels, "labels") for _, labels in pairs]
    count = 1 + max((int(values.max()) for values in labels if len(values)), default=0)
    checked = []
    for images, values in zip((images for images, _ in pairs), labels):
        if len(images) != len(values):
            raise ValueError(
                "There must be one label for each image. Received: "
                f"{len(images)} images and {len(values)} labels"
            )
        checked.append((check_images(images), check_labels(values, count)))
    names = ("train", "test") if len(checked) == 2 else ("all",)
    examples = _ArraysOfAnyPart if len(checked) == 1 else ArrayExamples
    return examples("arrays", map(str, range(count)), dict(zip(names, checked)))


class _ArraysOfAnyPart(ArrayExamples):
    """One undivided set: train, validation and test all mean it."""

    def resolve(self, split):
        if not isinstance(split, str):
            return split
        for name in ("train", *HELD_OUT):
            split = "+".join(
                "all" + piece.strip()[len(name) :]
                if piece.strip() == name or piece.strip().startswith(name + "[")
                else piece
                for piece in split.split("+")
            )
        return split
