"""`tutorials/train.py --distribute`: one writes, and its file is tested anew."""

import json
import os
import subprocess
import sys

import pytest

from tests.distribution.processes import finish, free_addresses, free_port, variables
from tests.support import BACKEND, ROOT


@pytest.mark.slow
@pytest.mark.skipif(BACKEND == "tensorflow", reason="has one CPU unless a program says otherwise")
def test_the_main_job_on_two_devices(tmp_path):
    command = [sys.executable]
    if BACKEND == "torch":
        ports = f"--master-port={free_port()}"
        command += ["-m", "torch.distributed.run", "--nproc-per-node=2", ports]
    command += [str(ROOT / "tutorials" / "train.py"), "--distribute", "data_parallel"]
    command += ["--epochs", "2", "--batch-size", "256", "--output", str(tmp_path)]
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=280,
        env={
            **os.environ,
            "KERAS_BACKEND": BACKEND,
            "OMP_NUM_THREADS": "1",
            "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        },
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["test_accuracy"] == metrics["test_accuracy_reloaded"]
    assert ended.stdout.count("Test accuracy") == 1


@pytest.mark.slow
@pytest.mark.skipif(BACKEND == "torch", reason="is what torchrun does above")
def test_the_main_job_in_two_processes(tmp_path):
    """With the seeds, recipe and data that come before `setup`; one process writes and tests."""
    command = [sys.executable, str(ROOT / "tutorials" / "train.py"), "--steps", "4"]
    command += ["--distribute", "data_parallel", "--output", str(tmp_path)]
    usual = {**os.environ, "KERAS_BACKEND": BACKEND, "OMP_NUM_THREADS": "1"}
    addresses = free_addresses(2)
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    both = [
        subprocess.Popen(command, env={**usual, **variables(i, addresses)}, **options)
        for i in range(2)
    ]
    (first, *codes), (second, code) = (finish(process) for process in both)
    assert [*codes, code] == [0, 0], first + second
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["test_accuracy"] == metrics["test_accuracy_reloaded"]
    assert first.count("Test accuracy") == 1 and "Test accuracy" not in second
