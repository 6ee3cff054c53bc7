"""Labels of image files by the names of the files, and what problem they are of."""

import math
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from keras_vit.data.dataset import MOST_CLASSES
from keras_vit.data.label_files import (
    ASK,
    check_part,
    check_path,
    labels_in,
    read_csv,
    read_json,
    some_of,
)
from keras_vit.heads import errors_of, of_head

_LARGEST = float(np.finfo(np.float32).max)


class Labels(NamedTuple):
    """The labels of a set of files.

    Attributes:
        problem: what a label is, see `keras_vit.data.sources.PROBLEMS`.
        class_names: a tuple of the classes, or of the targets of a regression; None for one target
            or several without names.
        values: dict from the name of a file to an int, or to a float32 array of one shape.
        parts: dict from the name of a file to "train", "validation" or "test", or None.
        listed: whether the classes were listed, and not only collected from the labels.

    Of several heads all but `parts` are dicts by head, each value among `values` too. There -1 and
    NaN stand for a label that a file does not have.
    """

    problem: str | dict[str, str]
    class_names: Any
    values: dict[str, Any]
    parts: dict[str, str] | None
    listed: Any


def read_labels(labels, problem=None):
    """The `Labels` of a mapping, or of the path of a .csv or .json file; see docs/data.md.

    Args:
        labels: the mapping, {file: label} or {"labels": {file: label}, "classes": [name, ...],
            "split": {file: part}}, or the path. Of several heads a label is {head: label}, and
            the labels may be {head: {file: label}} too; classes are {head: [name, ...]}.
        problem: what labels are, where they could be several things; see `PROBLEMS`. Of several
            heads a dict {head: problem}, of which a CSV file has the columns.

    Raises:
        ValueError: labels that cannot be read, contradict each other, or could mean several things.
    """
    has_heads, place = isinstance(problem, Mapping), "labels"
    problems = problem if has_heads else {None: problem}
    if not isinstance(labels, Mapping):
        place = check_path(labels)
        labels = read_csv(place, problem) if place.suffix.lower() == ".csv" else read_json(place)
    columns, names, parts = None, None, None
    if isinstance(labels, tuple):
        columns, parts = labels
    else:
        rows, names, parts = _with_classes_and_parts(labels, problem, place)
    by_head = {}
    for head, of_problem in problems.items():
        with errors_of(head, note=False):
            if columns is None:
                names_of, rows_of = of_head(names, head), _plain_rows(rows[head])
            else:
                chosen = columns if head is None else {head: columns[head]}
                if len(problems) > 1 and of_problem != "multi_label":  # an empty cell lacks a label
                    chosen = {head: {file: cell for file, cell in columns[head].items() if cell}}
                names_of, rows_of = labels_in(chosen, of_problem, place)
            by_head[head] = _resolve(rows_of, names_of, parts, of_problem, place)
    return by_head[head] if len(by_head) == 1 else _joined(by_head, parts)


def _with_classes_and_parts(labels, problem, place):
    """({head: {file: label}}, names of classes or None, parts or None); the head None for one."""
    rows, names, parts = labels, None, None
    if isinstance(labels.get("labels"), Mapping):
        if other := sorted(set(labels) - {"labels", "classes", "split"}):
            raise ValueError(
                f"Beside the key 'labels', {place} may have the keys 'classes' and 'split'. "
                f"Received: {', '.join(map(repr, other))}"
            )
        rows, names, parts = (labels.get(key) for key in ("labels", "classes", "split"))
    has_heads = isinstance(problem, Mapping)
    rows = _rows_by_head(rows, problem, place) if has_heads else {None: rows}
    if parts is not None:
        if not isinstance(parts, Mapping) or set(parts) != set().union(*rows.values()):
            raise ValueError(
                f"'split' in {place} must name the part of each file among the labels. Received: "
                f"{parts!r:.80}"
            )
        parts = {_plain(name): check_part(part, name, place) for name, part in parts.items()}
    return rows, names, parts


def _rows_by_head(rows, problem, place):
    """{head: {file: label}} of rows in that form, or in the form {file: {head: label}}."""
    if wrong := [name for name, row in rows.items() if not isinstance(row, Mapping)]:
        raise ValueError(
            f"Of several heads each label in {place} must be a dict {{head: label}}. Received: "
            f"{rows[wrong[0]]!r:.80} for {wrong[0]!r}"
        )
    if set(rows) == set(problem):
        return rows
    if missing := set(problem) - set().union(*rows.values()):
        raise ValueError(
            f"problem must name heads among the labels in {place}. Received: "
            f"{', '.join(map(repr, sorted(missing)))}"
        )
    return {
        head: {file: row[head] for file, row in rows.items() if not _is_none(row.get(head))}
        for head in problem
    }


def _is_none(label):
    """Whether a label lacks, as `None` or, as pandas writes it, as NaN."""
    return label is None or (isinstance(label, float) and math.isnan(label))


def _joined(by_head, parts):
    """The `Labels` of several heads, of {head: its `Labels`}."""
    lacking = {
        head: -1
        if each.problem == "single_label"
        else np.full_like(next(iter(each.values.values())), np.nan)
        for head, each in by_head.items()
    }
    files = dict.fromkeys(file for each in by_head.values() for file in each.values)
    values = {
        file: {head: each.values.get(file, lacking[head]) for head, each in by_head.items()}
        for file in files
    }
    problem, class_names, listed = (
        {head: getattr(each, name) for head, each in by_head.items()}
        for name in ("problem", "class_names", "listed")
    )
    return Labels(problem, class_names, values, parts, listed)


