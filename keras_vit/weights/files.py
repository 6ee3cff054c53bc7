"""Arrays from npz and PyTorch files, and arrays into npz. No file can run code here."""

import math
import os
import pathlib
import tempfile
import zipfile

import numpy as np

# A file may not unpack to more than this, whichever is larger: weights hardly compress.
MAX_UNPACKED = 2**30
MAX_RATIO = 20


class CheckpointError(ValueError):
    """A checkpoint that cannot be read, or that does not fit; no model was changed."""


def unreadable(path, kind, reason):
    """The error for a damaged or foreign file."""
    return CheckpointError(
        f"{str(path)!r} cannot be read as {kind}: {reason}. Check that the download is complete "
        "and that the file is a checkpoint; nothing was loaded."
    )


def read_npz(path):
    """The arrays of an npz file as a dict from name to array. Nothing is ever unpickled.

    bfloat16 arrays, which NumPy stores as two bytes without a type, become float32.

    Raises:
        FileNotFoundError: there is no such file.
        CheckpointError: the file is no npz, is damaged, holds Python objects, or unpacks to far
            more than it is large.
    """
    path = require_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            _check_members(members, path.stat().st_size)
            return {_array_name(m): _read_member(archive, m) for m in members}
    except Exception as error:  # a damaged archive may raise nearly anything
        raise unreadable(path, "an npz file of plain arrays", error or type(error)) from error


def _check_members(members, file_size):
    names = [_array_name(member) for member in members]
    if len(set(names)) != len(names):
        raise ValueError("two arrays have the same name")
    unpacked = sum(member.file_size for member in members)
    if unpacked > max(MAX_UNPACKED, MAX_RATIO * file_size):
        raise ValueError(f"its {file_size} bytes would unpack to {unpacked}")


def _array_name(member):
    if not member.filename.endswith(".npy"):
        hint = "; keras.saving.load_model opens a .keras file" * (member.filename == "config.json")
        raise ValueError(f"it holds {member.filename!r}, which is no array{hint}")
    return member.filename.removesuffix(".npy")


def _read_member(archive, member):
    with archive.open(member) as stream:
        shape, fortran, dtype = _read_header(stream)
        if dtype.hasobject:
            raise ValueError(f"{member.filename!r} holds Python objects, which are never unpickled")
        expected = math.prod(shape) * dtype.itemsize
        data = stream.read()  # to its end, where the checksum is compared
        if len(data) != expected:
            raise ValueError(
                f"{member.filename!r} has {len(data)} bytes of values instead of {expected}"
            )
    return as_plain(np.ndarray(shape, dtype, data, order="F" if fortran else "C"))


def _read_header(stream):
    version = np.lib.format.read_magic(stream)
    readers = {(1, 0): np.lib.format.read_array_header_1_0}
    return readers.get(version, np.lib.format.read_array_header_2_0)(stream)


def as_plain(array):
    """`array` in a type that NumPy computes with: two raw bytes are read as bfloat16."""
    if array.dtype.kind == "V" and array.dtype.itemsize == 2 and array.dtype.names is None:
        import ml_dtypes  # comes with Keras

        array = array.view(ml_dtypes.bfloat16)
    if array.dtype.name in ("bfloat16", "float16"):
        return array.astype("float32")
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        return array.astype("float64")  # no backend knows a longer one
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def write_npz(path, arrays):
    """Writes a dict from name to array as npz. The file appears whole or not at all."""
    with replacing(path) as stream:
        np.savez(stream, **arrays)


def read_torch(path):
    """The tensors of a PyTorch file, as `torch.save` writes it, as a dict from name to array.

    Read with `torch.load(weights_only=True)`, which builds tensors and nothing else.

    Raises:
        FileNotFoundError: there is no such file.
        ImportError: PyTorch is not installed.
        CheckpointError: the file is damaged, or holds more than tensors.
    """
    path = require_file(path)
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"{str(path)!r} is a PyTorch file, which only PyTorch reads. Install it with: "
            'pip install "keras3-vit[torch]", or use the safetensors file of the checkpoint.'
        ) from error
    try:
        _check_archive(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
        return {
            name: tensor.detach().to(_numpy_type(tensor, torch)).numpy()
            for name, tensor in _state_dict(content).items()
            if isinstance(tensor, torch.Tensor)
        }
    except Exception as error:
        raise unreadable(path, "a PyTorch file of plain tensors", error) from error


def _check_archive(path):
    """PyTorch writes checksums and does not compare them: an altered weight would come through."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if damaged := archive.testzip():
                raise ValueError(f"the checksum of its part {damaged!r} does not fit")


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


def _numpy_type(tensor, torch):
    return torch.float32 if tensor.dtype in (torch.bfloat16, torch.float16) else tensor.dtype


def require_file(path):
    """`path` as a `pathlib.Path` to a file that exists."""
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no checkpoint file {str(path)!r}.")
    return path


class replacing:
    """A file opened for writing beside `path`, which takes its place when all went well."""

    def __init__(self, path):
        self.path = pathlib.Path(path)

    def __enter__(self):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle, self.temporary = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.name + ".")
        self.stream = os.fdopen(handle, "wb")
        return self.stream

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.stream.flush()
            os.fsync(self.stream.fileno())
        self.stream.close()
        if kind is None:
            os.chmod(self.temporary, 0o666 & ~_umask())
            os.replace(self.temporary, self.path)
        else:
            os.unlink(self.temporary)


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask
