"""Files of labels of images: .csv and .json, as rows {file: label}."""

import csv
import json
import os
import pathlib
import warnings
from collections import Counter
from collections.abc import Mapping

from keras_vit.data.files import images_among
from keras_vit.data.sources import part_of

_FILE = "file filename file_name filepath file_path image image_name image_path path".split()
_LABEL = "label labels class class_name category target tag tags".split()
ASK = 'say problem="single_label", "multi_label" or "regression"'


def check_path(labels):
    """The path of an existing .csv or .json file."""
    path = pathlib.Path(labels).expanduser() if isinstance(labels, str | os.PathLike) else None
    if path is None or path.suffix.lower() not in (".csv", ".json") or not path.is_file():
        missing = path is not None and path.suffix.lower() in (".csv", ".json")
        raise ValueError(
            "labels must be a mapping from files to labels, or the path of a .csv or .json file. "
            f"Received: {labels!r:.80}{', which is no file' * missing}"
        )
    return path


def read_json(path):
    def once(pairs):
        once_each = dict(pairs)
        if len(once_each) < len(pairs):
            twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
            raise ValueError(f"{twice!r} is there twice")
        return once_each

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
    """({column of labels: {file: cell}}, {file: part} or None); `problem` may name the columns."""
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
    named = header[1:] if header[:1] == [""] else header  # without the numbers that pandas writes
    of_files = next((name for name in header if name.lower() in _FILE), next(iter(named), None))
    split = next((name for name in header if name.lower() == "split"), None)
    columns = [name for name in named if name not in (of_files, split)]
    if images_among(header) or len(set(header)) < len(header) or not columns:
        raise ValueError(
            f"{path} must begin with a row of different names: of a column of files, one or more "
            f"of labels, and perhaps 'split'. Received: {', '.join(map(repr, header)) or 'nothing'}"
        )
    if isinstance(problem, Mapping):
        if missing := [name for name in problem if name not in columns]:
            raise ValueError(
                f"problem must name columns of {path}, which has {', '.join(map(repr, columns))}. "
                f"Received: {', '.join(map(repr, missing))}"
            )
        chosen, more = list(problem), ""
    else:
        chosen = [name for name in columns if name.lower() in _LABEL]
        chosen = chosen if len(chosen) == 1 else columns
        more = "; name several with the problem of each"
    if others := [name for name in columns if name not in chosen]:
        warnings.warn(
            f"Labels are read from the column{'s' * (len(chosen) > 1)} "
            f"{', '.join(map(repr, chosen))} of {path}; {', '.join(map(repr, others))} are not "
            f"read{more}",
            stacklevel=2,
        )
    rows = {}
    for line, cells in enumerate(table[1:], 2):
        if not any(cells):
            continue
        if len(cells) != len(header):
            raise ValueError(
                f"Each row of {path} must have the {len(header)} cells of the first. Received: "
                f"{len(cells)} in row {line}; quote a cell that holds {delimiter!r}"
            )
        row = dict(zip(header, cells))
        if (file := row[of_files]) in rows:
            raise ValueError(
                f"{path} must name each file once; several labels of a file stand in one cell, "
                f"separated by |. Received: {file!r} again in row {line}"
            )
        rows[file] = row
    cells_of = {name: {file: row[name] for file, row in rows.items()} for name in chosen}
    if split is None:
        return cells_of, None
    return cells_of, {file: check_part(row[split], file, path) for file, row in rows.items()}


def labels_in(columns, problem, path):
    """(names of the columns or None, {file: label}) of columns {name: {file: cell}} of one head."""
    (first, cells), *others = columns.items()
    numbers = {
        name: {file: _number(cell) for file, cell in column.items()}
        for name, column in columns.items()
    }
    wrong = [(file, name) for file in cells for name in numbers if numbers[name][file] is None]
    if not others and problem != "regression" and (problem != "multi_label" or wrong):
        return None, _one_column(cells, problem, path)
    if wrong:
        file, name = wrong[0]
        raise ValueError(
            f"Labels in several columns, and values to estimate, must be numbers; keep one column "
            f"of names, or call it label. Received: {columns[name][file]!r} in the column {name!r} "
            f"for {file!r} in {path}. Columns of different problems are several heads of a model: "
            f"say the problem of each, as problem={{{first!r}: 'single_label', ...}}, or on the "
            f"command line --problem {first}=single_label,..."
        )
    if not others:
        return list(columns), numbers[first]
    return list(columns), {file: [numbers[name][file] for name in columns] for file in cells}


def _one_column(cells, problem, path):
    """{file: name or list of names} of a column of text."""
    if problem == "single_label":
        return cells
    texts, separators = set(cells.values()), "|;, " if problem else "|;"
    separator = next((s for s in separators if any(s in text for text in texts)), None)
    if separator is None and problem is None:
        if any(_number(text) is not None for text in texts):
            raise ValueError(
                f"The labels in {path} are numbers, of classes or values to estimate; {ASK}. "
                f"Received: {some_of(cells)}"
            )
        if several := {file: cell for file, cell in cells.items() if set(cell) & {" ", ","}}:
            raise ValueError(
                f"A label in {path} could be one name, or several separated by commas or spaces; "
                f'say problem="single_label" or "multi_label". Received: {some_of(several)}'
            )
        return cells
    split = {name: cell.split(separator) if separator else [cell] for name, cell in cells.items()}
    return {name: [n for n in map(str.strip, names) if n] for name, names in split.items()}


def _number(cell):
    """The number in a cell, or None."""
    try:
        return float({"true": 1, "false": 0}.get(cell.lower(), cell))
    except ValueError:
        return None


def check_part(text, file, place):
    """The part of a set that a text names."""
    if not isinstance(text, str) or not (part := part_of(text)):
        raise ValueError(
            f"'split' in {place} must be train, validation or test. Received: {text!r} for {file!r}"
        )
    return part


def some_of(rows, most=3):
    """The first labels, for a message."""
    shown = [f"{label!r:.40} for {name!r}" for name, label in list(rows.items())[:most]]
    return ", ".join(shown)
