"""Files of PyTorch: what may lie beside weights, and archives that two readers read otherwise."""

import argparse
import collections
import contextlib
import datetime
import decimal
import enum
import pathlib
import re
import sys
import types
import uuid
import zipfile

import numpy as np
import pytest

import keras_vit
from keras_vit.weights.files import open_checkpoint, read_safetensors
from keras_vit.weights.pytorch import read_torch
from tests.support import ORACLES, refuses
from tests.weights.stored import refused

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.any_backend

TIMM = ORACLES / "timm" / "vit_token_p8" / "model.safetensors"
WEIGHTS = {
    "a.weight": torch.arange(12.0).reshape(3, 4),
    "a.bias": torch.linspace(-1, 1, 3).to(torch.bfloat16),
    "steps": torch.arange(5),
}
EXPECTED = {
    name: (t.float() if t.dtype == torch.bfloat16 else t).numpy() for name, t in WEIGHTS.items()
}
KINDS = pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "older"])


def saved(folder, content, is_zip=True):
    torch.save(content, folder / "model.pth", _use_new_zipfile_serialization=is_zip)
    return folder / "model.pth"


def parts_of(path):
    with zipfile.ZipFile(path) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def written(path, parts):
    with zipfile.ZipFile(path, "w") as archive:
        for name, part in parts:
            with contextlib.suppress(UserWarning):
                archive.writestr(name, part)
    return path


def assert_equal(arrays, prefix=""):
    for name, expected in EXPECTED.items():
        np.testing.assert_array_equal(arrays[prefix + name], expected)
        assert arrays[prefix + name].dtype == expected.dtype


# ---- beside the weights


PLAIN = {
    "arguments": argparse.Namespace(lr=0.1, output=pathlib.Path("a"), since=datetime.date.today()),
    "namespace": types.SimpleNamespace(a=1),
    "scalars": [np.float64(0.5), np.float32(1), np.int64(3), np.bool_(True), np.str_("a")],
    "dtypes": [np.dtype("float32"), np.dtype(">i2"), np.float32, torch.bfloat16],
    "objects": np.array([1, "a", None], dtype=object),
    "texts": np.array(["a", "bc"]),
    "record": np.zeros(2, [("x", "f4"), ("y", "i4")]),
    "paths": [pathlib.Path("a"), pathlib.PurePosixPath("a"), pathlib.PureWindowsPath("a")],
    "times": [datetime.datetime.now(datetime.UTC), datetime.timedelta(1)],
    "numbers": [decimal.Decimal("1.5"), 1j, uuid.UUID(int=1), 2**100],
    "containers": [collections.defaultdict(list, a=[1]), collections.OrderedDict(a=1)],
    "more": [collections.deque([1, 2]), collections.Counter("aa"), {1, 2}, frozenset([1])],
    "parts": [range(3), slice(1, 2), b"abc", bytearray(b"abc"), None, torch.Size([1])],
}


@KINDS
@pytest.mark.parametrize("name", PLAIN)
def test_plain_data_beside_the_weights(tmp_path, name, is_zip):
    before = torch.serialization.get_safe_globals()
    path = saved(tmp_path, {"model": WEIGHTS, name: PLAIN[name], "epoch": 3}, is_zip)
    assert_equal(read_torch(path), "model.")
    assert set(torch.serialization.get_safe_globals()) == set(before)


@KINDS
def test_arrays_of_numpy_in_place_of_tensors(tmp_path, is_zip):
    arrays = {
        "a": np.arange(6, dtype="float32").reshape(2, 3),
        "b": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "c": np.arange(3, dtype=">f4"),
        "d": np.arange(3, dtype="float16"),
    }
    loaded = read_torch(saved(tmp_path, {**arrays, **WEIGHTS}, is_zip))
    assert_equal(loaded)
    for name, array in arrays.items():
        np.testing.assert_array_equal(loaded[name], array)
        assert loaded[name].dtype.isnative and loaded[name].dtype != "float16"


def test_names_of_other_versions(tmp_path):
    """NumPy 1 and Python 3.13 store their classes under other modules."""
    content = {"model": WEIGHTS, "x": [np.float64(1), pathlib.PurePosixPath("a"), np.ones(2)]}
    path = saved(tmp_path, content)
    for old, new in ((b"numpy._core.m", b"numpy.core.m"), (b"cpathlib\n", b"cpathlib._local\n")):
        parts = parts_of(path)
        assert old in next(part for name, part in parts if name.endswith("data.pkl"))
        written(path, [(name, part.replace(old, new)) for name, part in parts])
    assert_equal(read_torch(path), "model.")


