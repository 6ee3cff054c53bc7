"""Labels of images as they are given: .csv and .json files, and mappings, by head and file."""

import csv
import itertools
import json
import math
import os
import pathlib
import warnings
from collections import Counter
from collections.abc import Mapping

import numpy as np

from keras_vit.checks import require
from keras_vit.data.files import images_among, refuse
from keras_vit.data.sources import part_of

_FILE = "file filename file_name filepath file_path image image_name image_path path".split()
_PARTS = "set subset part partition phase fold".split()  # with cells that name parts
_LABEL = "label labels class class_name category target tag tags".split()
# Columns beside others that count the rows, or tell the part as fastai does.
_NO_LABELS = "id idx index row row_id uid uuid is_train is_valid is_val is_test".split()
ASK = 'say problem="single_label", "multi_label" or "regression"'


def check_path(labels):
    """The path of an existing .csv or .json file."""
    path = pathlib.Path(labels if isinstance(labels, str | os.PathLike) else "").expanduser()
    has_suffix = path.suffix.lower() in (".csv", ".json")
    if not has_suffix or not path.is_file():
        reason = ", which is no file" if has_suffix else ""
        raise ValueError(
            "labels must be a mapping from files to labels, or the path of a .csv or .json file. "
            f"Received: {labels!r:.80}{reason}"
        )
    return path


def rows_of_mapping(rows, problem, place):
    """(labels, names of classes or None, {file: part} or None) of what JSON or a user gives.

    Labels are {file: label}, or {head: {file: label}} where the problem is a dict by head.
    """
    names, parts = None, None
    if isinstance(rows.get("labels"), Mapping):
        rule = f"Beside the key 'labels', {place} may have the keys 'classes' and 'split'"
        refuse(sorted(map(repr, set(rows) - {"labels", "classes", "split"})), rule)
        rows, names, parts = (rows.get(key) for key in ("labels", "classes", "split"))
    heads = _by_head(rows, problem, place) if isinstance(problem, Mapping) else {None: rows}
    if parts is not None:
        fits = isinstance(parts, Mapping) and set(parts) == set().union(*heads.values())
        rule = f"'split' in {place} must name the part of each file among the labels"
        require(fits, rule, received=parts)
        parts = {_plain(file): part for file, part in parts.items()}
    heads = {head: {_plain(f): _plain(y) for f, y in rows.items()} for head, rows in heads.items()}
    return heads.get(None, heads), names, parts


def _by_head(rows, problem, place):
    """{head: {file: label}} of rows in that form, or in the form {file: {head: label}}."""
    wrong = [name for name, row in rows.items() if not isinstance(row, Mapping)]
    refuse(wrong, f"Of several heads each label in {place} must be a dict {{head: label}}", rows)
    if set(rows) == set(problem):
        return rows
    missing = set(problem) - set().union(*rows.values())
    refuse(sorted(map(repr, missing)), f"problem must name heads among the labels in {place}")

    def is_missing(label):  # as pandas writes it, too
        return label is None or (isinstance(label, float) and math.isnan(label))

    return {
        head: {file: row[head] for file, row in rows.items() if not is_missing(row.get(head))}
        for head in problem
    }


