"""Data sources: labelled images that are read by number, and the splits of their parts."""

import difflib
import re

import numpy as np

from keras_vit.data.dataset import ImageDataset, check_images, check_labels, stratified_split
from keras_vit.data.files import HELD_OUT, labelled_files, open_files

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

    Where there are no parts, `test_fraction` of each class is `"test"`.
    """

    sorted_by_class = True
    upright = True

    def __init__(self, path, name=None, test_fraction=0.2, seed=0):
        files = open_files(path)
        class_names, parts = labelled_files(files)
        if "all" in parts:
            every = parts.pop("all")
            labels = np.array([label for _, label in every])
            for part, rows in zip(("train", "test"), stratified_split(labels, test_fraction, seed)):
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


def array_source(source):
    """The source of an `ImageDataset`, of (images, labels), or of two such pairs of arrays."""
    if isinstance(source, ImageDataset):
        train = source.train_images, source.train_labels
        test = source.test_images, source.test_labels
        return ArraySource(source.name, source.class_names, {"train": train, "test": test})
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
