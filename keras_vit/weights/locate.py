"""Where weights are that somebody names, and what a name of elsewhere stands for."""

import contextlib
import dataclasses
import os
import pathlib

from keras_vit.models.bit import BIT_VARIANTS
from keras_vit.variants import VARIANTS
from keras_vit.weights import augreg, catalog
from keras_vit.weights.downloads import DownloadError
from keras_vit.weights.fetch import PACKAGE, fetch
from keras_vit.weights.tables import shortened

SUFFIXES = """.npz .safetensors .pt .pth .bin .h5 .keras .ckpt .pkl .onnx .msgpack .json .tar
.zip""".split()  # of files
# What a size is; other kinds of blocks make another family of it.
SIZE = ("width", "depth", "num_heads", "mlp_dim", "stem", "blocks", "mlp", "norm", "block")
SCHEMES = ("https://", "http://", "gs://", "hf://", "kaggle://", PACKAGE)


def locate(weights):
    """A `pathlib.Path` that exists or the URL of a checkpoint, and its record or `None`."""
    if not isinstance(weights, (str, os.PathLike)) or not str(weights):
        raise ValueError(
            "weights must be the path of a checkpoint, a URL or a name that `keras-vit list` or "
            f"keras_vit.list_weights() prints. Received: {weights!r}."
        )
    path, text = pathlib.Path(weights).expanduser(), str(weights)
    if os.path.exists(path):
        return path, None
    records = catalog.lookup(text)
    record = records[0] if len(records) == 1 else None
    if text.startswith(SCHEMES):
        return text, record
    if record is not None and not path.is_absolute():
        return record.url, record
    # The catalogue lists the best of the files of "How to train your ViT?"; all have names.
    if url := augreg.augreg_url(text):
        return url, None
    is_path = path.is_absolute() or text[0] in ".~" or text[-1] in "/\\"
    if isinstance(weights, os.PathLike) or path.suffix in SUFFIXES or is_path:
        folders = [folder for folder in path.absolute().parents if not folder.exists()]
        which = f" (there is no folder {str(folders[-1])!r})" if folders else ""
        raise FileNotFoundError(
            f"There is no checkpoint file or folder {text!r}{which}, and no published one has that "
            "name."
        )
    try:
        return catalog.find(text).url, None
    except ValueError as error:  # which proposes names
        hub = f" hf://{text} would be a repository of the hub." if text.count("/") == 1 else ""
        raise ValueError(f"{error}{hub}") from None


def local_path(place, record=None):
    """The path of what `locate` returned; a URL is downloaded."""
    if not isinstance(place, str):
        return place
    try:
        return fetch(place, size=record and record.size)
    except DownloadError as error:  # which tells the URL, and not for which published weights
        raise DownloadError(f"{record.name}: {error}" if record else str(error)) from error


def unfetched(weights):
    """The record of published weights that would have to be downloaded; `None` for all others."""
    url, record = locate(weights)
    try:
        if record is not None:
            fetch(url, size=record.size, offline=True)
    except OSError:
        return record
    return None


def published_for(variant):
    """The checkpoints of a variant as text."""
    names = [c.name for c in catalog.checkpoints() if c.variant in (variant, f"BiT-{variant}")]
    return f"Published for {variant}: {shortened(names, 5) if names else 'none'}"


def variants_named(text):
    """The variants that a name stands for: of a checkpoint, of timm, or spelt as `"vit_b_16"`."""
    everything = catalog.checkpoints()
    records = catalog.lookup(text) or [c for c in everything if c.name.startswith(f"{text}.")]
    with contextlib.suppress(ValueError):  # which proposes names
        records = records or catalog.checkpoints(variant=text)
    return list(dict.fromkeys(record.variant.removeprefix("BiT-") for record in records))


def name_of(model):
    """The name of a model's architecture, such as `"B/16"`, or `None` where no published size fits.

    The published weights that the model began with tell it, or the only architecture that is equal.
    Where several are, as families share theirs, it is the size of the paper that differs least,
    also with other patches, as in `"B/24"`.
    """
    variant, tables = model.variant, VARIANTS | BIT_VARIANTS
    names = [field.name for field in dataclasses.fields(variant)]
    equal = {}  # name -> number of fields that are equal
    for name, row in tables.items():
        if type(row) is type(variant):
            fields = [n for n in names if getattr(row, n) == getattr(variant, n)]
            if all(n in fields for n in SIZE if n in names):
                equal[name] = len(fields)
    records = catalog.lookup(model.weights_from) if model.weights_from else ()
    published = {record.variant.removeprefix("BiT-") for record in records} & equal.keys()
    for fitting in (published, {n for n, count in equal.items() if count == len(names)}):
        if len(fitting) == 1:
            return fitting.pop()
    plain = [name for name in equal if "-" not in name]
    name = max(plain or equal, key=equal.get, default=None)
    patch = getattr(variant, "patch_size", None)
    if name is None or patch is None or tables[name].patch_size == patch:
        return name
    square = variant.stem is None and patch[0] == patch[1]
    return f"{name.partition('/')[0]}/{patch[0]}" if square else None
