"""Data sources: labelled images that are read by number, and the splits of their parts."""

import contextlib
import hashlib
import json
import math
import re
import warnings

import numpy as np

from keras_vit.class_names import warn_of_twins
from keras_vit.heads import map_heads

# What labels are: the number of the only class; one 0 or 1 for each class; one or more values.
PROBLEMS = ("single_label", "multi_label", "regression")
HELD_OUT = ("test", "validation")  # parts; in memory the first one is the test set
_NAMES = {  # what people call the parts
    "train": ("train", "training"),
    "validation": ("val", "valid", "validation", "dev", "development"),
    "test": ("test", "testing", "eval", "evaluation"),
}
# As in test_set, test1, train_2017 and trainB; "val200" and "val2000" are slices, as VTAB has them.
_ENDINGS = re.compile(r"[-_ ]?((?i:set|data|dataset|images|split|dir)|\d|(?!2000)20\d\d|[AB])\Z")
# Images whose sizes are asked for, and bytes of them that are read, to find equal ones.
_MOST_IMAGES, _MOST_READ = 2**13, 2**27
# Decides from which places slices of class folders are drawn. Any number would do, in all runs.
SLICE_SEED = 3
# A name, and perhaps [start:stop] of rows or percents; either end may be missing.
_BOUND = r"\s*(-?\d+|-?\d+(?:\.\d+)?%)?\s*"
_PART = re.compile(rf"([\w-]+)(?:\[{_BOUND}:{_BOUND}\])?")


def part_of(name):
    """`"train"`, `"validation"` or `"test"` for a name that people give that part; else None.

    It may be in any case, and also "training_set", "ValData", or one of several, as "test2017" and
    "trainA".
    """
    stems = {name.lower(), _ENDINGS.sub("", name).lower()}
    return next((part for part, names in _NAMES.items() if stems & {*names}), None)


def count_classes(class_names, label_shape):
    """The number of classes, or of the values to estimate, which need not have names."""
    return len(class_names) if class_names else math.prod(label_shape)


class Source:
    """Labelled images that are read one by one; the base of every data source.

    `class_names` are in label order. `parts` has the name of each part, such as `"train"`, and the
    number of its examples, which are numbered on from one part to the next. `problem` says what a
    label is, see `PROBLEMS`, and `label_shape` its shape. Where there are several heads,
    `class_names`, `problem`, `label_shape` and each label are dicts {head: value}, and -1 or NaN
    stands for a label that an example lacks.
    """

    channels = None  # of the images, where that is not chosen when they are decoded
    sorted_by_class = False  # a slice of such a set is drawn from a shuffled order
    resized = None  # the `ImageDataset` whose images `load` has resized
    upright = False  # whether the orientation tags of files are followed
    split_by = None  # the head whose classes have the same shares in training and test images
    left_out = ()  # places of files that are beside the images, or are no images
    content = None  # equal for sources of the same images, where that is known

    def __init__(self, name, class_names, parts, problem="single_label", label_shape=()):
        self.name, self.parts = name, dict(parts)
        self.class_names = map_heads(lambda n: None if n is None else tuple(n), class_names)
        self.problem, self.label_shape = problem, map_heads(tuple, label_shape)
        map_heads(lambda names: warn_of_twins(names or (), name), self.class_names)

    @property
    def num_classes(self):
        """The number of classes, or of the values that regression estimates."""
        return map_heads(count_classes, self.class_names, self.label_shape)

    def has_part(self, part):
        """Whether "train", "validation" or "test" is in the set, under any of its names."""
        return "all" in self.parts or part in map(part_of, self.parts)

    def with_fallbacks(self, split, fallbacks):
        """A split with another one of `fallbacks` in place of each part that this set lacks.

        They are {"test" or "validation": split or `None`}.
        """
        pieces = []
        for piece in split.split("+"):
            name, bracket, bounds = piece.strip().partition("[")
            part = part_of(name)
            other = None if part is None or self.has_part(part) else fallbacks.get(part)
            if other and bracket and part_of(other) is None:
                raise ValueError(
                    f"{self.name} has no part {part!r}, for which the recipe takes {other!r}. "
                    f"Received: split={split!r}; write a slice of {other.split('[')[0]!r} instead."
                )
            pieces.append(f"{other}{bracket}{bounds}" if other else piece)
        return "+".join(pieces)

    def __getitem__(self, row):
        """(image, label): the bytes of a file, or pixels as in `ImageDataset`; and the label.

        A label is an int for `"single_label"`, else float32 of shape `label_shape`.
        """
        raise NotImplementedError

    def label(self, row):
        return self[row][1]

    def identity(self, row):
        """A key of an example and its label, as far as it can be told without reading the image."""
        return int(row)

    def digest(self, rows):
        """A text that tells these examples, with their labels and order, from others."""
        identities = [self.identity(row) for row in rows]
        text = json.dumps(identities, default=lambda label: np.asarray(label).tolist())
        return f"sha256 {hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def cost(self, row):
        """Bytes that are read for an image, the same for equal ones; None if it is not cheap."""
        return None

    def warn_of_copies(self, rows, other, other_rows):
        """Warns of equal images to train on that another source holds out, or of different labels.

        Names do not count. Only images of one cost are read, as many as take a second or so; of
        large sets none is.
        """
        if len(rows) + len(other_rows) > _MOST_IMAGES:
            return
        by_cost, by_digest, left = {}, {}, _MOST_READ
        for source, numbers in ((self, rows), (other, other_rows)):
            for row in numbers:
                by_cost.setdefault(source.cost(row), []).append((source, row))
        by_cost.pop(None, None)
        for cost, alike in sorted(by_cost.items(), key=lambda item: len(item[1])):
            if len(alike) == 1 or cost * len(alike) > left:
                continue
            left -= cost * len(alike)
            for source, row in alike:
                with contextlib.suppress(OSError, ValueError):  # that it is damaged is told later
                    image = source[row][0]
                    image = image if isinstance(image, bytes) else image.tobytes()
                    by_digest.setdefault(hashlib.sha256(image).digest(), []).append((source, row))
        held_out, in_both, labelled_twice = {(other, row) for row in other_rows}, [], []
        for copies in by_digest.values():
            held = [copy for copy in copies if copy in held_out]
            labels = {str(source.label(row)) for source, row in copies}
            first, last = (source.place(row) for source, row in (copies[0], (held or copies)[-1]))
            if held and copies[0] not in held_out:
                in_both.append(f"{first} and {last}")
            elif len(labels) > 1 and self.class_names == other.class_names:
                labelled_twice.append(f"{first} and {last}")
        for rule, pairs in (
            ("Images for validation or a test should not be trained on", in_both),
            ("Equal images should have equal labels", labelled_twice),
        ):
            if pairs:
                text = f"{rule}. Received: {len(pairs)} images twice, as {'; '.join(pairs[:3])}"
                warnings.warn(f"{text}. Keep one of each.", stacklevel=3)

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
                order = np.random.default_rng([SLICE_SEED, size]).permutation(size)
                rows = np.sort(order[start:stop])
            pieces.append(rows + starts[part])
        rows = np.concatenate(pieces)
        if len(pieces) > 1 and len(np.unique(rows)) < len(rows):
            warnings.warn(
                f"A split has each example once. Received: split={split!r}, which has some of "
                f"{self.name} twice.",
                stacklevel=2,
            )
        return rows


