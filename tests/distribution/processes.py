"""Starts `case.py` on virtual devices or in several processes, and reads what it left."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import numpy as np

from tests.support import BACKEND, ROOT

CASE = ROOT / "tests" / "distribution" / "case.py"
SECONDS = 200  # that no run may take


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def start(output, options=None, devices=1, script=CASE, **environment):
    """One process of a run, whose backend sees so many CPU devices."""
    flags = f"--xla_force_host_platform_device_count={devices}"
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "SLURM_"))}
    return subprocess.Popen(
        [sys.executable, str(script), str(output), json.dumps(options or {})],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env={
            **clean,
            "KERAS_BACKEND": BACKEND,
            "PYTHONPATH": str(ROOT),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "XLA_FLAGS": flags,
            "CPUS": str(devices),
            "OMP_NUM_THREADS": "1",
            "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
            **environment,
        },
    )


def finish(process):
    """All that it printed, and its code."""
    try:
        printed, _ = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    return printed, process.returncode


def result(output, process=0):
    with np.load(pathlib.Path(output) / f"process_{process}.npz") as file:
        return {name: file[name] for name in file.files}


def trained(output, options=None, devices=1, **environment):
    """What a run in one process comes to."""
    printed, code = finish(start(output, options, devices, **environment))
    assert code == 0, printed
    return result(output)


def all_trained(output, options, devices=1, **environment):
    """What several runs in a row in one process come to; each must come to its end."""
    printed, code = finish(start(output, options, devices, **environment))
    assert code == 0 and "ValueError" not in printed, printed
    return [result(pathlib.Path(output) / str(i)) for i in range(len(options))]


def all_refused(output, options, devices=1, **environment):
    """The errors of several runs in a row in one process, all before the first update."""
    printed, _ = finish(start(output, options, devices, **environment))
    assert "batch 0" not in printed, printed
    errors = [text for text in printed.split("run ") if "ValueError: " in text]
    assert len(errors) == len(options), printed
    assert all("Received: " in error for error in errors), printed
    return errors


def assert_agree(one, many, tolerance=2e-5):
    """Every loss, metric, weight and prediction within `tolerance`."""
    assert one.keys() == many.keys()
    assert any(name.startswith("weight/") for name in one)
    for name, value in one.items():
        if value.dtype.kind == "f" and not name.startswith("share/"):
            np.testing.assert_allclose(many[name], value, rtol=0, atol=tolerance, err_msg=name)
