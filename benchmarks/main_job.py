"""Runs `tutorials/train.py` on every installed backend and prints the table of the README.

    python benchmarks/main_job.py [--seeds 3]

One run after the other, each in its own process; nothing else should keep the machine busy.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import tables

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "tutorials" / "train.py"


def run(backend, seed):
    """What the run wrote to metrics.json."""
    with tempfile.TemporaryDirectory() as output:
        command = [sys.executable, str(SCRIPT), "--seed", str(seed), "--output", output]
        environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
        subprocess.run(command, env=environment, check=True, capture_output=True)
        return json.loads((pathlib.Path(output) / "metrics.json").read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seeds", type=int, default=3, help="runs per backend (default 3)")
    seeds = range(parser.parse_args().seeds)
    print("| backend | test accuracy by seed | seconds of training | seconds in all |")
    print("|---|---|---|---|")
    for backend in filter(importlib.util.find_spec, ("jax", "tensorflow", "torch")):
        runs = [run(backend, seed) for seed in seeds]
        accuracy = ", ".join(f"{100 * one['test_accuracy']:.1f}" for one in runs)
        spans = [
            " to ".join(sorted({f"{min(seconds):.0f}", f"{max(seconds):.0f}"}, key=int))
            for key in ("seconds_training", "seconds_in_all")
            for seconds in [[one[key] for one in runs]]
        ]
        print(f"| {backend} | {accuracy} % | {spans[0]} | {spans[1]} |", flush=True)
    machine = tables.describe()
    print(f"\n{machine['processor']}, {machine['cores']} cores; {machine['date']}")


if __name__ == "__main__":
    main()
