"""Data sources: the labelled images that a name, a path or arrays stand for, by number."""

import difflib
import os
import re
from pathlib import Path

import numpy as np

from keras_vit.data import tfds
from keras_vit.data.dataset import ImageDataset, check_images, check_labels, stratified_split
from keras_vit.data.files import ARCHIVES, labelled_files, open_files
from keras_vit.data.load import IN_MEMORY, load, unknown
from keras_vit.data.vtab import VTAB_TASKS

HELD_OUT = ("validation", "val", "test")  # where there is one of them, each name means it
_SLICES = 3  # seeds the order in which slices are drawn from class folders, in every run alike
# A name, and perhaps [start:stop] of rows or percents; either end may be missing.
_BOUND = r"\s*(-?\d+|-?\d+(?:\.\d+)?%)?\s*"
_PART = re.compile(rf"([\w-]+)(?:\[{_BOUND}:{_BOUND}\])?")


class Source:
    """Labelled images that are read one by one; the base of every data source.

    Attributes:
        class_names: tuple of text, in label order.
        parts: name of each part, such as `"train"` -> number of its examples. Those of the first
            part have the first numbers, those of the next part the next ones.
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
        part, index = self.find(row)
        return f"{self.name}, example {index} of {part!r}"

    def find(self, row):
        """The (part, number in it) of an example."""
        for part, size in self.parts.items():
            if row < size:
                return part, int(row)
            row -= size
        raise IndexError(row)

    def rows(self, split):
        """The numbers of the examples in a split, int64, in the order of the set."""
        starts = dict(zip(self.parts, np.cumsum([0, *self.parts.values()]).tolist()))
        pieces = []
        for part, start, stop in parse_split(split, self.parts):
            size = self.parts[part]
            rows = np.arange(start, stop)
            if self.sorted_by_class and stop - start < size:
                order = np.random.default_rng([_SLICES, size]).permutation(size)
                rows = np.sort(order[start:stop])
            pieces.append(rows + starts[part])
        return np.concatenate(pieces)


class ArraySource(Source):
    """Images in memory; `arrays` has the checked (images, labels) of each part."""

    def __init__(self, name, class_names, arrays):
        super().__init__(name, class_names, {part: len(y) for part, (_, y) in arrays.items()})
        self._arrays = arrays
        self.channels = next(iter(arrays.values()))[0].shape[-1]
        if self.channels not in (1, 3):
            raise ValueError(
                "A pipeline takes images of 1 or 3 channels. Received: "
                f"{self.channels} channels in {name}"
            )

    def __getitem__(self, row):
        part, index = self.find(row)
        images, labels = self._arrays[part]
        image = images[index]
        if image.dtype != np.uint8:
            image = np.rint(image * np.float32(255)).astype(np.uint8)
        return image, int(labels[index])


class FileSource(Source):
    """The image files of class folders, or of an archive of them, read when they are needed.

    Where there are no parts, a fifth of each class is `"test"`, the same for every seed.
    """

    sorted_by_class = True
    upright = True

    def __init__(self, path, name=None):
        files = open_files(path)
        class_names, parts = labelled_files(files)
        if "all" in parts:
            every = parts.pop("all")
            chosen = stratified_split(np.array([label for _, label in every]), 0.2, seed=0)
            for part, rows in zip(("train", "test"), chosen):
                parts[part] = [every[row] for row in rows]
        sizes = {part: len(found) for part, found in parts.items()}
        super().__init__(name or files.name, class_names, sizes)
        self._files = files
        self._listing = [item for found in parts.values() for item in found]

    def __getitem__(self, row):
        name, label = self._listing[row]
        return self._files.read(name), label

    def place(self, row):
        return self._files.place(self._listing[row][0])


class PreparedSource(Source):
    """The examples of a `tfds.Prepared` dataset: its features image and label, or a VTAB task's."""

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
        part, index = self.find(row)
        example = self._examples[part][index]
        label = int(example["label"]) if self._task is None else self._task.label(example)
        if not 0 <= label < len(self.class_names):
            raise ValueError(f"label {label} is outside 0..{len(self.class_names) - 1}")
        decode = self._task and self._task.decode
        return (decode(example["image"]) if decode else example["image"]), label

    def rows(self, split):
        """See `Source.rows`, for VTAB's own splits as well; opens the parts that they need."""
        if self._task is not None and isinstance(split, str):
            named = self._task.splits(self.parts)
            split = "+".join(named.get(piece.strip(), piece) for piece in split.split("+"))
        rows = super().rows(split)
        for part in {self.find(row)[0] for row in rows} - set(self._examples):
            self._examples[part] = self._prepared.examples(part)
        return rows


