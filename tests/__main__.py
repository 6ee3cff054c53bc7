"""Runs the tests once per installed backend: `python -m tests [arguments of pytest]`."""

import importlib.util
import os
import subprocess
import sys
import time

BACKENDS = ("jax", "tensorflow", "torch")


def main():
    installed = [name for name in BACKENDS if importlib.util.find_spec(name)]
    if not installed:
        sys.exit(f"No backend is installed; expected at least one of {BACKENDS}.")
    failed = []
    for backend in installed:
        print(f"== tests on {backend}", flush=True)
        start = time.perf_counter()
        environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
        if backend != installed[0]:  # downloads, catalogue and files are the same on each
            environment["KERAS_VIT_SKIP_ANY_BACKEND"] = "1"
        command = [sys.executable, "-m", "pytest", "-q", *sys.argv[1:]]
        if subprocess.run(command, env=environment, check=False).returncode:
            failed.append(backend)
        print(f"== {backend} took {time.perf_counter() - start:.0f} s", flush=True)
    missing = sorted(set(BACKENDS) - set(installed))
    print(f"== passed on {len(installed) - len(failed)} of {len(installed)} installed backends")
    if missing:
        print(f"== not installed, so not tested: {', '.join(missing)}")
    sys.exit(f"failed on: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
