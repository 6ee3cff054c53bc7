"""The files of a run's log: JSON lines and CSV, whole at any moment."""

import csv
import io
import json
import os
import pathlib


class JSONLines:
    """A file with one JSON object in each line, which a run appends to.

    Args:
        path: the file.
        keep: a function of a record that was read; the lines for which it is false, those after
            the checkpoint that a run continues from, are dropped, and a line that was cut short.
    """

    def __init__(self, path, keep):
        self.path = pathlib.Path(path)
        lines = self.path.read_bytes().splitlines() if self.path.is_file() else []
        records = [record for record in map(_parse, lines) if record and keep(record)]
        replace_text(self.path, "".join(f"{json.dumps(record)}\n" for record in records))

    def append(self, record):
        """Writes a record, at once, so that a killed run loses none."""
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")


def write_csv(path, rows):
    """Writes dicts as the rows of a table; a column that a row lacks stays empty."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    replace_text(path, text.getvalue())


def replace_text(path, text):
    """Writes a file beside its place and moves it there."""
    path = pathlib.Path(path)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text)
    os.replace(partial, path)


def _parse(line):
    try:
        return json.loads(line)
    except ValueError:
        return None
