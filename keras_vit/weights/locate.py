"""Where a checkpoint is: a path, a URL, or a name of the catalogue."""

import os
import pathlib

from keras_vit.weights import augreg, catalog
from keras_vit.weights.download import fetch

SCHEMES = ("https://", "http://", "gs://", "hf://", "kaggle://")


def locate(weights):
    """The local path of a checkpoint, and its record in the catalogue.

    Args:
        weights: path of a file or folder, URL, or name of the catalogue. What exists as a path is
            one; a name or URL is downloaded at its first use.

    Returns:
        A `pathlib.Path`, and a `catalog.Checkpoint` or `None`.

    Raises:
        FileNotFoundError: it looks like a path and is not there.
        ValueError: it is no path and no name of the catalogue; proposes the closest names.
        DownloadError: it cannot be downloaded.
    """
    if not isinstance(weights, (str, os.PathLike)) or not str(weights):
        raise ValueError(
            "weights must be the path of a checkpoint, a URL or a name of "
            f"keras_vit.list_weights(). Received: {weights!r}."
        )
    path = pathlib.Path(weights).expanduser()
    if _exists(path):
        return path, None
    text = str(weights)
    if text.startswith(SCHEMES):
        record = _known(text)
        return pathlib.Path(fetch(text, size=record and record.size)), record
    if isinstance(weights, os.PathLike) or path.suffix in (".npz", ".safetensors", ".pth", ".bin"):
        record = None if path.is_absolute() else _known(text)
        if record is None and (path.is_absolute() or not _augreg_url(text)):
            raise FileNotFoundError(
                f"There is no checkpoint file {text!r}, and no published one has that name."
            )
    else:
        record = _known(text)
    if record is not None:
        return pathlib.Path(fetch(record.url, size=record.size)), record
    url = _augreg_url(text) or catalog.find(text).url  # the error of `find` proposes names
    return pathlib.Path(fetch(url)), None


def _exists(path):
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _augreg_url(text):
    """The URL of a file of "How to train your ViT?", of which the catalogue lists the best."""
    try:
        return augreg.parse_name(text.removeprefix("augreg/")).url
    except ValueError:
        return None


def _known(text):
    try:
        return catalog.find(text)
    except ValueError:
        return None
