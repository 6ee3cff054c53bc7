"""What lies at a path: arrays in npz, safetensors, PyTorch's files and HDF5, and JSON beside them.

Nothing is ever unpickled. A file may say anything about the sizes of its arrays, so what it says
is compared with how large the file is before memory is taken.
"""

import contextlib
import dataclasses
import json
import math
import os
import pathlib
import zipfile

import numpy as np
import safetensors.numpy

from keras_vit.text import abridged
from keras_vit.writing import check_finished

# Under the first of these that there is, a training script saves the weights.
STATE_DICTS = ("state_dict_ema", "model_ema", "state_dict", "model", "teacher", "target_encoder")
MAX_ARRAYS = 20_000  # the largest published model has 1,200
MAX_HEADER = 8 << 20  # bytes of JSON; that of the largest published model has 0.2 MB
SPARE = 16 << 20  # bytes that a small file may unpack to
MAX_RATIO = 20  # of unpacked to packed: weights hardly compress, fresh zeros do
# In the order in which a folder is searched: safetensors first, because it cannot run code.
FOLDER_FILES = """
model.safetensors model.safetensors.index.json pytorch_model.bin pytorch_model.bin.index.json
task.weights.h5 model.weights.h5
""".split()


class CheckpointError(ValueError):
    """A checkpoint that cannot be read, or that does not fit; no model was changed."""

    def __init__(self, text):
        super().__init__(abridged(text))  # it may repeat what a stranger's file says


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
    file = _file_in(path) if path.is_dir() else path
    arrays = _read_index(file) if file.name.endswith(".index.json") else _read(file)
    names = ("config", "open_clip_config", "preprocessor_config", "processor_config")
    config, open_clip, processor, pair = (read_json(file.parent / f"{n}.json") for n in names)
    images = pair.get("image_processor")  # beside that of the texts
    processor = processor or (images if isinstance(images, dict) else {})
    return Contents(path, arrays, {**config, **open_clip}, processor)


def _require(fits, text):
    """Raises an error that `_reading` explains, unless a part of a file fits."""
    if not fits:
        raise ValueError(text)


def _file_in(folder):
    for name in FOLDER_FILES:
        if (folder / name).is_file():
            return folder / name
    found = [f for f in sorted(folder.iterdir()) if f.suffix in (".safetensors", ".npz", ".bin")]
    if len(found) == 1:
        return found[0]
    kind = CheckpointError if found else FileNotFoundError
    raise kind(
        f"The folder {str(folder)!r} must hold one of {FOLDER_FILES}, or one other "
        f"checkpoint. Received: {[file.name for file in found]}; give the path of a file."
    )


def _read(file):
    """The arrays of one file of any kind."""
    with _reading(file, "a checkpoint"), open(file, "rb") as stream:
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
            f"{str(file)!r} is a whole Keras model: open it with keras.saving.load_model."
        )
    is_torch = any(name.endswith("/data.pkl") for name in names)
    return read_torch(file) if is_torch else read_npz(file)


def _read_index(index):
    """The arrays of a checkpoint in several files, as Hugging Face splits large ones."""
    table, arrays = read_json(index).get("weight_map"), {}
    with _reading(index, "an index of files that agrees with them"):
        is_map = isinstance(table, dict) and all(isinstance(f, str) for f in table.values())
        _require(is_map, "it has no 'weight_map' from names to files")
        for name in sorted(set(table.values())):
            # The index is part of a download: it may name files of its own folder, nothing else.
            is_plain = name == pathlib.PurePath(name).name and "\\" not in name
            is_plain = is_plain and name not in ("", ".", "..")
            _require(is_plain, f"it names {name!r}, not a plain name of a file in its folder")
            part = _read(index.parent / name)
            repeated = sorted(set(part) & set(arrays))
            _require(not repeated, f"several files hold {repeated}")
            arrays.update(part)
        one, other = sorted(set(table) - set(arrays)), sorted(set(arrays) - set(table))
        _require(not one and not other, f"only it has {one}, and only the files have {other}")
    return arrays


@contextlib.contextmanager
def _reading(path, kind):
    """Turns whatever a library raises over a damaged file into a `CheckpointError`."""
    if not os.path.isfile(path):
        raise FileNotFoundError(f"There is no checkpoint file {str(path)!r}.")
    try:
        yield
    except (CheckpointError, ImportError, FileNotFoundError):
        raise
    except Exception as error:
        raise CheckpointError(
            f"{str(path)!r} cannot be read as {kind}: {str(error) or type(error).__name__}. Check "
            "that the download is complete and that the file is a checkpoint; nothing was loaded."
        ) from error


def _as_plain(array):
    """`array` in a type that NumPy computes with: half precision becomes float32."""
    if array.dtype.kind == "V" and array.dtype.itemsize == 2 and array.dtype.names is None:
        import ml_dtypes  # comes with Keras; NumPy stores bfloat16 as two raw bytes

        array = array.view(ml_dtypes.bfloat16)
    if array.dtype.name in ("bfloat16", "float16"):
        return array.astype("float32")
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        return array.astype("float64")  # no backend knows a longer one
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def read_npz(path):
    """Name -> array of an npz file; half precision as float32."""
    with _reading(path, "an npz file of plain arrays"), zipfile.ZipFile(path) as archive:
        members = _checked_members(archive, path)
        arrays = {m.filename.removesuffix(".npy"): _read_npy(archive, m) for m in members}
        _require(len(arrays) == len(members), "two arrays have the same name")
        return arrays


