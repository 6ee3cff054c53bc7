"""Parts of datasets by name and slice, `"train[:98%]+validation"`, as in TensorFlow Datasets."""

import difflib
import re

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


def find_part(name, sizes, split=None):
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
    part = find_part(name, sizes, split)
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
