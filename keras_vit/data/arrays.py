"""Datasets of arrays: a user's own, .npz archives, IDX files, and scikit-learn's digits."""

import functools
import gzip
import operator
import warnings
import zipfile
import zlib
from collections.abc import Mapping

import keras
import numpy as np

from keras_vit.checks import check_choice, needs_extra
from keras_vit.data import dataset
from keras_vit.data.dataset import MAX_BYTES, MOST_CLASSES, ImageDataset
from keras_vit.data.sources import PROBLEMS, Source
from keras_vit.heads import map_heads

_MOST_DEFLATED = 250  # times: an archive that deflates more is made to fill the memory
_MOST_IDX = 2**26  # bytes of an IDX file; the largest of Fashion-MNIST has 47 million
_UNREADABLE = (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error)
# Arrays of an archive; names of a train/test pair come before names of one undivided set.
_NPZ_KEYS = (
    ("x_train", "y_train", "x_test", "y_test"),
    ("train_images", "train_labels", "test_images", "test_labels"),
    ("x", "y"),
    ("images", "labels"),
)


class ArraySource(Source):
    """Images in memory; `arrays` has the checked (images, labels) of each part."""

    def __init__(self, name, class_names, arrays, problem="single_label"):
        images, labels = next(iter(arrays.values()))
        sizes = {part: len(x) for part, (x, _) in arrays.items()}
        shape = map_heads(lambda y: y.shape[1:], labels)
        super().__init__(name, class_names, sizes, problem, shape)
        self._arrays, self.channels = arrays, images.shape[-1]
        some = np.ascontiguousarray(images[:: max(1, len(images) // 8)])
        self.content = f"{images.shape} {zlib.crc32(some.data)}"
        self.sorted_by_class = any(map(_are_sorted, keras.tree.flatten(labels)))

    def __getitem__(self, row):
        part, index = self.find(row)
        images, labels = self._arrays[part]
        return images[index], map_heads(lambda y: y[index], labels)

    def identity(self, row):
        return self.label(row)

    def cost(self, row):
        return self[row][0].nbytes


def _are_sorted(labels):
    """Whether labels rise, fall, or come class by class, as of arrays that were joined."""
    steps = np.diff(labels, axis=0)
    changes, classes = np.count_nonzero(steps), len(np.unique(labels))
    is_joined = changes == classes - 1 and 2 * classes <= len(labels)
    in_order = is_joined or (steps >= 0).all() or (steps <= 0).all()
    return labels.ndim == 1 and bool(changes and in_order)


def array_source(source, problem=None):
    """The source of an `ImageDataset`, of (images, labels), or of two such pairs of arrays."""
    if isinstance(source, ImageDataset):
        parts = {"train": (source.train_images, source.train_labels)}
        parts["test"] = source.test_images, source.test_labels
        opened = ArraySource(source.name, source.class_names, parts, source.problem)
        opened.left_out, opened.resized = source.left_out, source if source.resized else None
        return opened
    try:
        first, second = source
        nested = isinstance(first, (tuple, list)) and len(first) == len(second) == 2
        pairs = [first, second] if nested else [(first, second)]
    except (TypeError, ValueError) as error:
        raise ValueError(
            "Arrays come as (images, labels), or as ((train_images, train_labels), (test_images, "
            f"test_labels)). Received: {type(source).__name__}"
        ) from error
    images = [np.asarray(images) for images, _ in pairs]
    images = [dataset.check_images(x[..., None] if x.ndim == 3 else x) for x in images]
    labels = [labels for _, labels in pairs]
    has_heads = isinstance(labels[0], Mapping)
    if has_heads:
        labels = _by_head(labels, problem)
    problem = map_heads(problem_of, labels, problem)
    checked = functools.partial(dataset.check_parts, images, partly=has_heads)
    labels, parts = map_heads(checked, labels, problem), {}
    for index, part in enumerate(("train", "test") if nested else ("all",)):
        parts[part] = images[index], map_heads(operator.itemgetter(index), labels)
    return ArraySource("arrays", map_heads(numbered_classes, labels, problem), parts, problem)


def _by_head(parts, problem):
    """{head: its labels in each part}; all parts and the problems must have the same heads."""
    names = [*parts, *([problem] if problem is not None else [])]
    if any(not isinstance(each, Mapping) or set(each) != set(parts[0]) for each in names):
        received = [list(each) if isinstance(each, Mapping) else each for each in names]
        raise ValueError(
            "Labels of several heads are dicts {head: labels} of the same heads in each part, and "
            "problem a dict of these heads, or left out. Received: heads and problem "
            f"{', '.join(map(repr, received)):.200}"
        )
    return {head: [part[head] for part in parts] for head in problem or parts[0]}


def problem_of(labels, problem=None):
    """What arrays of labels are, see `PROBLEMS`: what is said, or what they can be alone.

    Rows of 0 and 1 that have not one 1 each are those of several classes. One-hot rows could be
    either, and numbers could be values: these are single labels unless it is said.
    """
    if problem is not None:
        check_choice("problem", problem, PROBLEMS)
        return problem
    for part in map(np.asarray, labels):
        is_table = part.ndim == 2 and part.shape[1] > 1 and part.dtype.kind in "biuf"
        if is_table and np.isin(part, (0, 1)).all() and (part.sum(axis=1) != 1).any():
            return "multi_label"
    return "single_label"


def numbered_classes(labels, problem):
    """Numbers as names of the classes of checked labels; None for values."""
    if problem == "regression":
        return None
    if problem == "multi_label":
        return tuple(map(str, range(labels[0].shape[1])))
    count = 1 + max(int(part.max(initial=0)) for part in labels)
    used = np.unique(np.concatenate(labels))
    used = used[used >= 0]
    unseen, what = np.setdiff1d(used, labels[0]), None
    if count > 2 and np.array_equal(used, range(1, count)):
        what = (
            f"labels that are all the numbers from 1 to {count - 1}, which makes {count} classes, "
            "the first without an image; pass labels - 1 if the first class is 1"
        )
    elif 2 * len(used) <= count and count > 2:
        what = (
            f"labels up to {count - 1}, which makes {count} classes, of which {len(used)} have an "
            "image; number these with numpy.unique(labels, return_inverse=True)[1], or say "
            "problem='regression' of values"
        )
    elif unseen.max(initial=-1) > labels[0].max():
        what = f"class {unseen[-1]} in the test set alone; are both parts numbered alike?"
    if what:
        warnings.warn(f"Classes are counted from 0. Received: {what}.", stacklevel=2)
    return tuple(map(str, range(count)))


def split_dataset(name, images, labels, class_names, test_fraction, seed, problem="single_label"):
    """An `ImageDataset` of one undivided set."""
    train, test = dataset.split_rows(labels, test_fraction, seed, problem)
    parts = images[train], labels[train], images[test], labels[test]
    return ImageDataset(name, *parts, class_names, problem=problem)


def load_digits(test_fraction, seed):
    with needs_extra("data", "'digits' comes with scikit-learn"):
        from sklearn import datasets
    digits = datasets.load_digits()
    # 17 gray levels, 0..16, spread over the range that every other source has.
    images = np.round(digits.images * (255.0 / 16.0)).astype(np.uint8)[..., None]
    names = tuple(map(str, digits.target_names))
    return split_dataset("digits", images, digits.target, names, test_fraction, seed)


def load_npz(path, test_fraction, seed, problem=None):
    arrays = _read_npz(path)
    keys = next((keys for keys in _NPZ_KEYS if set(keys) <= set(arrays)), None)
    if keys is None:
        expected = " or ".join(", ".join(keys) for keys in _NPZ_KEYS)
        raise ValueError(
            f"{path} must hold the arrays {expected}. Received: keys "
            f"{', '.join(sorted(arrays)) or 'none'}; rename them and save again"
        )
    if others := sorted(set(arrays) - {*keys, "class_names"}):
        warnings.warn(
            f"Of {path} the arrays {', '.join(keys)} are read. Received: also {', '.join(others)}, "
            "which are not.",
            stacklevel=2,
        )
    parts, problem = [], problem_of([arrays[key] for key in keys[1::2]], problem)
    for images, labels in zip(keys[::2], keys[1::2]):
        x, y = arrays[images], arrays[labels]
        x = x[..., None] if x.ndim == 3 else x
        column = y.ndim == 2 and y.shape[1] == 1 and problem != "multi_label"
        y = y[:, 0] if column else y
        parts += [x, dataset.check_labels(y, x, f"{labels} in {path}", problem=problem)]
    if not len(parts[1]):
        raise ValueError(f"{path} must hold at least one training image. Received: none")
    if (names := arrays.get("class_names")) is None:
        names = numbered_classes(parts[1:2], problem)
    elif names.ndim != 1 or names.dtype.kind not in "US" or len(names) > MOST_CLASSES:
        raise ValueError(
            f"class_names in {path} must be a list of at most {MOST_CLASSES} names. Received: "
            f"shape {names.shape}, dtype {names.dtype}"
        )
    else:
        names = tuple(n.decode() if isinstance(n, bytes) else n for n in names.tolist())
    if len(parts) == 2:
        return split_dataset(path.stem, *parts, names, test_fraction, seed, problem)
    return ImageDataset(path.stem, *parts, names, problem=problem)


def _read_npz(path):
    """The arrays of an archive, which must be about as large as it says."""
    try:
        # Opened as a zip first, since np.load would take a .npy file too, whatever its name.
        with zipfile.ZipFile(path) as archive:
            size = sum(info.file_size for info in archive.infolist())
        if size > MAX_BYTES or size > _MOST_DEFLATED * path.stat().st_size:
            raise ValueError(f"{path.stat().st_size} bytes that claim to hold {size}")
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)
    # A header that claims more than its file holds ends in a MemoryError, or in a ValueError.
    except (*_UNREADABLE, MemoryError, RuntimeError) as error:
        raise ValueError(
            f"{path} cannot be read as a .npz archive of numbers and text; save it with "
            f"numpy.savez, without object arrays. Received: {error}"
        ) from error


def read_idx(path, rank):
    """The uint8 array of that rank in an IDX file, gzipped if its name ends in .gz.

    The layout is two zero bytes, the type code 8, the rank, then the rank big-endian 32-bit
    sizes and the bytes in row-major order.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            content = bytearray(file.read(_MOST_IDX))  # an array of it can be written to
        if content[:4] != bytes([0, 0, 8, rank]):
            raise ValueError(f"it begins with {content[:4].hex(' ')}, not 00 00 08 0{rank}")
        sizes = np.frombuffer(content, ">u4", rank, offset=4).tolist()
        return np.frombuffer(content, np.uint8, offset=4 + 4 * rank).reshape(sizes)
    except _UNREADABLE as error:
        raise ValueError(
            f"{path} cannot be read as an IDX file of {rank}-dimensional unsigned bytes; it may be "
            f"truncated or damaged, fetch it again. Received: {error}"
        ) from error
