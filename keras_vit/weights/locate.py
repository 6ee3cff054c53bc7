"""Where weights are that somebody names: a path, an address, or a name of the catalogue."""

import os
import pathlib

from keras_vit.weights import augreg, catalog
from keras_vit.weights.fetch import PACKAGE
from keras_vit.weights.tables import shortened

SUFFIXES = """.npz .safetensors .pt .pth .bin .h5 .keras .ckpt .pkl .onnx .msgpack .json .tar
.zip""".split()  # of files
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
    is_file_name = path.suffix in SUFFIXES
    is_path = path.is_absolute() or text[0] in ".~" or text[-1] in "/\\"
    if isinstance(weights, os.PathLike) or is_file_name or is_path:
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


def published_for(variant):
    """The checkpoints of a variant as text."""
    names = [c.name for c in catalog.checkpoints() if c.variant in (variant, f"BiT-{variant}")]
    return f"Published for {variant}: {shortened(names, 5) if names else 'none'}"


def variants_named(text):
    """The variants that a name of elsewhere stands for, as a list.

    The name may be that of a checkpoint, of an architecture of timm, or of a variant with other
    punctuation, as `"vit_b_16"`.
    """
    records = catalog.lookup(text)
    records = records or [c for c in catalog.checkpoints() if c.name.startswith(f"{text}.")]
    if not records:
        try:
            records = catalog.checkpoints(variant=text)
        except ValueError:  # which proposes names
            return []
    return list(dict.fromkeys(record.variant.removeprefix("BiT-") for record in records))
