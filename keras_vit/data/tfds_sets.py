"""Datasets prepared by TensorFlow Datasets, read from their files without TensorFlow."""

import dataclasses
import json
import os
import re
from pathlib import Path

# What the recipes and VTAB use; any other name is found if it lies in the data folder.
TFDS_SETS = (
    "caltech101",
    "cifar10",
    "cifar100",
    "clevr",
    "diabetic_retinopathy_detection",
    "dmlab",
    "dsprites",
    "dtd",
    "eurosat",
    "imagenet2012",
    "imagenet21k",
    "kitti",
    "mnist",
    "oxford_flowers102",
    "oxford_iiit_pet",
    "patch_camelyon",
    "resisc45",
    "smallnorb",
    "sun397",
    "svhn_cropped",
)
_INFO = "dataset_info.json"
_VERSION = re.compile(r"^\d+\.\d+\.\d+$")
_NAME = re.compile(r"^(?P<name>\w+)(?:/(?P<config>[\w.-]+))?(?::(?P<version>[\d.*]+))?$")


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A prepared dataset on disk.

    Attributes:
        folder: the one with dataset_info.json.
        info: the contents of that file.
    """

    folder: Path
    info: dict

    @property
    def features(self):
        """Name -> description, from features.json; empty if there is no such file."""
        path = self.folder / "features.json"
        described = read_json(path) if path.exists() else {}
        return described.get("featuresDict", {}).get("features", {})


def default_data_dir():
    """Where TensorFlow Datasets puts its files: `TFDS_DATA_DIR`, or a folder at home."""
    return Path(os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")).expanduser()


def find_prepared(dataset, data_dir=None, major=None):
    """Looks for a prepared dataset; nothing is downloaded.

    Args:
        dataset: `"name"`, `"name/config"`, `"name:version"` or `"name/config:version"`.
        data_dir: the data folder; None is `default_data_dir()`.
        major: the major version wanted, if it is there; otherwise the newest.

    Returns:
        A `Prepared`.

    Raises:
        ValueError: it is not there, the message says how to get it; or a damaged description.
    """
    data_dir = default_data_dir() if data_dir is None else Path(data_dir).expanduser()
    match = _NAME.match(dataset)
    if match is None:
        raise ValueError(
            "A dataset is called 'name', 'name/config' or 'name/config:version'. "
            f"Received: {dataset!r}"
        )
    name, config, version = match.groups()
    # Without a configuration in the name, the newest of any that is there.
    patterns = [f"{name}/{config}/*"] if config else [f"{name}/*", f"{name}/*/*"]
    found = [path for pattern in patterns for path in data_dir.glob(f"{pattern}/{_INFO}")]
    folders = [path.parent for path in found if _matches(path.parent.name, version)]
    if not folders:
        raise ValueError(not_prepared(dataset, data_dir))
    wanted = [path for path in folders if major is None or _version(path.name)[0] == major]
    folder = max(wanted or folders, key=lambda path: _version(path.name))
    return Prepared(folder, read_json(folder / _INFO))


def not_prepared(dataset, data_dir):
    """The message for a dataset that is not on disk."""
    name = dataset.split("/")[0].split(":")[0]
    lines = [
        f"The dataset {dataset!r} is not on disk. Received: data_dir={str(data_dir)!r}"
        f" (looked for {Path(data_dir) / name}/.../dataset_info.json)."
    ]
    if name == "imagenet21k":
        lines.append(
            "TensorFlow Datasets does not have it. Get the images from image-net.org and put one "
            f"folder per class into {Path(data_dir) / name / 'train'}, or prepare it with a "
            "builder of your own of that name."
        )
    else:
        lines.append(
            "Nothing is downloaded here. On a machine with network, prepare it with\n"
            '  pip install "keras3-vit[data,tensorflow]"\n'
            f"  tfds build {dataset} --data_dir={data_dir}\n"
            "(some sets ask for files to be fetched by hand: the command says which), then pass "
            "that folder as data_dir or set TFDS_DATA_DIR."
        )
        if name == "imagenet2012":
            folders = f"{Path(data_dir) / name}/train and /validation"
            lines.append(f"Or put the images into {folders}, one folder per class.")
    return "\n".join(lines)


def read_json(path):
    """The contents of a JSON file, or ValueError."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{path} cannot be read; prepare or copy the dataset again. Received: {error}"
        ) from error


def _version(text):
    return tuple(int(number) if number.isdigit() else -1 for number in text.split("."))


def _matches(found, wanted):
    """Whether a version is the wanted one; `*` stands for any number, None for any version."""
    if wanted is None:
        return _VERSION.match(found) is not None
    parts = zip(found.split("."), wanted.split("."))
    return all(number in ("*", present) for present, number in parts)