def _plain_rows(rows):
    return {_plain(file): _plain(label) for file, label in rows.items()}


def _plain(value):
    """A path as text, and what NumPy has as Python's."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _resolve(rows, names, parts, problem, place):
    """The `Labels` of rows {file: name, list of names, number or list of numbers}."""
    if not rows:
        raise ValueError(f"{place} must label at least one file. Received: no labels")
    if names is not None and (
        not isinstance(names, list | tuple) or not _are(str, names) or len(set(names)) < len(names)
    ):
        raise ValueError(
            f"'classes' in {place} must be a list of different names. Received: {names!r:.80}"
        )
    given = problem
    form, names = _form(rows, place), None if names is None else tuple(names)
    if form in (str, (str,)):
        problem, values, classes = _classes_by_name(rows, form, names, problem, place)
    else:
        problem, values, classes = _classes_by_number(rows, form, names, problem, place)
    least = 1 if given else 2
    if problem != "regression" and not least <= len(classes) <= MOST_CLASSES:
        raise ValueError(
            f"The labels in {place} must be of {least} to {MOST_CLASSES} classes. Received: "
            f"{len(classes)}; one class alone needs problem={problem!r}"
        )
    return Labels(problem, classes, values, parts, names is not None)


def _form(rows, place):
    """What the labels are: str, (str,) for lists of names, float, or (float,)."""
    forms = {}
    for file, label in rows.items():
        several = isinstance(label, list | tuple)
        form = next((t for t in (str, float) if _are(t, label if several else [label])), None)
        if form is None or not isinstance(file, str):
            raise ValueError(
                f"A label in {place} must be a name, a finite number, or a list of either; labels "
                "of several heads need problem={head: 'single_label', ...}. Received: "
                f"{label!r:.80} for {file!r}"
            )
        forms.setdefault((form,) if several else form, file)
    if set(forms) == {str, (str,)}:
        return (str,)
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


def _classes_by_name(rows, form, names, problem, place):
    problem = problem or ("single_label" if form is str else "multi_label")
    if problem == "regression":
        raise ValueError(
            f"Values to estimate must be numbers. Received: {some_of(rows)} in {place}"
        )
    lists = {file: [label] if isinstance(label, str) else label for file, label in rows.items()}
    if problem == "single_label":
        for file, label in lists.items():
            if len(label) != 1 or not label[0]:
                raise ValueError(
                    f"Each file in {place} must have one label, or say problem='multi_label'. "
                    f"Received: {rows[file]!r:.80} for {file!r}"
                )
    names_used = {name for label in lists.values() for name in label}
    if "" in names_used:
        raise ValueError(f"Classes must have names. Received: '' among the labels in {place}")
    if names and (unknown := sorted(names_used - set(names))):
        raise ValueError(
            f"The labels in {place} must be among its classes {', '.join(names[:10])}. Received: "
            f"{', '.join(map(repr, unknown[:10]))}"
        )
    numeric = all(name.replace(".", "", 1).removeprefix("-").isdecimal() for name in names_used)
    classes = names or tuple(sorted(names_used, key=lambda n: (float(n) if numeric else 0, n)))
    numbers = {name: number for number, name in enumerate(classes)}
    if problem == "single_label":
        return problem, {file: numbers[label[0]] for file, label in lists.items()}, classes
    values = {file: np.zeros(len(classes), np.float32) for file in lists}
    for file, label in lists.items():
        values[file][[numbers[name] for name in label]] = 1
    return problem, values, classes


def _classes_by_number(rows, form, names, problem, place):
    one = form is float
    if one and problem in (None, "single_label"):
        if names is None and problem:
            return _classes_by_name({f: str(n) for f, n in rows.items()}, str, None, problem, place)
        if names:  # the classes are listed, and labels are their numbers
            fits = np.isin(list(rows.values()), np.arange(len(names)))
            _check_values(rows, fits, f"numbers of classes in 0..{len(names) - 1}", place)
            return "single_label", {file: int(number) for file, number in rows.items()}, names
    lists = {file: [label] if one else label for file, label in rows.items()}
    width = len(names or next(iter(lists.values())))
    fits = [len(label) == width for label in lists.values()]
    _check_values(rows, fits, f"{width} numbers for each file", place)
    table = np.array(list(lists.values()), np.float64)
    binary, exclusive = np.isin(table, (0, 1)), table.sum(axis=1) == 1
    if problem is None and (one or not binary.all() or exclusive.all()):
        raise ValueError(
            f"The labels in {place} could be of one class, of several, or values to estimate; "
            f"{ASK}. Received: {some_of(rows)}"
        )
    if problem == "regression":
        values = table.astype(np.float32)
        return problem, dict(zip(rows, values[:, 0] if one else values)), names
    _check_values(rows, binary, "0 or 1", place)
    classes = names or tuple(map(str, range(width)))
    if problem == "single_label":
        _check_values(rows, exclusive, "a single 1 among 0", place)
        return problem, dict(zip(rows, table.argmax(axis=1).tolist())), classes
    return "multi_label", dict(zip(rows, table.astype(np.float32))), classes


def _check_values(rows, fits, rule, place):
    if wrong := [file for file, fit in zip(rows, fits) if not np.all(fit)]:
        raise ValueError(
            f"The labels in {place} must be {rule}. Received: {len(wrong)} others, the first is "
            f"{rows[wrong[0]]!r:.80} for {wrong[0]!r}"
        )
