"""One file with arrays and a description, which shows any damage.

The file is an `.npz` that NumPy reads, with a member `meta.json` besides. The archive's comment,
which is its last bytes, holds the SHA-256 of all bytes before it: a file that was cut short, or of
which a single bit has changed, is recognised before anything in it is used.
"""

import hashlib
import json
import os
import zipfile

import numpy as np

_PREFIX = b"sha256:"
_UNKNOWN = _PREFIX + b"0" * 64  # stands where the digest will be
_CHUNK = 1 << 20


class DamagedCheckpoint(ValueError):
    """A file is not, or no longer, what `write` wrote."""


def write(path, arrays, meta):
    """Writes a file and waits until the disk has it.

    Args:
        path: the file.
        arrays: pairs of a key and an array, taken one at a time, so that no second copy of all is
            ever in memory.
        meta: what JSON can hold.
    """
    with open(path, "wb") as file:
        with zipfile.ZipFile(_Digesting(file), "w") as archive:
            archive.comment = _UNKNOWN
            for key, array in arrays:
                with archive.open(f"{key}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
            archive.writestr("meta.json", json.dumps(meta))
        file.flush()
        os.fsync(file.fileno())


def verify(path):
    """Reads a file back.

    Raises:
        DamagedCheckpoint: its bytes are not those that were written; the message says how.
    """
    size = os.path.getsize(path)
    body = size - len(_UNKNOWN)
    if body <= 0:
        raise DamagedCheckpoint(f"it has only {size} bytes")
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while body:
            chunk = file.read(min(_CHUNK, body))
            digest.update(chunk)
            body -= len(chunk)
        comment = file.read()
    if not comment.startswith(_PREFIX):
        raise DamagedCheckpoint(f"it breaks off, or is no checkpoint ({size} bytes)")
    if comment != _PREFIX + digest.hexdigest().encode():
        raise DamagedCheckpoint(f"its SHA-256 is not the one it was written with ({size} bytes)")


def read(path):
    """The description and a dict from key to array.

    Raises:
        DamagedCheckpoint: as `verify`.
    """
    verify(path)
    with np.load(path, allow_pickle=False) as file:
        meta = json.loads(file["meta.json"])
        return meta, {key: file[key] for key in file.files if key != "meta.json"}


class _Digesting:
    """A stream that puts the digest of what was written in the place kept for it.

    It cannot seek: `zipfile` then writes every byte once, in order.
    """

    def __init__(self, file):
        self._file, self._digest = file, hashlib.sha256()

    def write(self, data):
        if data == _UNKNOWN:
            return self._file.write(_PREFIX + self._digest.hexdigest().encode())
        self._digest.update(data)
        return self._file.write(data)

    def flush(self):
        self._file.flush()
