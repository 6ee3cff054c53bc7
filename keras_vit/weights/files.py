"""Arrays from files. Nothing is ever unpickled."""

import pathlib
import zipfile

import numpy as np


def read_npz(path):
    """The arrays of an npz file as a dict from name to array.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is no npz, is damaged, or holds Python objects.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no checkpoint file {str(path)!r}.")
    try:
        with zipfile.ZipFile(path), np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except Exception as error:  # a damaged archive may raise nearly anything
        raise ValueError(
            f"{str(path)!r} cannot be read as an npz file of plain arrays: {error}. Check that "
            "the download is complete and that the file is a checkpoint in npz format."
        ) from error
