"""Arrays from an HDF5 file as Keras writes it. Nothing outside the file is ever opened.

Keras writes each variable as one contiguous piece. A file that keeps its values in another way
(in other files, in chunks, under a second name) is refused, and so are pieces that overlap: what
is read can therefore never be larger than the file.
"""

import math
import re

import numpy as np

from keras_vit.weights.files import as_plain, require_file, unreadable

KIND = "an HDF5 file of Keras weights"
MAX_DEPTH = 32
# Compared with the type in the file bit by bit: a damaged one would scale the values.
TYPES = ("<f4", "<f8", "<f2", "<i4", "<i8", "<u4", "<u8", "<i2", "<u2", "i1", "u1", "V2")


def read_hdf5(path, skip=r"(?!)"):
    """The arrays of an HDF5 file.

    Half-precision arrays become float32.

    Args:
        path: of the file.
        skip: pattern of names whose values are not needed, such as those of an optimizer.

    Returns:
        A dict from name, such as `"layers/dense/vars/0"`, to array; and the names left out.

    Raises:
        FileNotFoundError: there is no such file.
        CheckpointError: the file is damaged, or does not keep plain arrays in itself.
    """
    path = require_file(path)
    import h5py  # comes with Keras, and takes a while

    try:
        with h5py.File(path, "r") as file:
            datasets = _find(h5py, file)
            _check_storage(h5py, datasets, path.stat().st_size)
            skipped = tuple(name for name in datasets if re.fullmatch(skip, name))
            arrays = {n: _values(d, n) for n, d in datasets.items() if n not in skipped}
        return arrays, skipped
    except Exception as error:  # the library raises nearly anything where a file is damaged
        raise unreadable(path, KIND, error) from error


def _find(h5py, file):
    """Name -> dataset, for all that the file holds."""
    found, seen, groups = {}, set(), [("", file)]
    while groups:
        prefix, group = groups.pop()
        for key in group:
            name = f"{prefix}{key}"
            link = group.get(key, getlink=True)
            if not isinstance(link, h5py.HardLink):
                raise ValueError(f"{name!r} is a link to elsewhere, and no link is followed")
            item = group[key]
            # A group that contains itself would otherwise have no end.
            address = h5py.h5o.get_info(item.id).addr
            if address in seen or name.count("/") > MAX_DEPTH:
                raise ValueError(f"{name!r} is another name of what it has under a first one")
            seen.add(address)
            if isinstance(item, h5py.Group):
                groups.append((f"{name}/", item))
            elif isinstance(item, h5py.Dataset):
                found[name] = item
            else:
                raise ValueError(f"{name!r} is a {type(item).__name__}, and no array")
    return found


def _check_storage(h5py, datasets, file_size):
    """Raises a ValueError unless each dataset has its own piece of the file, and all of it."""
    types = [h5py.h5t.py_create(np.dtype(code)) for code in TYPES]
    pieces = []
    for name, dataset in datasets.items():
        kind = dataset.id.get_type()
        if not any(kind.equal(known) for known in types) and not _is_opaque_pair(h5py, kind):
            raise ValueError(f"{name!r} is of type {dataset.dtype}, expected floats or integers")
        plan = dataset.id.get_create_plist()
        if plan.get_layout() != h5py.h5d.CONTIGUOUS or plan.get_external_count():
            raise ValueError(f"{name!r} has its values in chunks or elsewhere, not in one piece")
        size = math.prod(dataset.shape or ()) * kind.get_size()
        start = dataset.id.get_offset()
        if dataset.shape is None or start is None or dataset.id.get_storage_size() != size:
            raise ValueError(f"{name!r}, of shape {dataset.shape}, has not all of its values")
        pieces.append((start, start + size, name))
    pieces.sort()
    for (start, _, name), (_, end, before) in zip(pieces, [(0, 0, "the header"), *pieces]):
        if start < end:
            raise ValueError(f"{name!r} and {before!r} share values")
    if pieces and pieces[-1][1] > file_size:
        raise ValueError(f"{pieces[-1][2]!r} reaches beyond the end of the file")


def _is_opaque_pair(h5py, kind):
    """Whether a type is that of two raw bytes, whatever its tag."""
    return kind.get_class() == h5py.h5t.OPAQUE and kind.get_size() == 2


def _values(dataset, name):
    values = np.asarray(dataset[()])
    if values.dtype.kind == "V" and dataset.attrs.get("dtype") != "bfloat16":
        raise ValueError(f"{name!r} holds raw bytes, and nothing says that they are bfloat16")
    return as_plain(values)
