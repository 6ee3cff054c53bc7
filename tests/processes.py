"""Processes of scripts below `tests`, for what happens to one that is stopped, or to several."""

import os
import subprocess
import sys

from tests.support import BACKEND, ROOT


def environment_with(**variables):
    """The environment of a process, without what starters of several processes set."""
    launchers = ("SLURM_", "KERAS_DISTRIBUTION_", "TF_CONFIG", "JAX_COORDINATOR_", "JAX_NUM_")
    usual = {k: v for k, v in os.environ.items() if not k.startswith(launchers)}
    usual |= {"KERAS_BACKEND": BACKEND, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    return {**usual, "OMP_NUM_THREADS": "1", **variables}


def start(script, *arguments, **environment):
    """The process of a script below `tests`; its output and its errors are one pipe."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.bare", str(ROOT / "tests" / script), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env=environment_with(**environment),
    )


def finish(process, seconds=300):
    """All that it printed, and its code."""
    try:
        printed, _ = process.communicate(timeout=seconds)
    finally:
        process.kill()
    return printed, process.returncode