def open_source(source, data_dir=None):
    """The data source of what `pipeline` takes, or a ValueError that lists the nearest names."""
    if isinstance(source, (str, os.PathLike)):
        if source not in IN_MEMORY:
            if isinstance(source, str) and (found := _open_prepared(source, data_dir)):
                return found
            path = Path(source).expanduser()
            if path.is_dir() or (path.suffix.lower() in ARCHIVES and path.is_file()):
                return FileSource(path)
        source = load(source, data_dir=data_dir)
    if not isinstance(source, ImageDataset):
        return _from_arrays(source)
    train = source.train_images, source.train_labels
    test = source.test_images, source.test_labels
    return ArraySource(source.name, source.class_names, {"train": train, "test": test})


def _open_prepared(name, data_dir):
    """The source of a name of TensorFlow Datasets or of VTAB, or None where it is none."""
    if name.startswith("vtab/"):
        task = VTAB_TASKS.get(name.removeprefix("vtab/"))
        if task is None:
            raise ValueError(unknown(name))
        folder = tfds.find_prepared(task.dataset, data_dir, task.major)
        return PreparedSource(name, tfds.Prepared(folder), task)
    first, folder = re.split("[:/]", name)[0], tfds.data_folder(data_dir)
    if first not in tfds.TFDS_SETS:
        patterns = f"{first}/*/dataset_info.json", f"{first}/*/*/dataset_info.json"
        is_path = not first.isidentifier() or Path(name).exists()
        if is_path or not any(any(folder.glob(pattern)) for pattern in patterns):
            return None
    if (folder / name / "train").is_dir():
        return FileSource(folder / name, name)
    return PreparedSource(name, tfds.Prepared(tfds.find_prepared(name, data_dir)))


def _from_arrays(source):
    """(images, labels), which every split name means, or ((images, labels), (images, labels))."""
    try:
        first, second = source
        nested = isinstance(first, (tuple, list)) and len(first) == len(second) == 2
        pairs = [first, second] if nested else [(first, second)]
    except (TypeError, ValueError) as error:
        raise ValueError(
            "Arrays come as (images, labels), or as ((train_images, train_labels), (test_images, "
            f"test_labels)). Received: {type(source).__name__}"
        ) from error
    checked = []
    for images, labels in pairs:
        images = np.asarray(images)
        images = check_images(images[..., None] if images.ndim == 3 else images)
        checked.append((images, check_labels(labels, images)))
    count = 1 + max(int(labels.max()) for _, labels in checked)
    names = ("train", "test") if len(checked) == 2 else ("all",)
    return ArraySource("arrays", map(str, range(count)), dict(zip(names, checked)))


def parse_split(split, sizes):
    """The rows that a split takes from the parts of a dataset: a list of (part, start, stop).

    Args:
        split: such as `"train"`, `"train[:98%]"`, `"train[-500:]"`, or several joined by `+`.
            Percents become rows as in TensorFlow Datasets: rounded, halves to the even number.
        sizes: name of each part -> number of its examples. If only one of the parts validation,
            val and test exists, all these names mean it. If there is a part `"all"`, every name
            means it.
    """

    def refuse(reason=""):
        parts = ", ".join(f"{name!r} of {size} examples" for name, size in sizes.items())
        raise ValueError(
            f"split must be one of {parts}, a slice of one by rows or percents, such as "
            f"'train[:98%]', or several joined by '+'. Received: split={split!r}{reason}"
        )

    def row(bound, size, default):
        if bound is None:
            return default
        percent = bound.endswith("%")
        row = round(float(bound[:-1]) * size / 100.0) if percent else int(bound)
        if abs(row) > size:
            refuse(f", which reaches outside the {size} examples")
        return row + size if row < 0 else row

    found = []
    held_out = [part for part in sizes if part in HELD_OUT]
    for piece in split.split("+") if isinstance(split, str) else [""]:
        match = _PART.fullmatch(piece.strip()) or refuse()
        part, start, stop = match.groups()
        if part not in sizes and part in HELD_OUT and len(held_out) == 1:
            part = held_out[0]
        if "all" in sizes and part in ("train", *HELD_OUT):
            part = "all"
        if part not in sizes:
            close = difflib.get_close_matches(part, list(sizes), n=1)
            refuse(f". Did you mean {close[0]!r}?" if close else "")
        if start and stop and start.endswith("%") != stop.endswith("%"):
            refuse(", whose ends must be both rows or both percents")
        size = sizes[part]
        first, last = row(start, size, 0), row(stop, size, size)
        if first < last:
            found.append((part, first, last))
    return found or refuse(", which has no examples")


def starts_training(split):
    """Whether a split is one to train on: it begins at the first example of a training part.

    `"train"`, `"train[:98%]"`, `"train800val200"` are; `"train[98%:]"`, `"test"` are held out.
    """
    first = split.split("+")[0].strip()
    match = _PART.fullmatch(first)
    start = match and match.group(2)
    return first.startswith("train") and (start is None or float(start.rstrip("%")) == 0)