def _plain(value):
    """A path as text, and what NumPy has as Python's."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def read_json(path):
    def once(pairs):
        name, count = Counter([name for name, _ in pairs] or [""]).most_common(1)[0]
        if count > 1:
            raise ValueError(f"{name!r} is there twice")
        return dict(pairs)

    try:
        content = json.loads(path.read_text("utf-8-sig"), object_pairs_hook=once)
        if not isinstance(content, dict):
            raise ValueError(f"a {type(content).__name__}")
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(
            f'{path} must be JSON such as {{"cat/1.jpg": "cat", ...}}, which names each file once. '
            f"Received: {error}"
        ) from error
    return content


def read_csv(path, problem):
    """({column: {file: cell}}, {file: part} or None) of the columns of labels and of parts.

    Where the problem is a dict by head, its heads are the columns: {head: {head: {file: cell}}}.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            file.seek(0)
            delimiter = max(",;\t", key=first.count)  # what the header has most
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            table = [[cell.strip() for cell in row] for row in reader]
    except (OSError, ValueError, csv.Error) as error:
        raise ValueError(f"{path} cannot be read as CSV in UTF-8. Received: {error}") from error
    header = table[0] if table else []
    # Without the numbers that pandas writes, and names when it has read them again.
    named = header[1:] if header[:1] in ([""], ["Unnamed: 0"]) else header
    of_files = next((name for name in header if name.lower() in _FILE), next(iter(named), None))
    has_heads = isinstance(problem, Mapping)

    def is_of_parts(name, cells):
        is_called_so = name.lower() in _PARTS and name not in (problem if has_heads else ())
        return name.lower() == "split" or (is_called_so and all(map(part_of, cells)))

    by_column = itertools.zip_longest(*filter(any, table), fillvalue="")
    by_column = {name: cells for name, *cells in by_column}
    split = next((n for n, cells in by_column.items() if is_of_parts(n, cells)), None)
    columns = [name for name in named if name not in (of_files, split)]
    is_known = has_heads or {*map(str.lower, header)} & {*_FILE, *_LABEL}
    first = columns[0] if len(columns) == 1 and not is_known else ""  # or the first label
    is_row = images_among(header) or _number(first) is not None
    is_row = is_row or (first and first in by_column[first])
    if is_row or len(set(header)) < len(header) or not columns:
        raise ValueError(
            f"{path} must begin with a row of different names: of a column of files, such as "
            "'file', one or more of labels, and perhaps 'split'. Received: "
            f"{', '.join(map(repr, header)) or 'nothing'}"
        )
    missing = [repr(name) for name in problem if name not in columns] if has_heads else []
    known = ", ".join(map(repr, columns))
    refuse(missing, f"problem must name columns of {path}, which has {known}")
    chosen = list(problem if has_heads else (name for name in columns if name.lower() in _LABEL))
    if not has_heads and len(chosen) != 1:
        chosen = [name for name in columns if name.lower() not in (*_NO_LABELS, *_PARTS)] or columns
    if others := [name for name in columns if name not in chosen]:
        ending = "" if has_heads else "; name several with the problem of each"
        warnings.warn(
            f"Labels are read from the column{'s' if len(chosen) > 1 else ''} "
            f"{', '.join(map(repr, chosen))} of {path}; {', '.join(map(repr, others))} are not "
            f"read{ending}",
            stacklevel=2,
        )
    rows, lines = {}, [(line, row) for line, row in enumerate(table[1:], 2) if any(row)]
    uneven = [f"{len(row)} in row {line}" for line, row in lines if len(row) != len(header)]
    rule = f"A cell that holds {delimiter!r} must be quoted, so that each row of {path} has the "
    refuse(uneven, f"{rule}{len(header)} cells of the first")
    rule = f"{path} must name each file once; several labels of a file stand in one cell, "
    for line, cells in lines:
        row = dict(zip(header, cells))
        again = [f"{row[of_files]!r} again in row {line}"] if row[of_files] in rows else []
        refuse(again, f"{rule}separated by |")
        rows[row[of_files]] = row
    parts = {file: row[split] for file, row in rows.items()} if split else None
    columns = {name: {file: row[name] for file, row in rows.items()} for name in chosen}
    if not has_heads:
        return columns, parts
    # Where there are several, an empty cell is no label; among several labels it is no tag.
    full = [name for name in chosen if len(chosen) == 1 or problem[name] == "multi_label"]
    return {
        head: {head: {file: cell for file, cell in cells.items() if cell or head in full}}
        for head, cells in columns.items()
    }, parts


def labels_in(columns, problem, path):
    """(names of the columns or None, {file: label}) of columns {name: {file: cell}} of one head."""
    (first, cells), *others = columns.items()
    numbers = {file: [_number(column[file]) for column in columns.values()] for file in cells}
    names, wrong = list(columns), [file for file, row in numbers.items() if None in row]
    if not others and problem != "regression" and (problem != "multi_label" or wrong):
        return None, _one_column(cells, problem, path)
    if wrong:
        file, name = wrong[0], names[numbers[wrong[0]].index(None)]
        raise ValueError(
            f"Labels in several columns, and values to estimate, must be numbers; keep one column "
            f"of names, or call it label. Received: {columns[name][file]!r} in the column {name!r} "
            f"for {file!r} in {path}. Columns of different problems are several heads of a model: "
            f"say the problem of each, as problem={{{first!r}: 'single_label', ...}}, or on the "
            f"command line --problem {first}=single_label,..."
        )
    return names, numbers if others else {file: number for file, (number,) in numbers.items()}


def _one_column(cells, problem, path):
    """{file: name or list of names} of a column of text."""
    lists = [file for file, cell in cells.items() if cell[:1] == "[" and cell[-1:] == "]"]
    rule = f"Several labels of a file in {path} are separated by |, such as cat|dog, and no list of"
    refuse(lists, f"{rule} Python; write '|'.join(labels), or a .json file", cells)
    if problem == "single_label":
        return cells
    texts, separators = set(cells.values()), "|;, " if problem else "|;"
    separator = next((s for s in separators if any(s in text for text in texts)), None)
    rule = f"One mark separates the labels of a file in {path}, | or ;"
    refuse([file for file, cell in cells.items() if separator == "|" and ";" in cell], rule, cells)
    if separator == " ":
        text = next(text for text in sorted(texts) if " " in text)
        warnings.warn(
            f"Spaces separate the labels of a file in {path}. Received: {text!r:.80}, which are "
            f"{len(text.split())} labels; where a name has spaces, separate all names by | or ;",
            stacklevel=2,
        )
    if separator is None and problem is None:
        numbers = {file: _number(cell) for file, cell in cells.items()}  # of NaN, a label lacks
        numbers = [file for file, x in numbers.items() if x is not None and not math.isnan(x)]
        rule = f"The labels in {path} are numbers, of classes or values to estimate; {ASK}"
        refuse(numbers, rule, cells)
        several = [file for file, cell in cells.items() if set(cell) & {" ", ","}]
        rule = f"A label in {path} could be one name, or several separated by commas or spaces; "
        refuse(several, f'{rule}say problem="single_label" or "multi_label"', cells)
        return cells
    split = {name: cell.split(separator) if separator else [cell] for name, cell in cells.items()}
    return {name: [n for n in map(str.strip, names) if n] for name, names in split.items()}


def _number(cell):
    """The number in a cell, or None; 2024_01, which is a number to Python alone, is none."""
    if "_" in cell:
        return None
    try:
        return float({"true": 1, "false": 0}.get(cell.lower(), cell))
    except ValueError:
        return None
