"""Runs a study: a finding of the paper, or a question of its readers, as an experiment.

    python studies/run.py --list
    python studies/run.py positions --data-dir DIR [--seeds 10] [--first 0] [--output DIR]
    python studies/run.py positions --quick          (a rehearsal on digits, under three minutes)

DIR holds the four IDX files of Fashion-MNIST (Debian: dataset-fashion-mnist); without it the set is
taken from TFDS. Two runs go on side by side, each on one thread. Each leaves one line in
NAME.jsonl, from which a study that was stopped goes on; then NAME.json and NAME.png tell what was
found. A study is a module of this folder with

    ARMS        {arm: the arguments of its runs}
    run         (lab, seed, **arguments) -> {measure: number, or a list}
    findings    (results) -> a list of `lab.Finding`, the first of which is the headline
    figure      (results, figure) -> None
    USES        names of studies whose runs it reads too (optional)
    SECONDS     of one run on one core, for the estimate before the first run
    PAPER       what the paper has to say, in its figures (optional)
    WITHDRAWN   why no verdict is given (optional)

The protocol is docs/studies/protocol.md. Where an argument `rate` is a tuple, its learning rates
are tried with seeds of their own, and the grid grows by the factor of its first two until the best
by the mean of the measure "held_out" has worse ones on both sides. It serves all other seeds.
"""

import argparse
import ast
import concurrent.futures
import datetime
import functools
import importlib
import importlib.metadata
import json
import multiprocessing
import os
import pathlib
import platform
import signal
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[0] = str(HERE.parent)  # for `studies` and the checkout; this folder has names like `data`
RESULTS = HERE / "results"
NOT_STUDIES = ("run", "lab", "pages")
TUNING = (1000, 1001)  # the seeds that choose learning rates, on held-out images
ONE_THREAD = {
    "KERAS_BACKEND": "jax",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}


def names():
    """{name: question} of every study: the first line of its docstring."""
    files = [f for f in sorted(HERE.glob("*.py")) if f.stem not in NOT_STUDIES]
    texts = {file.stem: file.read_text(encoding="utf-8") for file in files}
    return {
        name: ast.get_docstring(ast.parse(text)).splitlines()[0]
        for name, text in texts.items()
        if "\ndef findings(" in text
    }


def folder(output, quick):
    """Where results go: a rehearsal's apart, or its runs would count as those of the study."""
    if not quick:
        return output or RESULTS
    return (output or HERE.parent / "output" / "studies") / "rehearsals"


def planned(arms, seeds, rows, tuning=TUNING):
    """The (arm, seed, rate) of runs that are still to do and whose learning rate is known."""
    done = {(row["arm"], row["seed"], row["rate"]) for row in rows}
    todo = []
    for arm, arguments in arms.items():
        rate = arguments.get("rate")
        if isinstance(rate, tuple):
            rate, missing = chosen(arm, rate, rows, tuning)
            todo += missing
        if not todo or todo[-1][0] != arm:
            todo += [(arm, seed, rate) for seed in seeds]
    return [run for run in todo if run not in done]


