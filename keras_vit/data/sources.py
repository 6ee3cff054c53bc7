"""Data sources: the labelled images that a name, a path or arrays stand for, by number."""

import os
from pathlib import Path

import numpy as np

from keras_vit.data import tfds
from keras_vit.data.checks import check_images, check_labels, count_classes, whole_numbers
from keras_vit.data.dataset import ImageDataset
from keras_vit.data.files import ARCHIVES, labelled_files, open_files
from keras_vit.data.load import IN_MEMORY, known_datasets, load, nearest
from keras_vit.data.splits import parse_split, stratified_split
from keras_vit.data.vtab import VTAB_TASKS

ALIASES = {
    "imagenet": "imagenet2012",
    "imagenet-21k": "imagenet21k",
    "pets": "oxford_iiit_pet",
    "flowers": "oxford_flowers102",
    "cifar-10": "cifar10",
    "cifar-100": "cifar100",
}
_SLICES = 3  # seeds the order in which slices are drawn from class folders, in every run alike


class Source:
    """Labelled images that are read one by one; the base of every data source.

    The examples of all parts are numbered on, in the order of `parts`.

    Attributes:
        name: what the set is called.
        class_names: tuple of text, in label order.
        parts: name of each part, such as `"train"` -> number of its examples.
        channels: of the images, or None where that is chosen when they are decoded.
        sorted_by_class: whether neighbours tend to have one class, so that a slice must be drawn
            from a shuffled order.
        upright: whether the orientation tags of files are followed.
    """

    channels = None
    sorted_by_class = False
    upright = False

    def __init__(self, name, class_names, parts):
        self.name, self.class_names, self.parts = name, tuple(class_names), dict(parts)

    def __getitem__(self, row):
        """(image, label): the bytes of a file, or uint8 pixels; and an int."""
        raise NotImplementedError

    def place(self, row):
        """Where an example lies, for messages."""
        return f"{self.name}, example {row}"

    def resolve(self, split):
        """What a split that the set itself defines stands for; any other as it is."""
        return split

    def rows(self, split):
        """The numbers of the examples in a split, int64, in the order of the set.

        Raises:
            ValueError: see `parse_split`.
        """
        starts = dict(zip(self.parts, np.cumsum([0, *self.parts.values()]).tolist()))
        pieces = []
        for part, start, stop in parse_split(self.resolve(split), self.parts):
            size = self.parts[part]
            rows = np.arange(start, stop)
            if self.sorted_by_class and stop - start < size:
                order = np.random.default_rng([_SLICES, size]).permutation(size)
                rows = np.sort(order[start:stop])
            pieces.append(rows + starts[part])
        return np.concatenate(pieces)


class ArraySource(Source):
    """Images in memory.

    Args:
        name, class_names: as in `Source`.
        arrays: name of each part -> (images, labels): uint8, or floats in [0, 1], of shape
            (examples, height, width, channels); and whole numbers. The part `"all"` is what every
            name of a part means.
    """

    def __init__(self, name, class_names, arrays):
        super().__init__(name, class_names, {part: len(y) for part, (_, y) in arrays.items()})
        self._arrays = list(arrays.values())
        self.channels = self._arrays[0][0].shape[-1]
        if self.channels not in (1, 3):
            raise ValueError(
                "A pipeline takes images of 1 or 3 channels. Received: "
                f"{self.channels} channels in {name}"
            )

    def __getitem__(self, row):
        part = 0
        while row >= len(self._arrays[part][1]):
            row -= len(self._arrays[part][1])
            part += 1
        images, labels = self._arrays[part]
        image = images[row]
        if image.dtype != np.uint8:
            image = np.rint(image.astype(np.float32) * 255).astype(np.uint8)
        return image, int(labels[row])

    def resolve(self, split):
        if "all" not in self.parts or not isinstance(split, str):
            return split
        pieces = [piece.strip() for piece in split.split("+")]
        for name in ("train", "validation", "val", "test"):
            named = [piece == name or piece.startswith(f"{name}[") for piece in pieces]
            pieces = ["all" + p[len(name) :] if is_ else p for p, is_ in zip(pieces, named)]
        return "+".join(pieces)


class FileSource(Source):
    """The image files of class folders, or of an archive of them, read when they are needed.

    Where there are no parts, a fifth of each class is `"test"`, the same for every seed.
    """

    sorted_by_class = True
    upright = True

    def __init__(self, name, files):
        class_names, parts = labelled_files(files)
        if "all" in parts:
            every = parts.pop("all")
            chosen = stratified_split(np.array([label for _, label in every]), 0.2, seed=0)
            for part, rows in zip(("train", "test"), chosen):
                parts[part] = [every[row] for row in rows]
        if empty := [part for part, found in parts.items() if not found]:
            raise ValueError(f"{files.place(empty[0])} must hold an image. Received: none")
        super().__init__(name, class_names, {part: len(found) for part, found in parts.items()})
        self._files = files
        self._listing = [item for found in parts.values() for item in found]

    def __getitem__(self, row):
        name, label = self._listing[row]
        return self._files.read(name), label

    def place(self, row):
        return self._files.place(self._listing[row][0])


