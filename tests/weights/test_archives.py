"""Archives of PyTorch that two readers read otherwise, and older files, bit by bit."""

import itertools
import re

import numpy as np
import pytest

import keras_vit
from keras_vit.weights.pytorch import read_torch
from tests.weights.stored import refused
from tests.weights.test_pytorch import WEIGHTS, parts_of, saved, written

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.any_backend


def test_a_tensor_that_is_marked_as_a_folder(tmp_path):
    """PyTorch's reader takes such a part for read, whatever was in memory before."""
    path = saved(tmp_path, WEIGHTS)
    content = bytearray(path.read_bytes())
    place = content.rindex(b"model/data/0")  # in the directory of the archive
    content[place - 8] |= 0x10
    path.write_bytes(content)
    refused("'model/data/0' is marked as a folder", path, call=read_torch)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", ["model/data/0", "MODEL/data/0", "model/DATA.pkl"])
def test_two_parts_of_one_name(tmp_path, name):
    path = saved(tmp_path, WEIGHTS)
    parts = parts_of(path)
    content = dict(parts)[next(n for n, _ in parts if n.lower() == name.lower())]
    refused(f"several parts '{name}'", written(path, [*parts, (name, content)]), call=read_torch)


def test_a_tensor_larger_than_its_part(tmp_path):
    """The pickle says how large the bytes of a tensor are, and the archive does."""
    path, numbers = saved(tmp_path, WEIGHTS), (b"K\x0ctq", b"J\x00\x00\x10\x00tq")
    parts = [(name, part.replace(*numbers, 1)) for name, part in parts_of(path)]
    assert parts != parts_of(path)
    refused("PyTorch file of plain tensors", written(path, parts), call=read_torch)


def test_an_older_file_with_an_archive_behind_it(tmp_path):
    """Which is read, and which is checked? Neither."""
    older, other = saved(tmp_path, WEIGHTS, is_zip=False).read_bytes(), tmp_path / "other.pth"
    torch.save({"a": torch.ones(3)}, other)
    other.write_bytes(older + other.read_bytes())
    refused("bytes behind its last tensor", other, call=read_torch)


def test_an_older_file_that_leaves_a_tensor_out(tmp_path):
    """The list of those whose bytes follow has one less: it would keep what was in memory."""
    path = saved(tmp_path, {"a": torch.ones(100), "b": torch.ones(100)}, is_zip=False)
    content = path.read_bytes()
    keys = re.search(rb"\]q\x00\((X.{4}\d+q\x01)(X.{4}\d+q\x02)e\.", content, re.DOTALL)
    start, values = keys.start(), content[keys.end() :]
    assert len(values) == 2 * (8 + 400)
    for kept in (values[:408], values):
        path.write_bytes(content[:start] + b"]q\x00(" + keys[1] + b"e." + kept)
        refused(r"bytes behind|more than it has", path, call=read_torch)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_any_bit_of_the_pickles_of_an_older_file(tmp_path):
    """They have no checksum: a number may come out elsewhere, but none that is not in the file."""
    path = saved(tmp_path, {"a": torch.arange(1.0, 13.0).reshape(3, 4), "b": torch.ones(3)}, False)
    content = path.read_bytes()
    refused = 0
    for place, bit in itertools.product(range(0, len(content) - 2 * 8 - 60, 5), range(8)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << bit
        path.write_bytes(damaged)
        try:
            loaded = read_torch(path).values()
        except keras_vit.CheckpointError:
            refused += 1
        else:
            assert all(np.isin(a, range(1, 13)).all() for a in loaded if a.dtype == "float32")
    assert refused > 100
