"""What lies at a path: the arrays of a checkpoint, and the JSON files that came with it."""

import dataclasses
import pathlib
import zipfile

from keras_vit.weights.files import (
    CheckpointError,
    read_hdf5,
    read_json,
    read_npz,
    read_safetensors,
    read_torch,
    require_file,
)

# In the order in which a folder is searched: safetensors first, because it cannot run code.
FOLDER_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "task.weights.h5",
    "model.weights.h5",
)


@dataclasses.dataclass(frozen=True)
class Contents:
    """A checkpoint on the disk: its path, its arrays by name, and two JSON files beside it."""

    path: pathlib.Path
    arrays: dict
    config: dict = dataclasses.field(default_factory=dict)
    processor: dict = dataclasses.field(default_factory=dict)


def open_checkpoint(path):
    """The `Contents` of a file, or of a folder with one checkpoint in it.

    What kind of file it is follows from its first bytes, never from its name.
    """
    path = pathlib.Path(path).expanduser()
    file = _file_in(path) if path.is_dir() else require_file(path)
    arrays = _read_index(file) if file.name.endswith(".index.json") else _read(file)
    beside = (read_json(file.parent / f"{n}.json") for n in ("config", "preprocessor_config"))
    return Contents(path, arrays, *beside)


def _file_in(folder):
    for name in FOLDER_FILES:
        if (folder / name).is_file():
            return folder / name
    found = [f for f in sorted(folder.iterdir()) if f.suffix in (".safetensors", ".npz", ".bin")]
    if len(found) == 1:
        return found[0]
    kind = CheckpointError if found else FileNotFoundError
    raise kind(
        f"The folder {str(folder)!r} holds {len(found) or 'no'} checkpoints"
        f"{': ' * bool(found)}{', '.join(f.name for f in found)}. Expected one of "
        f"{list(FOLDER_FILES)}, or one other file; or give the path of the file itself."
    )


def _read(file):
    with open(file, "rb") as stream:
        start = stream.read(9)
    if start[:4] == b"PK\x03\x04":
        return _read_archive(file)
    if start[:1] == b"\x80":  # a pickle: PyTorch's format before 1.6
        return read_torch(file)
    if start[8:] == b"{":
        return read_safetensors(file)
    if start.startswith(b"\x89HDF"):
        return read_hdf5(file)
    kind = "empty" if not start else f"of an unknown kind (it begins with {start!r})"
    raise CheckpointError(
        f"{str(file)!r} is {kind}. Expected a checkpoint in npz, safetensors, PyTorch or HDF5; "
        "check that the download is complete."
    )


def _read_archive(file):
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except Exception:  # damaged: the npz reader says how
        names = []
    if "config.json" in names and "model.weights.h5" in names:
        raise CheckpointError(
            f"{str(file)!r} is a whole Keras model, config.json and weights. Open it with "
            "keras.saving.load_model."
        )
    is_torch = any(name.endswith("/data.pkl") for name in names)
    return read_torch(file) if is_torch else read_npz(file)


def _read_index(index):
    """The arrays of a checkpoint in several files, as Hugging Face splits large ones."""
    table = read_json(index).get("weight_map")
    if not isinstance(table, dict) or not all(isinstance(f, str) for f in table.values()):
        raise CheckpointError(f"{str(index)!r} has no 'weight_map' from names to files.")
    arrays = {}
    for name in sorted(set(table.values())):
        # The index is part of a download: it may name files of its own folder, nothing else.
        if name != pathlib.PurePath(name).name or "\\" in name or name in ("", ".", ".."):
            raise CheckpointError(
                f"{str(index)!r} names the file {name!r}. Expected a plain name of a file in the "
                "same folder; nothing was read from there."
            )
        part = _read(require_file(index.parent / name))
        if repeated := sorted(set(part) & set(arrays)):
            raise CheckpointError(f"{str(index)!r}: several files hold {repeated}.")
        arrays.update(part)
    if set(arrays) != set(table):
        raise CheckpointError(
            f"{str(index)!r} and its files do not agree.\n  In the index only: "
            f"{sorted(set(table) - set(arrays))}\n  In the files only: "
            f"{sorted(set(arrays) - set(table))}"
        )
    return arrays
