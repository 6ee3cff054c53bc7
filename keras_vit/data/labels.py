"""Labels of image files by the names of the files, and what problem they are of."""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from keras_vit.checks import require
from keras_vit.data import label_files
from keras_vit.data.dataset import MOST_CLASSES
from keras_vit.data.files import refuse
from keras_vit.data.sources import HELD_OUT, part_of
from keras_vit.heads import map_heads

_LARGEST = float(np.finfo(np.float32).max)
# What pandas, Excel and databases write where a label lacks, in lower case: what is never the name
# of a class, and what may be one.
_LACKING = {*"-nan <na> #n/a #na nan nat (null) \\n".split(), "#n/a n/a"}
_MAY_LACK = {"-1", "na", "n/a", "none", "null"}


class Labels(NamedTuple):
    """The labels of a set of files, or those for one head of several.

    Attributes:
        problem: what a label is, see `keras_vit.data.sources.PROBLEMS`.
        class_names: a tuple of the classes, or of the targets of a regression; None for one target
            or several without names.
        values: dict from the name of a file to an int, or to a float32 array of one shape.
        listed: whether the classes were listed, and not only collected from the labels.
        parts: dict from the name of a file to "train", "validation" or "test", or None.
    """

    problem: str
    class_names: tuple[str, ...] | None
    values: dict[str, Any]
    listed: bool
    parts: dict[str, str] | None

    def value(self, file):
        """The label of a file; -1 or NaN stand for one that it does not have."""
        if file in self.values:
            return self.values[file]
        return -1 if self.problem == "single_label" else np.full(self.shape, np.nan, np.float32)

    @property
    def shape(self):
        """That of each label."""
        return np.shape(next(iter(self.values.values())))


def read_labels(labels, problem=None):
    """The `Labels` of a mapping, or of the path of a .csv or .json file, as docs/data.md has them.

    `problem` is what labels are, where they could be several things; see `PROBLEMS`. Of several
    heads it is a dict {head: problem}, a CSV file has columns of these names, and the result is a
    dict {head: its `Labels`}.

    Raises:
        ValueError: labels that cannot be read, contradict each other, or could mean several things.
    """
    place = "labels" if isinstance(labels, Mapping) else label_files.check_path(labels)
    is_csv = place != "labels" and place.suffix.lower() == ".csv"
    if is_csv:
        (rows, parts), names = label_files.read_csv(place, problem), None
    else:
        rows = labels if isinstance(labels, Mapping) else label_files.read_json(place)
        rows, names, parts = label_files.rows_of_mapping(rows, problem, place)
    parts = parts and {file: part_of(str(part)) or part for file, part in parts.items()}
    wrong = [file for file, part in (parts or {}).items() if part not in ("train", *HELD_OUT)]
    refuse(wrong, f"'split' in {place} must be train, validation or test", parts)

    def resolve(problem, rows, names):
        if is_csv:
            names, rows = label_files.labels_in(rows, problem, place)
        return Labels(*_resolve(rows, names, problem, place), parts)

    by_head = map_heads(resolve, problem, rows, names)
    is_one = isinstance(problem, Mapping) and len(problem) == 1
    return by_head.popitem()[1] if is_one else by_head


def _resolve(rows, names, problem, place):
    """The fields of `Labels` of {file: name, list of names, number or list of numbers}."""
    if not rows:
        raise ValueError(f"{place} must label at least one file. Received: no labels")
    is_list = isinstance(names, list | tuple) and _are(str, names)
    fits = names is None or (is_list and len(set(names)) == len(names))
    require(fits, f"'classes' in {place} must be a list of different names", received=names)
    listed, least = names is not None, 1 if problem else 2
    is_text, has_lists = _form(rows, place)
    read = _classes_by_name if is_text else _classes_by_number
    names = tuple(names) if listed else None
    problem, values, classes = read(rows, has_lists, names, problem, place)
    if problem != "regression":
        rule = f"The labels in {place} must be of {least} to {MOST_CLASSES} classes"
        fits, advice = least <= len(classes) <= MOST_CLASSES, f"one alone needs problem={problem!r}"
        require(fits, f"{rule}; {advice}", received=len(classes))
    return problem, classes, values, listed


def _form(rows, place):
    """(whether labels are text, or else numbers; whether they are lists of these)."""
    forms = {}
    for file, label in rows.items():
        has_list = isinstance(label, list | tuple)
        form = next((t for t in (str, float) if _are(t, label if has_list else [label])), None)
        if form is None or not isinstance(file, str):
            raise ValueError(
                f"A label in {place} must be a name, a finite number, or a list of either; labels "
                "of several heads need problem={head: 'single_label', ...}. Received: "
                f"{label!r:.80} for {file!r}"
            )
        forms.setdefault((form is str, has_list), file)
    if set(forms) == {(True, False), (True, True)}:
        return True, True
    if len(forms) > 1:
        first, second = list(forms.values())[:2]
        raise ValueError(
            f"All labels in {place} must be of one form. Received: {rows[first]!r:.80} for "
            f"{first!r}, and {rows[second]!r:.80} for {second!r}"
        )
    return next(iter(forms))


