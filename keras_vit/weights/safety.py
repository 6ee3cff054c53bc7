"""How files of strangers are read: what they say is compared with how large they are."""

import contextlib
import dataclasses
import os
import sys
import warnings
import zipfile

from keras_vit.checks import pair, positive_int
from keras_vit.layers.resnet import ROOT_FILTERS
from keras_vit.models.bit import BiTVariant
from keras_vit.text import abridged
from keras_vit.variant import Variant

MAX_ARRAYS = 20_000  # the largest published model has 1,200
MAX_HEADER = 8 << 20  # bytes of JSON; that of the largest published model has 0.2 MB
SPARE = 16 << 20  # bytes that a small file may unpack to
MAX_RATIO = 20  # of unpacked to packed: weights hardly compress, fresh zeros do
MAX_SIDE = 1 << 14  # pixels; no image that a config names is larger
MAX_EPSILON = 0.1


class CheckpointError(ValueError):
    """A checkpoint that cannot be read, or that does not fit; no model was changed."""

    def __init__(self, text: str):
        super().__init__(abridged(text))  # it may repeat what a stranger's file says


def require(fits, text):
    """Raises an error that `opening` explains, unless a part of a file fits."""
    if not fits:
        raise ValueError(text)


def expect(fits, name, array, expected):
    """Raises a CheckpointError for an array whose shape does not fit."""
    if not fits:
        raise CheckpointError(
            f"{name!r} must have {expected}. Received: shape {array.shape}; the file is damaged "
            "or of another format."
        )


def warn(text):
    """Warns of the line by which this library was called."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and str(frame.f_globals.get("__name__")).startswith("keras_vit."):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


def unsupported(what, advice=""):
    """The error for a part of a file that no model here has."""
    return CheckpointError(f"The file has {what}, which no model of this library has{advice}.")


def of_other_model(config, what):
    """The error for a config.json of another model than the arrays beside it."""
    names = [f" ({config[k]!r:.100})" for k in ("architecture", "model_type") if k in config]
    return CheckpointError(
        f"The config.json{names[0] if names else ''} is of another model: {what}. Put the one of "
        "this model beside the file, or none: then say what the arrays do not show."
    )


@contextlib.contextmanager
def opening(path, format):
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


@contextlib.contextmanager
def naming(path):
    """Turns what is raised over a checkpoint into a `CheckpointError` that names it."""
    try:
        yield
    except CheckpointError as error:
        told = "" if "othing was loaded" in str(error) else " Nothing was loaded."
        raise CheckpointError(f"{str(path)!r}: {error}{told}") from error
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        raise CheckpointError(
            f"{str(path)!r}, or the config beside it, says what cannot be of a model: "
            f"{type(error).__name__}: {error}. Nothing was loaded."
        ) from error


def checked_members(archive, size):
    """The entries of a zip archive that does not claim to be much larger than it is."""
    members = archive.infolist()
    unpacked = sum(member.file_size for member in members)
    methods = {member.compress_type for member in members}
    require(len(members) <= MAX_ARRAYS, f"it has {len(members)} parts, more than {MAX_ARRAYS}")
    fits = unpacked <= max(SPARE, MAX_RATIO * size)
    require(fits, f"its {size} bytes would unpack to {unpacked}")
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


def check_architecture(model, arguments, arrays):
    """Raises an error for an architecture that cannot be, or is larger than its file.

    A config may say anything, and an array may have a shape that no other array confirms.
    """
    positive_int(arguments["channels"], "channels")
    size = pair(arguments["image_size"], "image_size")
    require(max(size) <= MAX_SIDE, f"image_size={size} is above {MAX_SIDE} pixels.")
    variant_class = Variant if model == "VisionTransformer" else BiTVariant
    names = {field.name for field in dataclasses.fields(variant_class)} & set(arguments)
    v = variant_class(**{name: arguments[name] for name in names})
    if variant_class is Variant:
        require(v.epsilon <= MAX_EPSILON, f"epsilon={v.epsilon} is above {MAX_EPSILON}.")
        v.grid(size)
        needed = v.depth * v.width * (4 * v.width + 2 * v.mlp_dim)  # attention, MLP
        blocks, width = v.stem or (), v.stem_width
    else:
        needed, blocks, width = 0, v.blocks, v.width
    for stage, units in enumerate(blocks):
        filters = ROOT_FILTERS * width * 2**stage
        needed += units * (9 + 4) * filters**2  # 3 x 3 convolution, and that to 4 times as many
    present = sum(array.size for array in arrays.values())
    if needed > 2 * present:  # an estimate: only what is far off is refused
        raise CheckpointError(
            f"Its arrays tell of a model with {needed:.3g} weights, and it has {present}: the file "
            "is damaged or of another format."
        )
