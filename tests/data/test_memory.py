"""What a pipeline does to the memory of the process around it."""

import subprocess
import sys

import pytest

from tests.data.pipeline_cases import class_folders

pytestmark = [
    pytest.mark.any_backend,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of the GNU C library"),
]

SCRIPT = """
import resource, sys
import numpy as np
from keras_vit.data import load
from tests.data.pipeline_cases import RANDOM, recipe

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def step():
    np.ones(8 << 17).sum()  # 8 MiB, taken and given back

batches = iter(load(sys.argv[1], recipe(4, RANDOM), "train", engine="tensorflow"))
next(batches)
np.ones(31 << 17)  # glibc keeps up to 62 MiB after a block of 31 MiB was freed
step()
before = faults()
for _ in range(20):
    step()
print(faults() - before)
"""


def test_the_process_keeps_what_it_frees_beside_tensorflows_threads(tmp_path):
    """As it does without them: PyTorch's activations would be returned and taken at every layer."""
    pytest.importorskip("tensorflow")
    class_folders(tmp_path)
    faults = subprocess.check_output([sys.executable, "-c", SCRIPT, tmp_path], text=True)
    assert int(faults.split()[-1]) < 2048  # of 4 KiB: one of the twenty blocks
