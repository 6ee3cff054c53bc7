"""A checkpoint of the authors' to change and to write; a web server and a cache for downloads."""

import numpy as np
import pytest

from keras_vit.weights import transfer
from tests.support import ORACLES, read_arrays
from tests.weights.file_server import FileServer, isolate


@pytest.fixture
def arrays():
    return read_arrays(ORACLES / "flax_vit" / "token_p8" / "checkpoint.npz")


@pytest.fixture
def save(tmp_path):
    def write(arrays, name="other.npz"):
        np.savez(tmp_path / name, **arrays)
        return tmp_path / name

    return write


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """The folder of a cache that is empty; nothing from outside has a say, and nobody waits."""
    monkeypatch.setattr(transfer, "_FIRST_PAUSE", 0.001)
    return isolate(monkeypatch, tmp_path)


@pytest.fixture
def server():
    with FileServer() as running:
        yield running
