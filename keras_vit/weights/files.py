"""Arrays in files: npz, safetensors, PyTorch's and HDF5; JSON; and files that appear whole.

Nothing is ever unpickled. A file may say anything about the sizes of its arrays, so what it says
is compared with how large the file is before memory is taken. A file that is written appears
whole or not at all.
"""

import contextlib
import json
import math
import os
import pathlib
import tempfile
import zipfile

import numpy as np
import safetensors.numpy

MAX_ARRAYS = 20_000  # the largest published model has 1,200
MAX_HEADER = 8 << 20  # bytes of JSON; that of the largest published model has 0.2 MB
SPARE = 16 << 20  # bytes that a small file may unpack to
MAX_RATIO = 20  # of unpacked to packed: weights hardly compress, fresh zeros do


class CheckpointError(ValueError):
    """A checkpoint that cannot be read, or that does not fit; no model was changed."""


def require_file(path):
    """`path` as a `pathlib.Path` to a regular file that exists."""
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no checkpoint file {str(path)!r}.")
    return path


@contextlib.contextmanager
def _reading(path, kind):
    """Turns whatever a library raises over a damaged file into a `CheckpointError`."""
    try:
        yield require_file(path)
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
    with _reading(path, "an npz file of plain arrays") as path, zipfile.ZipFile(path) as archive:
        members = _checked_members(archive, path)
        for member in members:
            if not member.filename.endswith(".npy"):
                raise ValueError(f"it holds {member.filename!r}, which is no array")
        arrays = {m.filename.removesuffix(".npy"): _read_npy(archive, m) for m in members}
        if len(arrays) < len(members):
            raise ValueError("two arrays have the same name")
        return arrays


def _checked_members(archive, path):
    """The entries of a zip archive that does not claim to be much larger than it is."""
    members, size = archive.infolist(), path.stat().st_size
    unpacked = sum(member.file_size for member in members)
    if len(members) > MAX_ARRAYS:
        raise ValueError(f"it has {len(members)} parts, more than {MAX_ARRAYS}")
    if unpacked > max(SPARE, MAX_RATIO * size):
        raise ValueError(f"its {size} bytes would unpack to {unpacked}")
    if any(m.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for m in members):
        raise ValueError("it is packed in another way than npz files are")
    return members


def _read_npy(archive, member):
    form = np.lib.format
    with archive.open(member) as stream:
        is_first = form.read_magic(stream) == (1, 0)
        read_header = form.read_array_header_1_0 if is_first else form.read_array_header_2_0
        shape, _, dtype = read_header(stream)
        promised, there = math.prod(shape) * dtype.itemsize, member.file_size - stream.tell()
        if dtype.hasobject:
            raise ValueError(f"{member.filename!r} holds Python objects, which are never unpickled")
        if promised != there:
            raise ValueError(f"{member.filename!r} has {there} bytes of values, not {promised}")
    with archive.open(member) as stream:
        return _as_plain(form.read_array(stream, allow_pickle=False))