@pytest.mark.parametrize(
    "name", ["lightning_fabric.utilities.data.AttributeDict", "yacs.config.CfgNode"]
)
def test_dicts_of_libraries_that_are_not_needed(tmp_path, monkeypatch, name):
    """They are dicts with attributes, which may hold the weights."""
    module, _, kind = name.rpartition(".")
    mine = type(kind, (dict,), {"__module__": module})
    parts = module.split(".")
    for i in range(len(parts)):
        parent = ".".join(parts[: i + 1])
        monkeypatch.setitem(sys.modules, parent, types.ModuleType(parent))
    setattr(sys.modules[module], kind, mine)
    content = mine(WEIGHTS)
    content.frozen = True
    path = saved(tmp_path, {"a": mine(), "b": content})
    monkeypatch.delitem(sys.modules, module)
    assert_equal(read_torch(path), "b.")


class Setting(enum.Enum):
    ONE = 1


class Config:
    pass


def run(*_):
    keras_vit.was_run = True


class Harmful:
    def __reduce__(self):
        return run, (1,)


@KINDS
@pytest.mark.parametrize(
    "content, name",
    [
        (Config(), "test_pytorch.Config"),
        (Setting.ONE, "test_pytorch.Setting"),
        (Harmful(), "test_pytorch.run"),
        (torch.nn.Linear(2, 2), "torch.nn.modules.linear.Linear"),
        (torch.optim.SGD, "torch.optim.sgd.SGD"),
        (print, "builtins.print"),
        (np.load, "numpy.load"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_objects_are_refused_by_name(tmp_path, content, name, is_zip):
    """In our own words: the advice of PyTorch is to run what is in the file."""
    path = saved(tmp_path, {"model": WEIGHTS, "x": content}, is_zip)
    with pytest.raises(keras_vit.CheckpointError, match=re.escape(name)) as error:
        keras_vit.from_checkpoint(path)
    text = str(error.value)
    assert path.name in text and "state_dict()" in text
    assert not re.search(r"\x1b|weights_only=True|safe_globals|GLOBAL|[Rr]e-running", text)
    assert error.value.__cause__.__cause__ is None if error.value.__cause__ else True
    assert not hasattr(keras_vit, "was_run")


@pytest.mark.filterwarnings("ignore")
def test_tensors_that_have_no_plain_values(tmp_path):
    whole = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    words = r"objects of .*Sequential.*state_dict\(\)"
    refused(words, saved(tmp_path, whole), call=read_torch)
    packed = torch.ones(3).to(torch.float8_e4m3fn)  # whose scales are elsewhere
    for tensor in (torch.eye(3).to_sparse(), torch.ones(3, device="meta"), packed):
        refused(r"'x' is sparse.*no plain tensor", saved(tmp_path, {"x": tensor}), call=read_torch)
    torch.save(WEIGHTS, tmp_path / "model.pth", pickle_protocol=4)
    refused("of another protocol", tmp_path / "model.pth", call=read_torch)


def test_a_list_of_averages_has_no_names(tmp_path):
    """As torch-ema stores them."""
    averages = {"decay": 0.999, "num_updates": 9, "shadow_params": list(WEIGHTS.values())}
    for content in (averages, {"ema": averages}, list(WEIGHTS.values())):
        refused(r"list of arrays without names.*ema\.copy_to", saved(tmp_path, content))
    refused("holds no arrays", saved(tmp_path, {"epoch": 3}))


@KINDS
def test_containers_in_themselves(tmp_path, is_zip):
    """A list that holds itself, and one of very many references to few."""
    content = [WEIGHTS]
    content.append(content)
    many = [0]
    for _ in range(40):
        many = [many] * 10
    assert_equal(read_torch(saved(tmp_path, {"x": content, "y": many}, is_zip)), "x.0.")
    again = {"a": {"b": torch.ones(1)}, "a.b": torch.ones(1)}
    refused(r"calls two tensors 'a\.b'", saved(tmp_path, again, is_zip), call=read_torch)


@KINDS
def test_tensors_that_share_their_bytes(tmp_path, is_zip):
    whole = torch.arange(1000.0)
    content = {f"{i}.weight": whole for i in range(9)} | {"half": whole[500:], "x": whole[::2]}
    loaded = read_torch(saved(tmp_path, content, is_zip))
    assert len(loaded) == 11
    np.testing.assert_array_equal(loaded["half"], whole[500:].numpy())


def test_a_safetensors_file_that_begins_as_a_pickle_does(tmp_path, monkeypatch):
    """Its length begins with the byte of one."""
    content = TIMM.read_bytes()
    length = int.from_bytes(content[:8], "little")
    padded = (length // 256 + 1) * 256 + 128
    header = content[8 : 8 + length] + b" " * (padded - length)
    path = tmp_path / "model.safetensors"
    path.write_bytes(padded.to_bytes(8, "little") + header + content[8 + length :])
    assert path.read_bytes()[:1] == b"\x80"
    monkeypatch.setitem(sys.modules, "torch", None)
    assert open_checkpoint(path).arrays.keys() == read_safetensors(TIMM).keys()
    refuses(r"needs PyTorch.*keras3-vit\[torch\]", read_torch, path, error=ImportError)
