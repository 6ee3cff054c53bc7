"""The safetensors format: eight bytes of length, a JSON header, then the values.

A reader of its own, because the package that defines the format cannot give bfloat16 to NumPy,
and because a checkpoint is the one thing that no user should need a further package for.
"""

import hashlib
import json
import math
import os

import numpy as np

from keras_vit.weights.files import as_plain, replacing, require_file, unreadable

KIND = "a safetensors file"
MAX_HEADER = 100_000_000  # bytes; the limit of the format's own library
CHECKSUM = "keras_vit.sha256"
DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "V2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U8": "u1",
    "BOOL": "?",
}


def read_safetensors(path):
    """The arrays of a safetensors file as a dict from name to array.

    Half-precision arrays become float32. A file that this library wrote carries a checksum,
    which is compared.

    Raises:
        FileNotFoundError: there is no such file.
        CheckpointError: the file is damaged or no such file.
    """
    path = require_file(path)
    try:
        with open(path, "rb") as stream:
            header, metadata, size = _read_header(stream, os.fstat(stream.fileno()).st_size)
            _check_layout(header, size)
            values = np.fromfile(stream, "u1", size)
        if CHECKSUM in metadata and metadata[CHECKSUM] != _checksum(header, [values]):
            raise ValueError("it was altered: its arrays do not fit their checksum")
        return {name: _array(entry, values) for name, entry in header.items()}
    except Exception as error:
        raise unreadable(path, KIND, error) from error


def _read_header(stream, file_size):
    length = int.from_bytes(stream.read(8), "little")
    if not 2 <= length <= min(MAX_HEADER, file_size - 8):
        raise ValueError(f"its header would have {length} of its {file_size} bytes")
    header = json.loads(stream.read(length).decode(), object_pairs_hook=_without_repetition)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict):
        raise ValueError("its metadata are no names and values")
    return header, metadata, file_size - 8 - length


def _without_repetition(pairs):
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a name appears twice in its header")
    return dict(pairs)


def _check_layout(header, size):
    """The values of the arrays must follow each other and fill the file."""
    end = 0
    for entry in sorted(header.values(), key=lambda entry: entry["data_offsets"]):
        start, stop = entry["data_offsets"]
        shape = entry["shape"]
        if any(type(side) is not int or side < 0 for side in (*shape, start, stop)):
            raise ValueError(f"an array has the shape {shape} and the offsets {[start, stop]}")
        if entry["dtype"] not in DTYPES:
            raise ValueError(f"an array has the type {entry['dtype']!r}")
        expected = math.prod(shape) * np.dtype(DTYPES[entry["dtype"]]).itemsize
        if start != end or stop - start != expected:
            raise ValueError(f"an array of {expected} bytes lies at {[start, stop]}, not at {end}")
        end = stop
    if end != size:
        raise ValueError(f"its arrays have {end} bytes of values, the file has {size}")


def _array(entry, values):
    start, stop = entry["data_offsets"]
    return as_plain(values[start:stop].view(DTYPES[entry["dtype"]]).reshape(entry["shape"]))


def write_safetensors(path, arrays, metadata=None):
    """Writes float32 and float64 arrays, by name. The file appears whole or not at all.

    Args:
        path: the file.
        arrays: dict from name to array.
        metadata: dict of strings; `{"format": "pt"}` says that names and layout are PyTorch's.
    """
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    types = {"float32": "F32", "float64": "F64"}
    header, end = {}, 0
    for name, array in arrays.items():
        start, end = end, end + array.nbytes
        header[name] = {
            "dtype": types[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [start, end],
        }
    values = [array.reshape(-1).view("u1") for array in arrays.values()]
    header["__metadata__"] = {**(metadata or {}), CHECKSUM: _checksum(header, values)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # values start at a multiple of eight bytes
    with replacing(path) as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for part in values:
            stream.write(part)


def _checksum(header, values):
    """Of the names, types and places of the arrays, and of what is in them."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for part in values:
        digest.update(part)
    return digest.hexdigest()