def read_safetensors(path):
    """Name -> array of a safetensors file; half precision as float32."""
    import ml_dtypes  # noqa: F401  safetensors reads bfloat16 once it is imported

    with _reading(path, "a safetensors file") as path:
        with open(path, "rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if length > MAX_HEADER:
                raise ValueError(f"its header would have {length} bytes, more than {MAX_HEADER}")
            if stream.read(length).count(b'"data_offsets"') > MAX_ARRAYS:
                raise ValueError(f"it has more than {MAX_ARRAYS} arrays")
        # The library compares types, shapes and places of all arrays with the size of the file.
        return {n: _as_plain(a) for n, a in safetensors.numpy.load_file(path).items()}


def read_hdf5(path):
    """Path in the file -> array of an HDF5 file as Keras writes it: each variable in one piece.

    Links are not followed, and values that lie in other files, in chunks or packed are refused.
    """
    import h5py  # comes with Keras, and takes a while

    kind = "an HDF5 file of Keras weights"
    with _reading(path, kind) as path, h5py.File(path, "r") as file:
        datasets = {}

        def add(name, item):
            if isinstance(item, h5py.Dataset):
                datasets[name] = item
            return len(datasets) > MAX_ARRAYS or None  # anything but None ends the walk

        file.visititems(add)
        for name, dataset in datasets.items():
            elsewhere = dataset.chunks or dataset.external or dataset.is_virtual
            if elsewhere or dataset.id.get_storage_size() != dataset.nbytes:
                raise ValueError(f"{name!r}, of shape {dataset.shape}, has not its values in it")
            if dataset.dtype.kind not in "fiuV" or dataset.dtype.names is not None:
                raise ValueError(f"{name!r} is of type {dataset.dtype}, expected numbers")
        claimed = sum(dataset.nbytes for dataset in datasets.values())
        if claimed > path.stat().st_size or len(datasets) > MAX_ARRAYS:
            raise ValueError(f"its {len(datasets)} arrays have {claimed} bytes, more than it has")
        return {name: _as_plain(np.asarray(dataset[()])) for name, dataset in datasets.items()}


def read_torch(path):
    """Name -> array of a file that `torch.save` wrote.

    `torch.load(weights_only=True)` builds tensors and nothing else.
    """
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"{str(path)!r} is a PyTorch file, which only PyTorch reads. Install it with: "
            'pip install "keras3-vit[torch]", or use the safetensors file of the checkpoint.'
        ) from error
    with _reading(path, "a PyTorch file of plain tensors") as path:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                _checked_members(archive, path)
                # PyTorch writes checksums and does not compare them.
                if damaged := archive.testzip():
                    raise ValueError(f"the checksum of its part {damaged!r} does not fit")
        content = _state_dict(torch.load(path, map_location="cpu", weights_only=True))
        tensors = {n: t.detach() for n, t in content.items() if isinstance(t, torch.Tensor)}
        # A tensor may repeat one number along an axis, and so be larger than any file.
        claimed = sum(t.numel() * t.element_size() for t in tensors.values())
        if claimed > 2 * path.stat().st_size or len(tensors) > MAX_ARRAYS:
            raise ValueError(f"its {len(tensors)} tensors have {claimed} bytes, more than it has")
        half = (torch.bfloat16, torch.float16)
        return {n: (t.float() if t.dtype in half else t).numpy() for n, t in tensors.items()}


def _state_dict(content):
    """The weights in what a training script saved, without the prefixes of wrappers."""
    for key in ("state_dict_ema", "model_ema", "state_dict", "model"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict):
        raise ValueError(f"it holds a {type(content).__name__}, not a dict of tensors")
    if other := [name for name in content if not isinstance(name, str)]:
        raise ValueError(f"it calls a tensor {other[0]!r}, which is no name")
    for prefix in ("module.", "_orig_mod."):
        if all(name.startswith(prefix) for name in content):
            content = {name.removeprefix(prefix): value for name, value in content.items()}
    return content


def read_json(path):
    """The dict in a JSON file; an empty one where there is no file."""
    if not path.is_file():
        return {}
    with _reading(path, "JSON, beside the checkpoint"):
        if path.stat().st_size > MAX_HEADER:
            raise ValueError(f"it is larger than {MAX_HEADER} bytes")
        content = json.loads(path.read_text("utf-8"))
        if not isinstance(content, dict):
            raise ValueError(f"it holds a {type(content).__name__}, not names and values")
        return content


# ---- writing


def write_npz(path, arrays):
    """Writes a dict from name to array as npz."""
    with replacing(path) as stream:
        np.savez(stream, **arrays)


def write_safetensors(path, arrays):
    """Writes a dict from name to array as PyTorch does."""
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    with replacing(path) as stream:
        stream.write(safetensors.numpy.save(arrays, {"format": "pt"}))


def write_json(path, content):
    """Writes a dict as JSON."""
    with replacing(path) as stream:
        stream.write(json.dumps(content, indent=2).encode() + b"\n")


@contextlib.contextmanager
def replacing(path):
    """A file opened for writing beside `path`, which takes its place when all went well."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".")
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.umask(mask := os.umask(0))
        os.chmod(temporary, 0o666 & ~mask)  # mkstemp lets nobody else read
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
