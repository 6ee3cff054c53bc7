"""Files of `torch.save`: zip archives, and the older ones, which are pickles and bytes one by one.

`torch.load(weights_only=True)` builds tensors, dicts, lists and numbers, and refuses every other
object, whose code it would have to run. Training scripts save plain data beside the weights, such
as their arguments. Its classes are allowed by name, and an object that keeps nothing takes its
place.
"""

import collections
import io
import os
import pickletools
import re
import threading
import zipfile

import numpy as np

from keras_vit.checks import needs_extra
from keras_vit.weights.safety import (
    CheckpointError,
    as_plain,
    check_claims,
    checked_members,
    opening,
    require,
)

_LOADING = threading.Lock()  # what PyTorch allows by name holds for all threads


class Aside:
    """Stands for plain data beside the weights, which nobody reads."""

    def __new__(cls, *args, **kwargs):
        return super().__new__(cls)

    def __setstate__(self, state):
        pass


class DType(Aside):
    """A dtype of NumPy, as its pickle describes it."""

    def __init__(self, code="V", *options):
        self.code, self.order = code, "="

    def __setstate__(self, state):
        self.order = state[1]


class Array(Aside):
    """An array of NumPy, made of the bytes that are in the file."""

    array = None

    def __setstate__(self, state):
        _, shape, dtype, by_columns, content = state
        if isinstance(content, bytes) and dtype.code[:1] in "fiub":  # else objects, or texts
            dtype = np.dtype(dtype.code).newbyteorder(dtype.order)
            self.array = np.ndarray(shape, dtype, content, order="F" if by_columns else "C")


def _stand_in_of(cls):
    """Stands for a kind of list or dict, which may have the weights in it."""
    return type(cls.__name__, (), {"__new__": lambda _, *args, **kwargs: cls()})


# Classes and functions of data that runs nothing, and who takes their place.
PLAIN = {
    Array: "numpy.ndarray numpy.core.multiarray._reconstruct numpy._core.multiarray._reconstruct",
    DType: "numpy.dtype",
    _stand_in_of(list): "collections.deque",
    # PyTorch lets this dict have attributes.
    _stand_in_of(collections.OrderedDict): """
        collections.defaultdict easydict.EasyDict addict.addict.Dict
        lightning_fabric.utilities.data.AttributeDict lightning.fabric.utilities.data.AttributeDict
        pytorch_lightning.utilities.parsing.AttributeDict
        lightning.pytorch.utilities.parsing.AttributeDict
        mmcv.utils.config.ConfigDict mmengine.config.config.ConfigDict
        yacs.config.CfgNode fvcore.common.config.CfgNode
    """,
    Aside: """
        argparse.Namespace types.SimpleNamespace typing.Any builtins.dict builtins.list
        builtins.tuple builtins.frozenset builtins.range builtins.slice builtins.int builtins.float
        builtins.str builtins.bool builtins.bytes datetime.datetime datetime.date datetime.time
        datetime.timedelta datetime.timezone decimal.Decimal fractions.Fraction uuid.UUID
        pathlib.Path pathlib.PosixPath pathlib.WindowsPath pathlib.PurePath pathlib.PurePosixPath
        pathlib.PureWindowsPath pathlib._local.Path pathlib._local.PosixPath
        pathlib._local.WindowsPath pathlib._local.PurePath pathlib._local.PurePosixPath
        pathlib._local.PureWindowsPath numpy.core.multiarray.scalar numpy._core.multiarray.scalar
        numpy.bool numpy.bool_ numpy.int8 numpy.int16 numpy.int32 numpy.int64 numpy.uint8
        numpy.uint16 numpy.uint32 numpy.uint64 numpy.float16 numpy.float32 numpy.float64 numpy.str_
        omegaconf.dictconfig.DictConfig omegaconf.listconfig.ListConfig omegaconf.base.Metadata
        omegaconf.base.ContainerMetadata omegaconf.nodes.AnyNode omegaconf.nodes.StringNode
        omegaconf.nodes.IntegerNode omegaconf.nodes.FloatNode omegaconf.nodes.BooleanNode
        torchvision.transforms.functional.InterpolationMode
    """,
}