def parse_split(split, sizes):
    """The rows that a split takes from the parts of a dataset: a list of (part, start, stop).

    A split is such as `"train"`, `"train[:98%]"`, `"train[-500:]"`, or several joined by `+`.
    Percents become rows as in TensorFlow Datasets: rounded, halves to the even number.

    `sizes` is {part: number of examples}. A part has synonyms, such as "val" for "validation". If
    a set has only one of the parts validation and test, both names mean that one. If there is a
    part `"all"`, every name means it.
    """
    known = ", ".join(f"{name!r} of {size} examples" for name, size in sizes.items())
    refusal = (
        f"split must be one of {known}, a slice of one by rows or percents, such as "
        f"'train[:98%]', or several joined by '+'. Received: split={split!r}"
    )

    def row_at(bound, size):
        percent = bound.endswith("%")
        row = round(float(bound[:-1]) * size / 100.0) if percent else int(bound)
        if abs(row) > size:
            raise ValueError(f"{refusal}, which reaches outside the {size} examples")
        return row + size if row < 0 else row

    slices = []
    for piece in str(split).split("+"):
        match = _PART.fullmatch(piece.strip())
        name, start, stop = match.groups() if match else (None, None, None)
        part = name if name in sizes else _nearest_part(name, sizes)
        if part is None:
            raise ValueError(refusal)
        if start and stop and start.endswith("%") != stop.endswith("%"):
            raise ValueError(f"{refusal}, whose ends must be both rows or both percents")
        size = sizes[part]
        first, last = row_at(start or "0", size), row_at(stop or "100%", size)
        if first < last:
            slices.append((part, first, last))
    if not slices:
        raise ValueError(f"{refusal}, which has no examples")
    return slices


def _nearest_part(name, parts):
    """The part that a name means where no part has that very name, or None."""
    part = part_of(name or "")
    if part and "all" in parts:
        return "all"
    meant = [other for other in parts if part and part_of(other) == part]
    if part in HELD_OUT and not meant:
        meant = [other for other in parts if part_of(other) in HELD_OUT]
    return meant[0] if len(meant) == 1 else None


def starts_training(split):
    """Whether a split is one to train on: it begins at the first example of a training part.

    `"train"`, `"train[:98%]"`, `"train800val200"` are; `"train[98%:]"`, `"test"` are held out.
    """
    first = split.split("+")[0].strip()
    match = _PART.fullmatch(first)
    start = match and match.group(2)
    return first.lower().startswith("train") and (start is None or float(start.rstrip("%")) == 0)
