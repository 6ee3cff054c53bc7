"""Runs the tests once per installed backend: `python -m tests [arguments of pytest]`.

`python -m tests -m slow` runs what is marked slow, which the usual run leaves out, and
`python -m tests --backend jax` what runs on that backend alone. Each backend
computes on one thread in two processes: the tensors of the tests are tiny, so that more threads
only wait for each other.
"""

import argparse
import importlib.util
import os
import subprocess
import sys
import time

# The first one also runs what is the same on each; PyTorch has nothing to compile.
BACKENDS = ("torch", "jax", "tensorflow")
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}
IN_TWO = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")


def main():
    parser = argparse.ArgumentParser(prog="python -m tests", allow_abbrev=False, add_help=False)
    parser.add_argument("--backend", action="append", choices=BACKENDS)
    chosen, others = parser.parse_known_args()
    wanted = [name for name in BACKENDS if name in (chosen.backend or BACKENDS)]
    installed = [name for name in wanted if importlib.util.find_spec(name)]
    if not installed:
        sys.exit(f"No backend is installed; expected at least one of {wanted}.")
    failed = []
    for backend in installed:
        print(f"== tests on {backend}", flush=True)
        start = time.perf_counter()
        environment = {**ONE_THREAD, **os.environ, "KERAS_BACKEND": backend}
        if backend != installed[0]:  # downloads, catalogue and files
            environment["KERAS_VIT_SKIP_ANY_BACKEND"] = "1"
        command = [sys.executable, "-m", "pytest", "-q", *IN_TWO, *others]
        if subprocess.run(command, env=environment, check=False).returncode:
            failed.append(backend)
        print(f"== {backend} took {time.perf_counter() - start:.0f} s", flush=True)
    missing = sorted(set(wanted) - set(installed))
    print(f"== passed on {len(installed) - len(failed)} of {len(installed)} installed backends")
    if missing:
        print(f"== not installed, so not tested: {', '.join(missing)}")
    sys.exit(f"failed on: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