def _are(form, values):
    """Whether all values are text, or all are numbers that float32 can hold."""
    if form is str:
        return all(isinstance(value, str) for value in values)
    return all(isinstance(value, int | float) and abs(value) <= _LARGEST for value in values)


def _classes_by_name(rows, has_lists, names, problem, place):
    """(problem, {file: value}, classes) of labels that are names or lists of names."""
    problem = problem or ("multi_label" if has_lists else "single_label")
    if problem == "regression":
        refuse(rows, f"Values to estimate in {place} must be numbers", rows)
    lists = {file: [label] if isinstance(label, str) else label for file, label in rows.items()}
    if problem == "single_label":
        wrong = [file for file, label in lists.items() if len(label) != 1 or not label[0]]
        rule = f"Each file in {place} must have one label, or say problem='multi_label'"
        refuse(wrong, rule, rows)
    used = {name for label in lists.values() for name in label}
    require("" not in used, f"Classes must have names in {place}", received="")
    if not names:
        lacking = [file for file, label in lists.items() if _LACKING & {*map(str.lower, label)}]
        rule = f"A label in {place} must not read as one that lacks. Leave the rows of images "
        rule += "without a label out (of several heads, empty their cells); if it is a class, list "
        rule += "all, as JSON or a mapping can: {'labels': {file: label, ...}, 'classes': [...]}"
        refuse(lacking, rule, rows)
        doubtful = sorted(name for name in used if name.lower() in _MAY_LACK)
        if doubtful and used != {"-1", "1"}:
            warnings.warn(
                f"{', '.join(map(repr, doubtful))} in {place} is read as the name of a class, or "
                "of a tag; leave out the rows of images without a label, or, of several heads, "
                "empty their cells",
                stacklevel=2,
            )
    if names:
        rule = f"The labels in {place} must be among its classes {', '.join(names[:10])}"
        refuse(sorted(map(repr, used - set(names))), rule)
    numeric = all(name.replace(".", "", 1).removeprefix("-").isdecimal() for name in used)
    classes = names or tuple(sorted(used, key=lambda n: (float(n) if numeric else 0, n)))
    numbers = {name: number for number, name in enumerate(classes)}
    if problem == "single_label":
        return problem, {file: numbers[label[0]] for file, label in lists.items()}, classes
    values = {file: np.zeros(len(classes), np.float32) for file in lists}
    for file, label in lists.items():
        values[file][[numbers[name] for name in label]] = 1
    return problem, values, classes


def _classes_by_number(rows, has_lists, names, problem, place):
    """(problem, {file: value}, classes) of labels that are numbers or lists of numbers."""

    def check(fits, rule):
        if wrong := [file for file, fit in zip(rows, fits) if not np.all(fit)]:
            raise ValueError(
                f"The labels in {place} must be {rule}. Received: {len(wrong)} others, the first "
                f"is {rows[wrong[0]]!r:.80} for {wrong[0]!r}"
            )

    if not has_lists and problem in (None, "single_label"):
        if names is None and problem:
            # Equal numbers are one class, which is called as the whole number if one is there.
            in_order = sorted(rows.values(), key=lambda number: type(number) is int)
            names_of = {number: str(number) for number in in_order}
            rows = {file: names_of[number] for file, number in rows.items()}
            return _classes_by_name(rows, has_lists, None, problem, place)
        if names:  # the classes are listed, and labels are their numbers
            fits = np.isin(list(rows.values()), np.arange(len(names)))
            check(fits, f"numbers of classes in 0..{len(names) - 1}")
            return "single_label", {file: int(number) for file, number in rows.items()}, names
    lists = [label if has_lists else [label] for label in rows.values()]
    width = len(names or lists[0])
    check([len(label) == width for label in lists], f"{width} numbers for each file")
    table = np.array(lists, np.float64)
    binary, exclusive = np.isin(table, (0, 1)), table.sum(axis=1) == 1
    if problem is None and (not has_lists or not binary.all() or exclusive.all()):
        rule = f"The labels in {place} could be of one class, of several, or values to estimate"
        refuse(rows, f"{rule}; {label_files.ASK}", rows)
    values = table.astype(np.float32)
    if problem == "regression":
        return problem, dict(zip(rows, values if has_lists else values[:, 0])), names
    check(binary, "0 or 1")
    classes = names or tuple(map(str, range(width)))
    if problem == "single_label":
        check(exclusive, "a single 1 among 0")
        return problem, dict(zip(rows, table.argmax(axis=1).tolist())), classes
    return "multi_label", dict(zip(rows, values)), classes
