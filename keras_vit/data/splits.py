"""Parts of datasets by name and slice, `"train[:98%]+validation"`, and parts made by lot."""

import difflib
import re

import numpy as np

# A name, and perhaps [start:stop] of whole numbers or percents; either end may be missing.
_BOUND = r"(?:(-?\d+(?:\.\d+)?)(%?))?"
_PART = re.compile(rf"^([\w-]+)(?:\[\s*{_BOUND}\s*:\s*{_BOUND}\s*\])?$")

# One held-out part serves under each of these names.
HELD_OUT = ("validation", "val", "test")


def parse_split(split, sizes):
    """The rows that a split takes from the parts of a dataset.

    Args:
        split: such as `"train"`, `"train[:98%]"`, `"train[-500:]"`, or several joined by `+`.
            Percents become rows as in TensorFlow Datasets: rounded, halves to the even number.
        sizes: name of each part -> number of its examples. If only one of the parts validation,
            val and test exists, all these names mean it.

    Returns:
        list of (part, start, stop), `0 <= start < stop <= sizes[part]`, each a part's rows.

    Raises:
        ValueError: another syntax, an unknown part (the nearest ones are named), bounds outside
            the part, or a split without examples.
    """
    if not isinstance(split, str) or not split.strip():
        raise ValueError(f"{_expected(sizes)} Received: split={split!r}.")
    pieces = [_rows(piece.strip(), split, sizes) for piece in split.split("+")]
    pieces = [piece for piece in pieces if piece[1] < piece[2]]
    if not pieces:
        raise ValueError(
            f"The split has no examples. Received: split={split!r}; the parts hold "
            f"{_described(sizes)} examples."
        )
    return pieces


def starts_training(split):
    """Whether a split is one to train on: it begins at the first example of a training part.

    `"train"`, `"train[:98%]"`, `"train800val200"` are; `"train[98%:]"`, `"test"` are held out.
    """
    first = split.split("+")[0].strip()
    match = _PART.match(first)
    starts = match is None or match.group(2) is None or float(match.group(2)) == 0
    return first.startswith("train") and starts


def _find_part(name, sizes, split=None):
    """The part that a name means, or ValueError."""
    if name in sizes:
        return name
    held_out = [part for part in sizes if part in HELD_OUT]
    if name in HELD_OUT and len(held_out) == 1:
        return held_out[0]
    close = difflib.get_close_matches(name, list(sizes), n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    if name in HELD_OUT and not held_out and "train" in sizes:
        hint = " A set of its own can be cut off, such as 'train[90%:]'."
    raise ValueError(f"{_expected(sizes)}{hint} Received: split={split or name!r}.")


def _rows(piece, split, sizes):
    match = _PART.match(piece)
    if match is None:
        raise ValueError(f"{_expected(sizes)} Received: split={split!r}.")
    name, start, start_unit, stop, stop_unit = match.groups()
    part = _find_part(name, sizes, split)
    if start is not None and stop is not None and start_unit != stop_unit:
        raise ValueError(
            f"Both ends of a slice must be rows, or both percents. Received: split={split!r}."
        )
    size = sizes[part]
    first = _bound(start, start_unit, size, 0, split)
    last = _bound(stop, stop_unit, size, size, split)
    return part, first, last


def _bound(text, unit, size, default, split):
    if text is None:
        return default
    if unit != "%" and "." in text:
        raise ValueError(f"Rows are whole numbers; percents end in %. Received: split={split!r}.")
    row = round(float(text) * size / 100.0) if unit == "%" else int(text)
    if abs(row) > size:
        raise ValueError(
            f"The slice reaches outside the {size} examples there are. Received: split={split!r}."
        )
    return row + size if row < 0 else row


def _expected(sizes):
    return (
        f"split must be one of {', '.join(map(repr, sizes))}, a slice of one, such as "
        f"'{next(iter(sizes), 'train')}[:98%]', or several joined by '+'."
    )


def _described(sizes):
    return ", ".join(f"{name}: {size}" for name, size in sizes.items())


def check_test_fraction(test_fraction):
    """Raises ValueError unless `test_fraction` lies strictly between 0 and 1."""
    if not isinstance(test_fraction, (int, float, np.number)) or not 0 < test_fraction < 1:
        raise ValueError(
            "test_fraction must lie strictly between 0 and 1, such as 0.2. "
            f"Received: {test_fraction!r}"
        )


def stratified_split(labels, test_fraction, seed):
    """Splits example indices so that each class keeps its share in both parts.

    A class with two or more examples has at least one on each side; the only example of a
    class goes to train, since a class cannot be learned from the test set.

    Args:
        labels: whole numbers, shape (examples,).
        test_fraction: share of each class for the test part, in (0, 1).
        seed: decides which examples; the same seed gives the same split.

    Returns:
        (train, test): two sorted int64 index arrays, disjoint and together complete.

    Raises:
        ValueError: `test_fraction` out of range, or every class has a single example.
    """
    check_test_fraction(test_fraction)
    rng = np.random.default_rng(seed)
    is_test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        if len(members) >= 2:
            wanted = int(len(members) * test_fraction + 0.5)
            is_test[members[: min(max(wanted, 1), len(members) - 1)]] = True
    if not is_test.any():
        raise ValueError(
            "A train/test split needs a class with at least two images. Received: "
            f"{len(labels)} images, no two of the same class; add images or supply a test set"
        )
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)
