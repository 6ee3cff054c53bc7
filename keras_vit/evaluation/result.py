"""What every evaluation returns: numbers to use, to print and to keep as JSON."""

import dataclasses
import json
import pathlib

import numpy as np


class Result:
    """Base of the results, frozen dataclasses with `to_dict()`, `save(path)` and a readable `str`.

    `derived` names the properties that `to_dict` tells beside the fields, `omitted` the fields
    that it does not tell.
    """

    derived = ()
    omitted = ()

    def to_dict(self):
        """The numbers as dicts, lists and Python scalars; what is not a number is None."""
        names = [*(field.name for field in dataclasses.fields(self)), *self.derived]
        return {name: _plain(getattr(self, name)) for name in names if name not in self.omitted}

    def save(self, path):
        """Writes `to_dict()` as JSON."""
        text = json.dumps(self.to_dict(), indent=1, allow_nan=False)
        pathlib.Path(path).write_text(text + "\n", encoding="utf-8")


def _plain(value):
    if isinstance(value, Result):
        return value.to_dict()
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value
