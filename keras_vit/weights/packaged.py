"""Weights that come with this package: `package://NAME/FILE` is `keras_vit/weights/NAME/FILE`."""

import atexit
import functools
import importlib.resources
import pathlib
import re
import tempfile

PACKAGE = "package://"


def packaged(source):
    """The path of a file that comes with this package, which needs no network and no cache.

    Raises:
        FileNotFoundError: there is no such file.
    """
    found = re.fullmatch(PACKAGE + r"(\w+)/(\w[\w.-]*)", source, re.ASCII)
    path = found and _folder(found[1]) / found[2]
    if not path or not path.is_file():
        raise FileNotFoundError(
            f"No such file comes with this package. Received: {source!r}. If it should, as "
            "package://digits/model.safetensors does, install keras3-vit anew."
        )
    return path


@functools.cache
def _folder(name):
    folder = importlib.resources.files("keras_vit.weights") / name
    if isinstance(folder, pathlib.Path):
        return folder
    # The package lies in a zip file: a copy that lasts as long as the process.
    copy = tempfile.TemporaryDirectory(prefix="keras_vit-")
    atexit.register(copy.cleanup)
    for file in folder.iterdir() if folder.is_dir() else ():
        (pathlib.Path(copy.name) / file.name).write_bytes(file.read_bytes())
    return pathlib.Path(copy.name)