def chosen(arm, grid, rows, tuning=TUNING):
    """(the best learning rate, the tuning runs that are missing before it is known).

    Without tuning seeds, in a rehearsal, the middle of the grid.
    """
    if not tuning:
        return grid[len(grid) // 2], []
    reached = {(r["rate"], r["seed"]): r["held_out"] for r in rows if r["arm"] == arm}
    factor, rates = grid[1] / grid[0], list(grid)
    while True:
        missing = [(arm, s, rate) for rate in rates for s in tuning if (rate, s) not in reached]
        if missing:
            return None, missing
        best = max(rates, key=lambda rate: sum(reached[rate, seed] for seed in tuning))
        if best == rates[0]:
            rates.insert(0, float(f"{rates[0] / factor:.3g}"))
        elif best == rates[-1]:
            rates.append(float(f"{rates[-1] * factor:.3g}"))
        else:
            return best, []


def kept(arms, seeds, rows, tuning=TUNING):
    """The rows that count: of each arm those with its own or its chosen learning rate."""
    result = []
    for arm, arguments in arms.items():
        rate = arguments.get("rate")
        rate = chosen(arm, rate, rows, tuning)[0] if isinstance(rate, tuple) else rate
        result += [r for r in rows if (r["arm"], r["rate"]) == (arm, rate) and r["seed"] in seeds]
    return result


def execute(name, arm, seed, rate, lab_arguments):
    """One run, in a process of its own; returns its row."""
    core = (multiprocessing.current_process()._identity or (1,))[0] - 1
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[core % len(cores)]})
    from studies.lab import PROTOCOL, Lab

    study = importlib.import_module(f"studies.{name}")
    arguments = {**study.ARMS[arm], **({} if rate is None else {"rate": rate})}
    start = time.process_time()
    measures = study.run(Lab(**lab_arguments), seed, **arguments)
    seconds = round(time.process_time() - start, 1)
    if seed in TUNING:  # which never see a test image
        measures = {name: measures[name] for name in ("held_out", "tuned") if name in measures}
    row = {"protocol": PROTOCOL, "arm": arm, "seed": seed, "rate": rate, **measures}
    return row | {"core_seconds": seconds} | {"versions": versions(), "machine": processor()}


@functools.cache
def versions():
    import keras

    backend = keras.backend.backend()
    packages = ("keras3-vit", "keras", backend)
    return {name: importlib.metadata.version(name) for name in packages}


def run_all(name, study, seeds, file, lab_arguments, tuning, workers):
    """Does the runs that are missing in `file`, side by side, and returns all its rows."""
    from studies.lab import read

    context = multiprocessing.get_context("spawn")
    rows, begin = read(file), time.perf_counter()
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=context) as pool:
        while todo := planned(study.ARMS, seeds, rows, tuning):
            print(estimate(study, seeds, rows, tuning), flush=True)
            waiting = {pool.submit(execute, name, *run, lab_arguments): run for run in todo}
            try:
                for count, future in enumerate(concurrent.futures.as_completed(waiting), 1):
                    rows.append(future.result())
                    with file.open("a", encoding="utf-8") as lines:
                        lines.write(json.dumps(rows[-1]) + "\n")
                    minutes = (time.perf_counter() - begin) / 60
                    arm, seed, rate = waiting[future]
                    at = f"{arm}, seed {seed}" + (f", rate {rate}" if rate else "")
                    print(f"{minutes:6.1f} min  {count}/{len(todo)}  {at}", flush=True)
                    # A page must not take a study that goes on for one that has ended.
                    report = {"study": name, **progress(study, seeds, rows, tuning)}
                    file.with_suffix(".json").write_text(json.dumps(report) + "\n", "utf-8")
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for process in multiprocessing.active_children():
                    process.terminate()  # which would end its run first
                raise
    return rows


def progress(study, seeds, rows, tuning):
    """How many runs are done, and of how many at least."""
    left = len(planned(study.ARMS, seeds, rows, tuning))
    for arm, arguments in study.ARMS.items():  # those that wait for a learning rate
        if isinstance(arguments.get("rate"), tuple):
            left += len(seeds) * (chosen(arm, arguments["rate"], rows, tuning)[0] is None)
    return {"done": len(rows), "of": len(rows) + left}


def estimate(study, seeds, rows, tuning):
    """How many runs are done, and the core-hours of the others."""
    done, of = progress(study, seeds, rows, tuning).values()
    spent = [row["core_seconds"] for row in rows]
    each = sum(spent) / len(spent) if spent else getattr(study, "SECONDS", 30)
    return f"{done} of {of} runs done; {(of - done) * each / 3600:.2f} core-hours left"


def processor():
    if pathlib.Path("/proc/cpuinfo").exists():
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(": ")[1].strip()
    return platform.processor() or platform.machine()


