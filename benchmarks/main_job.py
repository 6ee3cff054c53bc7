"""Runs `tutorials/train.py` on every installed backend and prints the table of the README.

    python benchmarks/main_job.py [--seeds 3]

One run after the other, each in its own process; nothing else should keep the machine busy.
"""

import json
import pathlib
import tempfile

import tables


def run(backend, seed):
    """What the run wrote to metrics.json."""
    script = tables.ROOT / "tutorials" / "train.py"
    with tempfile.TemporaryDirectory() as output:
        tables.run(script, "--seed", str(seed), "--output", output, backend=backend)
        return json.loads((pathlib.Path(output) / "metrics.json").read_text())


def main():
    parser = tables.parser(__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="runs per backend (default 3)")
    seeds = range(parser.parse_args().seeds)
    print("| backend | test accuracy by seed | seconds of training | seconds in all |")
    print("|---|---|---|---|")
    for backend in tables.installed():
        runs = [run(backend, seed) for seed in seeds]
        accuracy = ", ".join(f"{100 * one['test_accuracy']:.1f}" for one in runs)
        spans = []
        for key in ("seconds_training", "seconds_in_all"):
            seconds = {round(one[key]) for one in runs}
            spans.append(" to ".join(map(str, sorted({min(seconds), max(seconds)}))))
        print(f"| {backend} | {accuracy} % | {spans[0]} | {spans[1]} |", flush=True)
    print("\n" + tables.machine_line())


if __name__ == "__main__":
    main()
