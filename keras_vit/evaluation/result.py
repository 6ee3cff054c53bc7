"""What every evaluation returns: numbers to use, to print and to keep as JSON."""

import json
import os
import pathlib


class Result:
    """Base of the results: `to_dict()`, `save(path)` and a readable `str`.

    A subclass is a frozen dataclass that defines `to_dict`, made of plain Python values, and
    `__str__`.
    """

    def to_dict(self):
        """The numbers as dicts, lists and Python scalars, ready for JSON."""
        raise NotImplementedError

    def save(self, path):
        """Writes `to_dict()` as JSON; a file of that name is replaced as a whole or not at all."""
        path = pathlib.Path(path)
        text = json.dumps(self.to_dict(), indent=1, allow_nan=False)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        unfinished.write_text(text + "\n", encoding="utf-8")
        os.replace(unfinished, path)


def table(rows, indent=0, left=1):
    """Rows of text as aligned columns: the first `left` to the left, the others to the right."""
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in range(max(map(len, rows)))]
    sides = [str.ljust] * left + [str.rjust] * (len(widths) - left)
    lines = ("  ".join(side(c, w) for side, c, w in zip(sides, row, widths)) for row in rows)
    return "\n".join(" " * indent + line.rstrip() for line in lines)


def percent(share):
    """A share from 0 to 1 as text, with two decimals."""
    return f"{100 * share:.2f} %"
