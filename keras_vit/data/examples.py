"""Where the examples of a pipeline come from: one at a time, by number."""

import numpy as np

from keras_vit.data.split_syntax import parse_split

# Orders the files of a class folder before a slice of them is taken, in every run alike.
_SLICES = 3


class Examples:
    """A set of labelled images that are read one by one; the base of every source.

    Attributes:
        name: what the set is called.
        class_names: tuple of text, in label order.
        parts: name of each part, such as `"train"` -> number of its examples.
        encoded: whether images come as the bytes of an image file.
        sorted_by_class: whether neighbours tend to have one class, so that a slice must be
            drawn from a shuffled order.

    The examples of all parts are numbered on, in the order of `parts`.
    """

    encoded = False
    sorted_by_class = False

    def __init__(self, name, class_names, parts):
        self.name, self.class_names, self.parts = name, tuple(class_names), dict(parts)

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

    def resolve(self, split):
        """What a split that the set itself defines stands for; any other as it is."""
        return split

    def read(self, row):
        """The image and the class of an example.

        Returns:
            (image, label): bytes where `encoded`, else uint8 of shape (height, width, channels);
            and an int.
        """
        raise NotImplementedError

    def place(self, row):
        """Where an example lies, for messages."""
        return f"{self.name}, example {row}"


class ArrayExamples(Examples):
    """Images in memory.

    Args:
        name, class_names: as in `Examples`.
        arrays: name of each part -> (images, labels): uint8, or floats in [0, 1], of shape
            (examples, height, width, channels); and whole numbers.
    """

    def __init__(self, name, class_names, arrays):
        super().__init__(name, class_names, {part: len(y) for part, (_, y) in arrays.items()})
        self._images = [images for images, _ in arrays.values()]
        self._labels = [labels for _, labels in arrays.values()]
        self._starts = np.cumsum([0, *self.parts.values()])

    def read(self, row):
        part = int(np.searchsorted(self._starts, row, side="right")) - 1
        index = row - self._starts[part]
        image = self._images[part][index]
        if image.dtype != np.uint8:
            image = np.rint(image.astype(np.float32) * 255).astype(np.uint8)
        return image, int(self._labels[part][index])


class FileExamples(Examples):
    """Image files, read when they are needed.

    Args:
        name, class_names: as in `Examples`.
        files: name of each part -> list of (path, label).
    """

    encoded = True
    sorted_by_class = True

    def __init__(self, name, class_names, files):
        super().__init__(name, class_names, {part: len(found) for part, found in files.items()})
        listed = [item for found in files.values() for item in found]
        self._paths = [str(path) for path, _ in listed]
        self._labels = np.array([label for _, label in listed], dtype=np.int32)

    def read(self, row):
        with open(self._paths[row], "rb") as file:
            return file.read(), int(self._labels[row])

    def place(self, row):
        return self._paths[row]
