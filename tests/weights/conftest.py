"""A checkpoint of the authors' to change and to write; a web server and a cache for downloads."""

import numpy as np
import pytest
from huggingface_hub import constants as hub_constants

from tests.support import ORACLES, read_arrays
from tests.weights.file_server import FileServer
from tests.weights.hub_server import HubServer


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
    """The folder of a cache that is empty; nothing from outside has a say."""
    for name in ("KERAS_VIT_OFFLINE", "HF_HUB_OFFLINE", "HF_TOKEN", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def server():
    with FileServer() as running:
        yield running


@pytest.fixture
def hub(cache, monkeypatch, tmp_path):
    """A stand-in for the hub of Hugging Face, with a cache that is empty and no token."""
    with HubServer() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.at)
        monkeypatch.setattr(hub_constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(hub_constants, "HF_TOKEN_PATH", str(tmp_path / "no_token"))
        yield running
