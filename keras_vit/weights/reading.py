"""How files of strangers are read: what they say is compared with how large they are.

Whatever a library raises over a damaged file becomes a `CheckpointError`.
"""

import contextlib
import os
import zipfile

from keras_vit.text import abridged

MAX_ARRAYS = 20_000  # the largest published model has 1,200
MAX_HEADER = 8 << 20  # bytes of JSON; that of the largest published model has 0.2 MB
SPARE = 16 << 20  # bytes that a small file may unpack to
MAX_RATIO = 20  # of unpacked to packed: weights hardly compress, fresh zeros do


class CheckpointError(ValueError):
    """A checkpoint that cannot be read, or that does not fit; no model was changed."""

    def __init__(self, text: str):
        super().__init__(abridged(text))  # it may repeat what a stranger's file says


def require(fits, text):
    """Raises an error that `reading` explains, unless a part of a file fits."""
    if not fits:
        raise ValueError(text)


@contextlib.contextmanager
def reading(path, format):
    """Turns whatever a library raises over a damaged file into a `CheckpointError`."""
    if not os.path.isfile(path):
        raise FileNotFoundError(f"There is no checkpoint file {str(path)!r}.")
    try:
        yield
    except (CheckpointError, ImportError, FileNotFoundError):
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise CheckpointError(
            f"{str(path)!r} cannot be read as {format}: {reason}. Check that the download is "
            "complete and that the file is a checkpoint; nothing was loaded."
        ) from error


def checked_members(archive, size):
    """The entries of a zip archive that does not claim to be much larger than it is."""
    members = archive.infolist()
    unpacked = sum(member.file_size for member in members)
    is_small = unpacked <= max(SPARE, MAX_RATIO * size)
    methods = {member.compress_type for member in members}
    require(len(members) <= MAX_ARRAYS, f"it has {len(members)} parts, more than {MAX_ARRAYS}")
    require(is_small, f"its {size} bytes would unpack to {unpacked}")
    require(methods <= {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}, "it is packed in another way")
    return members


def check_claims(count, claimed, size):
    """Raises an error for arrays that would be larger than their file, or too many."""
    fits = claimed <= size and count <= MAX_ARRAYS
    require(fits, f"its {count} arrays have {claimed} bytes, more than it has")


def as_plain(array):
    """`array` in a type that NumPy computes with: half precision becomes float32."""
    if array.dtype.kind == "V" and array.dtype.itemsize == 2 and array.dtype.names is None:
        import ml_dtypes  # comes with Keras; NumPy stores bfloat16 as two raw bytes

        array = array.view(ml_dtypes.bfloat16)
    if array.dtype.name in ("bfloat16", "float16"):
        return array.astype("float32")
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        return array.astype("float64")  # no backend knows a longer one
    return array.astype(array.dtype.newbyteorder("="), copy=False)