def read_torch(path):
    """Name -> array of a file that `torch.save` wrote; half precision as float32.

    The name of a tensor in dicts and lists begins with their keys, with dots between them.
    """
    with needs_extra("torch", f"{str(path)!r} needs PyTorch, which a safetensors file does not"):
        import torch
    with opening(path, "a PyTorch file of plain tensors"), open(path, "rb") as stream:
        is_zip = stream.read(4) == b"PK\x03\x04"
        stream.seek(0)
        if is_zip:
            stream, size = _rewritten(stream)
        else:  # the bytes of the tensors follow five pickles
            for _ in range(5):
                collections.deque(pickletools.genops(stream), maxlen=0)  # reads, executes nothing
            size = os.path.getsize(path) - stream.tell()
            stream.seek(0)
        rows = [(stand_in, name) for stand_in, names in PLAIN.items() for name in names.split()]
        try:
            with _LOADING, torch.serialization.safe_globals(rows):
                content = torch.load(stream, map_location="cpu", weights_only=True)
        except Exception as error:  # PyTorch's texts advise to run what is in the file
            raise _refusal(path, error) from None
        require(is_zip or not stream.read(1), "there are bytes behind its last tensor")
        return _arrays_in(torch, content, size)


def _rewritten(stream):
    """The archive written anew, and how many bytes its tensors have.

    Python's and PyTorch's readers of archives do not read a damaged or forged one alike, and only
    Python's compares checksums. So PyTorch gets what Python's has read.
    """
    copy, tensors, names = io.BytesIO(), 0, set()
    with zipfile.ZipFile(stream) as archive, zipfile.ZipFile(copy, "w") as plain:
        for member in checked_members(archive, os.fstat(stream.fileno()).st_size):
            name = member.filename
            scripted = name.endswith("/constants.pkl")
            require(not scripted, "it is TorchScript, which is code; save its state_dict()")
            # PyTorch looks for a part in any case of letters.
            require(name.lower() not in names, f"it has several parts {name!r}")
            is_folder = member.is_dir() or member.external_attr & 0x10
            require(not is_folder, f"its part {name!r} is marked as a folder")
            names.add(name.lower())
            plain.writestr(name, archive.read(member))
            tensors += member.file_size if "/data/" in name else 0
    copy.seek(0)
    return copy, tensors


def _refusal(path, error):
    """The error for a file that PyTorch does not load."""
    if refused := re.search(r"\bGLOBAL (\S+)", str(error)):
        name = refused[1] if "." in refused[1] else f"builtins.{refused[1]}"
        return CheckpointError(
            f"{str(path)!r} cannot be read as a PyTorch file of plain tensors: it holds objects "
            f"of {name}, and to make them means to run code. Where it was written, open it "
            "with torch.load(path, weights_only=False) and save the weights alone: "
            "torch.save(model.state_dict(), path). Nothing was loaded."
        )
    return ValueError(
        "its pickle is damaged, of another protocol than that of torch.save, or names tensors that "
        "are not in the file"
    )


def _arrays_in(torch, content, size):
    """The arrays of what was saved, whose tensors have `size` bytes in the file."""
    everything, nameless = _named(torch, content)
    tensors = {n: t.detach() for n, t in everything.items() if isinstance(t, torch.Tensor)}
    for name, t in tensors.items():
        is_packed = t.is_quantized or (t.is_floating_point() and t.element_size() < 2)  # float8
        is_plain = t.layout == torch.strided and not is_packed and t.device.type == "cpu"
        require(is_plain, f"{name!r} is sparse, quantised or without values, no plain tensor")
    is_named = not nameless or len(nameless) < len(everything)
    require(is_named, f"it calls a tensor {nameless[:1]}, which is no name")
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in tensors.values()}
    check_claims(len(everything), sum(s.nbytes() for s in storages.values()), size)
    # A tensor may repeat one number along an axis, and so be larger than any file.
    views = {(t.data_ptr(), t.shape, t.stride()): t.nbytes for t in tensors.values()}
    check_claims(len(everything), sum(views.values()), 2 * size)
    for name, t in tensors.items():
        is_short = t.is_floating_point() and t.element_size() < 4
        everything[name] = (t.float() if is_short else t).numpy()
    return {n: array if n in tensors else as_plain(array) for n, array in everything.items()}


def _named(torch, content):
    """(name -> tensor, keys that are no names) of dicts and lists of any depth.

    A name is made of the keys on the way to the tensor.
    """
    tensors, nameless, seen, waiting = {}, [], set(), [("", content)]
    while waiting:
        prefix, group = waiting.pop()
        if id(group) in seen or not isinstance(group, (dict, list, tuple)):
            continue
        seen.add(id(group))  # a list may hold itself
        rows = list(group.items() if isinstance(group, dict) else enumerate(group))
        for key, value in rows:
            name, value = f"{prefix}{key}", getattr(value, "array", value)
            if isinstance(value, (torch.Tensor, np.ndarray)):
                require(name not in tensors, f"it calls two tensors {name!r}")
                tensors[name] = value
                if isinstance(group, dict) and not isinstance(key, str):
                    nameless.append(key)
        waiting += [(f"{prefix}{key}.", value) for key, value in rows[::-1]]
    return tensors, nameless
