"""What lies at a path: arrays in npz, safetensors, PyTorch's files and HDF5, and JSON beside them.

Nothing is ever unpickled. A file may claim any sizes for its arrays, so its claims are compared
with its own size before memory is taken.
"""

import dataclasses
import json
import math
import os
import pathlib
import re
import zipfile

import numpy as np
import safetensors.numpy

from keras_vit.weights.pytorch import read_torch
from keras_vit.weights.safety import (
    MAX_ARRAYS,
    MAX_HEADER,
    CheckpointError,
    as_plain,
    check_claims,
    checked_members,
    opening,
    require,
)
from keras_vit.writing import check_finished

# In the order in which a folder is searched: safetensors first, because it cannot run code.
FOLDER_FILES = """
model.safetensors model.safetensors.index.json pytorch_model.bin pytorch_model.bin.index.json
task.weights.h5 model.weights.h5 adapter_model.safetensors adapter_model.bin
""".split()


@dataclasses.dataclass(frozen=True)
class Contents:
    """A checkpoint on the disk, and two JSON files beside it."""

    path: pathlib.Path
    arrays: dict  # by name
    config: dict = dataclasses.field(default_factory=dict)
    processor: dict = dataclasses.field(default_factory=dict)
    prefix: str = ""  # has been left out of the names
    adapted: str | None = None  # names the model that an adapter was merged into


def open_checkpoint(path):
    """The `Contents` of a file, or of a folder with one, whose format its first bytes tell."""
    path = pathlib.Path(path).expanduser()
    file = _file_in(path) if path.is_dir() else path
    if re.search(r"-\d{5}-of-(?!00001)\d{5}\.\w+$", file.name):  # it may look like a shorter model
        raise CheckpointError(
            f"{str(file)!r} is one of several parts of a checkpoint. Give the folder, or the "
            ".index.json in it, which lists them all."
        )
    arrays = _read_index(file) if file.name.endswith(".index.json") else _read(file)
    names = ("config", "open_clip_config", "preprocessor_config", "processor_config")
    config, open_clip, processor, both = (read_json(file.parent / f"{n}.json") for n in names)
    images = both.get("image_processor")  # beside that of the texts
    processor = processor or (images if isinstance(images, dict) else {})
    # What else a file for OpenCLIP says is not of the model that the other config describes.
    open_clip = {k: open_clip[k] for k in ("model_cfg", "preprocess_cfg") if k in open_clip}
    return Contents(path, arrays, {**config, **open_clip}, processor)


def _file_in(folder):
    for name in FOLDER_FILES:
        if (folder / name).is_file():
            return folder / name
    files = [f for f in sorted(folder.iterdir()) if f.suffix in (".safetensors", ".npz", ".bin")]
    if len(files) == 1:
        return files[0]
    error = CheckpointError if files else FileNotFoundError
    raise error(
        f"The folder {str(folder)!r} must hold one of {FOLDER_FILES}, or one other "
        f"checkpoint. Received: {[file.name for file in files]}; give the path of a file."
    )


def _read(file):
    """The arrays of one file of any format."""
    with opening(file, "a checkpoint"), open(file, "rb") as stream:
        start = stream.read(9)
    if start[:4] == b"PK\x03\x04":
        return _read_archive(file)
    if start[8:] == b"{":
        return read_safetensors(file)
    if start[:1] == b"\x80":  # a pickle: PyTorch's format before 1.6
        return read_torch(file)
    if start.startswith(b"\x89HDF"):
        return read_hdf5(file)
    fault = f"of an unknown kind (it begins with {start!r})" if start else "empty"
    if start == b"version h":
        fault = "a pointer of Git LFS, in whose place `git lfs pull` puts the file"
    raise CheckpointError(
        f"{str(file)!r} is {fault}. Expected a checkpoint in npz, safetensors, PyTorch or HDF5; "
        "check that the download is complete."
    )


def _read_archive(file):
    with opening(file, "a zip archive, as npz and PyTorch files are"):
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    if "config.json" in names and "model.weights.h5" in names:
        raise CheckpointError(
            f"{str(file)!r} is a whole Keras model: open it with keras.saving.load_model."
        )
    is_torch = any(name.endswith("/data.pkl") for name in names)
    return read_torch(file) if is_torch else read_npz(file)


