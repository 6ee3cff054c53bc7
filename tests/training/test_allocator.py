"""Freed memory stays with a process that asks for it."""

import subprocess
import sys

import pytest

from keras_vit.training import allocator

SCRIPT = """
import resource, runpy, sys
import numpy as np

if sys.argv[1] == "keep":
    assert runpy.run_path(sys.argv[2])["keep_memory"]()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def step():
    np.ones(64 << 17).sum()  # 64 MiB, taken and given back

step()
before = faults()
for _ in range(5):
    step()
print(faults() - before)
"""


@pytest.mark.any_backend
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of the GNU C library")
def test_no_step_asks_the_system_for_pages_again():
    command = [sys.executable, "-c", SCRIPT]
    kept, returned = (
        int(subprocess.check_output([*command, kind, allocator.__file__], text=True))
        for kind in ("keep", "return")
    )
    assert kept < 20 < returned  # pages may be of 4 KiB or of 2 MiB


@pytest.mark.any_backend
def test_elsewhere_nothing_is_done(monkeypatch):
    monkeypatch.setattr(allocator.sys, "platform", "darwin")
    assert not allocator.keep_memory()