def conclude(report, study, rows, used, output):
    """Writes NAME.json and NAME.png, and prints the findings."""
    from matplotlib.figure import Figure

    from studies.lab import Results

    results = Results([*used, *rows])
    findings = study.findings(results)
    own = Results(rows) if rows else results
    name = report["study"]
    report |= {
        "date": datetime.date.today().isoformat(),
        "machine": " and ".join(sorted({row["machine"] for row in [*rows, *used]})),
        "versions": versions(),
        "seeds": results.seeds,
        "findings": [finding.as_dict() for finding in findings],
        "arms": own.measures(),
    }
    (output / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    study.figure(results, figure)
    figure.savefig(output / f"{name}.png", dpi=110)
    print(*findings, sep="\n")
    print(f"{report['core_minutes']} core-minutes; see {output / name}.png")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("name", nargs="?", help="of the study")
    add("--list", action="store_true", help="print every study and its question, and end")
    add("--quick", action="store_true", help="a rehearsal: two seeds, few updates, digits")
    add("--estimate", action="store_true", help="print the core-hours that are left, and end")
    add("--seeds", type=int, help="draws of weights, images and classes (default: 10)")
    add("--first", type=int, default=0, help="the first seed (default: 0)")
    add("--workers", type=int, default=2, help="runs side by side (default: 2)")
    add("--data-dir", help="where the IDX files of Fashion-MNIST lie")
    add(
        "--output",
        type=pathlib.Path,
        help="folder of the results (default: studies/results); those of a rehearsal go into a "
        "folder `rehearsals` in it (default: in output/studies)",
    )
    args = parser.parse_args()
    known = names()
    if args.list:
        width = max(map(len, known))
        return print(*(f"{name:{width}}  {known[name]}" for name in known), sep="\n")
    if args.name not in known:
        parser.error(f"Unknown study. Received: {args.name!r}; expected one of {list(known)}.")
    if args.seeds is not None and args.seeds < 1:
        parser.error(f"--seeds must be at least 1. Received: {args.seeds}.")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    for variable, value in ONE_THREAD.items():  # before anything imports Keras
        os.environ.setdefault(variable, value)
    output = folder(args.output, args.quick)
    output.mkdir(parents=True, exist_ok=True)
    # Runs of several seeds are the same program: it is compiled once.
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(output / "checkpoints" / "jax"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
    lab = {"quick": args.quick, "data_dir": args.data_dir, "cache": output / "checkpoints"}
    study = importlib.import_module(f"studies.{args.name}")
    import filelock

    from studies.lab import read

    count = args.seeds or (2 if args.quick else getattr(study, "SEEDS", 10))
    seeds, tuning = range(args.first, args.first + count), () if args.quick else TUNING
    used = []
    for other in getattr(study, "USES", ()):
        module = importlib.import_module(f"studies.{other}")
        others = read(output / f"{other}.jsonl")
        if planned(module.ARMS, seeds, others, tuning):
            command = f"python studies/run.py {other}{' --quick' if args.quick else ''}"
            return (
                f"{args.name!r} reads the runs of {other!r}, of which some are missing: {command}"
            )
        used += kept(module.ARMS, seeds, others, tuning)
    file = output / f"{args.name}.jsonl"
    if args.estimate:
        return print(estimate(study, seeds, read(file), tuning))
    try:
        with filelock.FileLock(output / f"{args.name}.lock", timeout=0):
            rows = run_all(args.name, study, seeds, file, lab, tuning, args.workers)
    except filelock.Timeout:
        return f"The study {args.name!r} is running already, with its results in {output}."
    minutes = round(sum(row["core_seconds"] for row in rows) / 60, 1)  # of every rate tried
    report = {"study": args.name, "question": known[args.name], "core_minutes": minutes}
    conclude(report, study, kept(study.ARMS, seeds, rows, tuning), used, output)


if __name__ == "__main__":
    sys.exit(main())
