"""The faults of others: each is still there, or what works round it may go."""

import random
import sys

import numpy as np
import pytest

from keras_vit import workarounds
from tests.support import BACKEND, run_in_fresh_process

NO_TENSORFLOW = pytest.mark.skipif(BACKEND == "tensorflow", reason="has TensorFlow anyway")


def test_a_seed_repeats_what_python_and_numpy_draw():
    drawn = []
    for _ in range(2):
        workarounds.set_random_seed(3)
        drawn.append((random.random(), np.random.normal()))
    assert drawn[0] == drawn[1]


@pytest.mark.slow
@NO_TENSORFLOW
def test_keras_still_imports_tensorflow_for_a_seed():
    pytest.importorskip("tensorflow")
    run_in_fresh_process("""
import sys
import keras
from keras_vit.workarounds import set_random_seed
set_random_seed(0)
assert "tensorflow" not in sys.modules
keras.utils.set_random_seed(0)
assert "tensorflow" in sys.modules, "keras_vit.workarounds.set_random_seed may go"
""")


@pytest.mark.any_backend
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of the GNU C library")
def test_memory_is_kept():
    """A block of 64 MiB that is freed stays in the process, which by itself gives it back."""
    run_in_fresh_process("""
import ctypes, pathlib
from keras_vit.workarounds import keep_memory

def resident():
    pages = pathlib.Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * 4096

def after_a_block():
    before, libc = resident(), ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    block = libc.malloc(2**26)
    ctypes.memset(block, 1, 2**26)
    libc.free(block)
    return resident() - before

assert after_a_block() < 2**24
assert keep_memory()
assert after_a_block() > 2**25
""")