class PreparedSource(Source):
    """The examples of a dataset that TensorFlow Datasets has prepared, or of a task of VTAB.

    Args:
        name: what to call the set.
        prepared: a `keras_vit.data.tfds.Prepared`.
        task: a `keras_vit.data.vtab.Task`, or None for the features image and label.
    """

    def __init__(self, name, prepared, task=None):
        if task is None and (prepared.class_names is None or "image" not in prepared.features):
            raise ValueError(
                f"{prepared.folder} must have the features image and label, the latter a class "
                f"label. Received: {', '.join(prepared.features) or 'none'}; VTAB tasks choose "
                "others, see VTAB_TASKS"
            )
        names = prepared.class_names or ()
        if task is not None and len(names) != task.num_classes:
            names = map(str, range(task.num_classes))
        super().__init__(name, names, prepared.sizes)
        self._prepared, self._task, self._examples = prepared, task, {}

    def __getitem__(self, row):
        part, index = self._find(row)
        example = self._examples[part][index]
        label = int(example["label"]) if self._task is None else self._task.label(example)
        if not 0 <= label < len(self.class_names):
            raise ValueError(f"label {label} is outside 0..{len(self.class_names) - 1}")
        decode = self._task and self._task.decode
        return (decode(example["image"]) if decode else example["image"]), label

    def rows(self, split):
        """See `Source.rows`; opens the parts that the split needs."""
        rows = super().rows(split)
        for part in {self._find(row)[0] for row in rows} - set(self._examples):
            self._examples[part] = self._prepared.examples(part)
        return rows

    def place(self, row):
        part, index = self._find(row)
        return f"{self.name}, example {index} of {part!r}"

    def resolve(self, split):
        if self._task is None or not isinstance(split, str):
            return split
        named = self._task.splits(self.parts)
        return "+".join(named.get(piece.strip(), piece) for piece in split.split("+"))

    def _find(self, row):
        for part, size in self.parts.items():
            if row < size:
                return part, int(row)
            row -= size
        raise IndexError(row)


def open_source(source, data_dir=None):
    """The data source of a name, a path or arrays.

    Args:
        source: what `pipeline` takes.
        data_dir: the folder of prepared datasets, or of Fashion-MNIST.

    Raises:
        ValueError: an unknown name (the nearest ones are listed), or damaged data.
    """
    if isinstance(source, ImageDataset):
        return _from_dataset(source)
    if not isinstance(source, (str, os.PathLike)):
        return _from_arrays(source)
    path, name = Path(source).expanduser(), ALIASES.get(str(source), source)
    if isinstance(name, str) and name in IN_MEMORY:
        return _from_dataset(load(name, data_dir=data_dir))
    if isinstance(name, str) and _is_prepared(name, data_dir):
        return _prepared(name, data_dir)
    if path.is_dir() or (path.suffix.lower() in ARCHIVES and path.is_file()):
        return FileSource(
            path.resolve().stem if path.is_file() else path.resolve().name, open_files(path)
        )
    if path.suffix.lower() == ".npz" or path.exists():
        return _from_dataset(load(source))
    raise ValueError(unknown(str(source)))


def unknown(text):
    """The message for a name that is none, with the nearest ones."""
    known = known_datasets()
    is_path = (os.sep in text and not text.startswith("vtab/")) or Path(text).suffix
    return (
        f"{'No such file or folder' if is_path else 'Unknown dataset'}. Received: {text!r}. "
        f"{nearest(text, [*known, *ALIASES])}Known names are {', '.join(known)}; also the path of "
        "a .npz file, of a folder, .zip or .tar archive with one subfolder of images per class, "
        "and arrays (images, labels)."
    )


def _is_prepared(name, data_dir):
    """Whether a name means a dataset of TensorFlow Datasets or a task of VTAB."""
    first = name.split(":")[0].split("/")[0]
    if first == "vtab" or name in VTAB_TASKS or first in tfds.TFDS_SETS:
        return True
    if not first.isidentifier() or Path(name).exists():
        return False
    patterns = (f"{first}/*/dataset_info.json", f"{first}/*/*/dataset_info.json")
    return any(any(tfds.data_folder(data_dir).glob(pattern)) for pattern in patterns)


def _prepared(name, data_dir):
    task_name = name.removeprefix("vtab/")
    if name.startswith("vtab/") and task_name not in VTAB_TASKS:
        raise ValueError(unknown(name))
    if name.startswith("vtab/") or (name in VTAB_TASKS and name not in tfds.TFDS_SETS):
        task = VTAB_TASKS[task_name]
        folder = tfds.find_prepared(task.dataset, data_dir, task.major)
        return PreparedSource(name, tfds.Prepared(folder), task)
    folder = tfds.data_folder(data_dir) / name
    if (folder / "train").is_dir():
        return FileSource(name, open_files(folder))
    return PreparedSource(name, tfds.Prepared(tfds.find_prepared(name, data_dir)))


def _from_dataset(of):
    train, test = (of.train_images, of.train_labels), (of.test_images, of.test_labels)
    return ArraySource(of.name, of.class_names, {"train": train, "test": test})


def _from_arrays(source):
    """(images, labels), which every split name means, or ((images, labels), (images, labels))."""
    try:
        first, second = source
        nested = isinstance(first, (tuple, list)) and len(first) == len(second) == 2
        pairs = [first, second] if nested else [(first, second)]
    except (TypeError, ValueError) as error:
        raise ValueError(
            "Arrays come as (images, labels), or as ((train_images, train_labels), (test_images, "
            f"test_labels)); names are {', '.join(known_datasets())}. "
            f"Received: {type(source).__name__}"
        ) from error
    pairs = [(np.asarray(images), whole_numbers(labels, "labels")) for images, labels in pairs]
    count = count_classes([labels for _, labels in pairs])
    checked = []
    for images, labels in pairs:
        if len(images) != len(labels):
            raise ValueError(
                "There must be one label for each image. Received: "
                f"{len(images)} images and {len(labels)} labels"
            )
        images = check_images(images[..., None] if images.ndim == 3 else images)
        checked.append((images, check_labels(labels, count)))
    names = ("train", "test") if len(checked) == 2 else ("all",)
    return ArraySource("arrays", map(str, range(count)), dict(zip(names, checked)))
