"""A checkpoint of the authors' as a dict to change, and a way to write what became of it."""

import numpy as np
import pytest

from tests.support import ORACLES, read_arrays


@pytest.fixture
def arrays():
    return read_arrays(ORACLES / "flax_vit" / "token_p8" / "checkpoint.npz")


@pytest.fixture
def save(tmp_path):
    def write(arrays, name="other.npz"):
        np.savez(tmp_path / name, **arrays)
        return tmp_path / name

    return write