def _checked_members(archive, path):
    """The entries of a zip archive that does not claim to be much larger than it is."""
    members, size = archive.infolist(), os.path.getsize(path)
    unpacked = sum(member.file_size for member in members)
    is_small = unpacked <= max(SPARE, MAX_RATIO * size)
    kinds = {member.compress_type for member in members}
    _require(len(members) <= MAX_ARRAYS, f"it has {len(members)} parts, more than {MAX_ARRAYS}")
    _require(is_small, f"its {size} bytes would unpack to {unpacked}")
    _require(kinds <= {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}, "it is packed in another way")
    return members


def _read_npy(archive, member):
    form, name = np.lib.format, member.filename
    _require(name.endswith(".npy"), f"it holds {name!r}, which is no array")
    with archive.open(member) as stream:
        is_first = form.read_magic(stream) == (1, 0)
        read_header = form.read_array_header_1_0 if is_first else form.read_array_header_2_0
        shape, _, dtype = read_header(stream)
        promised, there = math.prod(shape) * dtype.itemsize, member.file_size - stream.tell()
        _require(not dtype.hasobject, f"{name!r} holds Python objects")
        _require(promised == there, f"{name!r} has {there} bytes of values, not {promised}")
    with archive.open(member) as stream:
        return _as_plain(form.read_array(stream, allow_pickle=False))


def read_safetensors(path):
    """Name -> array of a safetensors file; half precision as float32."""
    import ml_dtypes  # noqa: F401  safetensors reads bfloat16 once it is imported

    with _reading(path, "a safetensors file"):
        with open(path, "rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            _require(length <= MAX_HEADER, f"its header would have {length} bytes")
            count = stream.read(length).count(b'"data_offsets"')
            _require(count <= MAX_ARRAYS, f"it has more than {MAX_ARRAYS} arrays")
        # The library compares types, shapes and places of all arrays with the size of the file.
        return {n: _as_plain(a) for n, a in safetensors.numpy.load_file(path).items()}


def read_hdf5(path):
    """Path in the file -> array of an HDF5 file as Keras writes it: each variable in one piece.

    Links are not followed, and values that lie in other files, in chunks or packed are refused.
    """
    import h5py  # comes with Keras, and takes a while

    with _reading(path, "an HDF5 file of Keras weights"), h5py.File(path, "r") as file:
        datasets = {}

        def add(name, item):
            if isinstance(item, h5py.Dataset):
                datasets[name] = item
            return len(datasets) > MAX_ARRAYS or None  # anything but None ends the walk

        file.visititems(add)
        for name, dataset in datasets.items():
            elsewhere = dataset.chunks or dataset.external or dataset.is_virtual
            is_here = not elsewhere and dataset.id.get_storage_size() == dataset.nbytes
            is_number = dataset.dtype.kind in "fiuV" and dataset.dtype.names is None
            _require(is_here, f"{name!r}, of shape {dataset.shape}, has not its values in it")
            _require(is_number, f"{name!r} is of type {dataset.dtype}, expected numbers")
        _check_claims(datasets, sum(dataset.nbytes for dataset in datasets.values()), path)
        return {name: _as_plain(np.asarray(dataset[()])) for name, dataset in datasets.items()}


def _check_claims(arrays, claimed, path, allowed=1):
    fits = claimed <= allowed * os.path.getsize(path) and len(arrays) <= MAX_ARRAYS
    _require(fits, f"its {len(arrays)} arrays have {claimed} bytes, more than it has")


def read_torch(path):
    """Name -> array of a file that `torch.save` wrote.

    `torch.load(weights_only=True)` builds tensors and nothing else.
    """
    try:
        import torch
    except ImportError as error:
        text = 'a PyTorch file needs PyTorch: pip install "keras3-vit[torch]"'
        raise ImportError(f"{str(path)!r}: {text}, or use a safetensors file.") from error
    with _reading(path, "a PyTorch file of plain tensors"):
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                members = _checked_members(archive, path)
                scripted = any(m.filename.endswith("/constants.pkl") for m in members)
                _require(not scripted, "it is TorchScript, which is code; save its state_dict()")
                # PyTorch writes checksums and does not compare them.
                damaged = archive.testzip()
                _require(not damaged, f"the checksum of its part {damaged!r} does not fit")
        content = _state_dict(torch.load(path, map_location="cpu", weights_only=True))
        tensors = {n: t.detach() for n, t in content.items() if isinstance(t, torch.Tensor)}
        # A tensor may repeat one number along an axis, and so be larger than any file.
        claimed = sum(t.numel() * t.element_size() for t in tensors.values())
        _check_claims(tensors, claimed, path, allowed=2)
        half = (torch.bfloat16, torch.float16)
        return {n: (t.float() if t.dtype in half else t).numpy() for n, t in tensors.items()}


def _state_dict(content):
    """The weights in what a training script saved, without the prefixes of wrappers."""
    for key in STATE_DICTS:
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    other = [name for name in content if not isinstance(name, str)]
    _require(not other, f"it calls a tensor {other[:1]}, which is no name")
    for prefix in ("module.", "_orig_mod."):
        if all(name.startswith(prefix) for name in content):
            content = {name.removeprefix(prefix): value for name, value in content.items()}
    return content


def read_json(path):
    """The dict in a JSON file; an empty one where there is no file."""
    check_finished(path)
    if not os.path.lexists(path):  # what is there and no file is an error
        return {}
    with _reading(path, "JSON, beside the checkpoint"):
        _require(path.stat().st_size <= MAX_HEADER, f"it is larger than {MAX_HEADER} bytes")
        content = json.loads(path.read_text("utf-8"))
        _require(isinstance(content, dict), "it holds no names and values")
        return content