def _read_index(index):
    """The arrays of a checkpoint in several files, as Hugging Face splits large ones."""
    table, arrays = read_json(index).get("weight_map"), {}
    with opening(index, "an index of files that agrees with them"):
        is_map = isinstance(table, dict) and all(isinstance(f, str) for f in table.values())
        require(is_map, "it has no 'weight_map' from names to files")
        for name in sorted(set(table.values())):
            # The index is part of a download: it may name files of its own folder, nothing else.
            plain = pathlib.PureWindowsPath(name).name  # what follows either slash, and a drive
            is_plain = name == plain and name not in ("", "..")
            require(is_plain, f"it names {name!r}, not a plain name of a file in its folder")
            shard = _read(index.parent / name)
            repeated = sorted(set(shard) & set(arrays))
            require(not repeated, f"several files hold {repeated}")
            arrays.update(shard)
        one, other = sorted(set(table) - set(arrays)), sorted(set(arrays) - set(table))
        require(not one and not other, f"only it has {one}, and only the files have {other}")
    return arrays


def read_npz(path):
    """Name -> array of an npz file; half precision as float32."""
    with opening(path, "an npz file of plain arrays"), zipfile.ZipFile(path) as archive:
        members = checked_members(archive, os.path.getsize(path))
        arrays = {m.filename.removesuffix(".npy"): _read_npy(archive, m) for m in members}
        require(len(arrays) == len(members), "two arrays have the same name")
        return arrays


def _read_npy(archive, member):
    form, name = np.lib.format, member.filename
    require(name.endswith(".npy"), f"it holds {name!r}, which is no array")
    with archive.open(member) as stream:
        is_first = form.read_magic(stream) == (1, 0)
        read_header = form.read_array_header_1_0 if is_first else form.read_array_header_2_0
        shape, _, dtype = read_header(stream)
        promised, present = math.prod(shape) * dtype.itemsize, member.file_size - stream.tell()
        require(not dtype.hasobject, f"{name!r} holds Python objects")
        require(promised == present, f"{name!r} has {present} bytes of values, not {promised}")
    with archive.open(member) as stream:
        return as_plain(form.read_array(stream, allow_pickle=False))


def read_safetensors(path):
    """Name -> array of a safetensors file; half precision as float32."""
    import ml_dtypes  # noqa: F401  safetensors reads bfloat16 once it is imported

    with opening(path, "a safetensors file"):
        with open(path, "rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            require(length <= MAX_HEADER, f"its header would have {length} bytes")
            header = stream.read(length)
        count = header.count(b'"data_offsets"')
        require(count <= MAX_ARRAYS, f"it has more than {MAX_ARRAYS} arrays")
        if packed := re.search(rb'"dtype":\s*"(F(?:[68]_|4)\w*)"', header):
            raise CheckpointError(
                f"{str(path)!r} has values of {packed[1].decode()}, which were quantised. Take the "
                "weights as they were before, in float32, bfloat16 or float16. Nothing was loaded."
            )
        # The library compares types, shapes and places of all arrays with the size of the file.
        return {n: as_plain(a) for n, a in safetensors.numpy.load_file(path).items()}


def read_hdf5(path):
    """Path in the file -> array of an HDF5 file as Keras writes it: each variable in one piece.

    Links are not followed, and values that lie in other files, in chunks or packed are refused.
    """
    import h5py  # comes with Keras, and takes a while

    with opening(path, "an HDF5 file of Keras weights"), h5py.File(path, "r") as file:
        everything = {}
        file.visititems(everything.__setitem__)  # which returns None: anything else ends the walk
        datasets = {n: item for n, item in everything.items() if isinstance(item, h5py.Dataset)}
        for name, dataset in datasets.items():
            elsewhere = dataset.chunks or dataset.external or dataset.is_virtual
            is_here = not elsewhere and dataset.id.get_storage_size() == dataset.nbytes
            is_number = dataset.dtype.kind in "fiuV" and dataset.dtype.names is None
            require(is_here, f"{name!r}, of shape {dataset.shape}, has not its values in it")
            require(is_number, f"{name!r} is of type {dataset.dtype}, expected numbers")
        claimed = sum(dataset.nbytes for dataset in datasets.values())
        check_claims(len(datasets), claimed, os.path.getsize(path))
        return {name: as_plain(np.asarray(dataset[()])) for name, dataset in datasets.items()}


def read_json(path):
    """The dict in a JSON file; an empty one where there is no file."""
    check_finished(path)
    if not os.path.lexists(path):  # what is there and no file is an error
        return {}
    with opening(path, "JSON, beside the checkpoint"):
        require(path.stat().st_size <= MAX_HEADER, f"it is larger than {MAX_HEADER} bytes")
        content = json.loads(path.read_text("utf-8-sig"))  # some editors of Windows begin with it
        require(isinstance(content, dict), "it holds no names and values")
        return content
