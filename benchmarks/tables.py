"""What the benchmarks share: the machine, medians, Markdown, and the figures of all machines.

python benchmarks/tables.py    # prints the summary of docs/performance.md from the figures
"""

import argparse
import contextlib
import csv
import datetime
import importlib.util
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # this checkout, whatever is installed
FIGURES = ROOT / "docs" / "performance_tables.csv"
COLUMNS = (
    *("date", "processor", "backend", "task", "model", "image_size", "batch", "dtype"),
    *("implementation", "clock", "ms_min", "ms_q1", "ms_median", "ms_q3", "peak_mib"),
    *("first_call_s", "import_s", "build_s", "peer", "ratio", "ratio_q1", "ratio_q3", "versions"),
)


def instructions(flags, environment=os.environ):
    """The widest instructions for products of matrices, or those to which a run was held.

    Two processors of one name can be as far apart as two makes; `ONEDNN_MAX_CPU_ISA` and the flag
    of XLA hold a newer one to the instructions of an older.
    """
    held = environment.get("ONEDNN_MAX_CPU_ISA")
    known = {"amx_tile": "AMX", "avx512_bf16": "AVX-512 with bfloat16", "avx512f": "AVX-512"}
    widest = next((known[flag] for flag in known if flag in flags), "AVX2")
    return f"held to {held}" if held else widest


def describe():
    """Processor, cores that this process may use, memory, version of Python and date."""
    processor, memory = platform.processor() or platform.machine(), None
    with contextlib.suppress(OSError, KeyError):
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        facts = dict(map(str.strip, line.split(":", 1)) for line in lines if ":" in line)
        name = facts["model name"].replace("(R)", "")
        if not re.search(r"\d", name):  # of a virtual machine, which tells less
            name += f" (family {facts['cpu family']}, model {facts['model']})"
        processor = f"{name}, {instructions(facts['flags'].split())}"
    with contextlib.suppress(AttributeError, ValueError, OSError):
        memory = round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1)
    return {
        "processor": processor,
        "cores": len(cores()),
        "memory_gib": memory,
        "python": platform.python_version(),
        "date": f"{datetime.date.today():%Y-%m-%d}",
    }


def machine_line(*versions):
    """Where, with what and when something was measured, in one line."""
    m = describe()
    where = f"{m['processor']}, {m['cores']} cores, {m['memory_gib']} GiB"
    return ", ".join([where, *versions, f"Python {m['python']}", m["date"]]) + "."


def parser(doc):
    """An `argparse` parser that shows the docstring of a script."""
    title, _, text = doc.partition("\n\n")
    raw = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(description=title, epilog=text, formatter_class=raw)


def environment(backend, **variables):
    """The environment variables of a process that computes on a backend."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    usual = {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": path}
    return {**os.environ, **usual, **variables}


def run(script, *arguments, backend, **variables):
    """What a script prints, in a process of its own on one backend."""
    command = [sys.executable, str(script), *arguments]
    return subprocess.check_output(command, env=environment(backend, **variables), text=True)


def installed():
    """The backends that are installed."""
    return list(filter(importlib.util.find_spec, ("jax", "tensorflow", "torch")))


def on_each_backend(script, *arguments, **variables):
    """Runs a script on each installed backend: (backend, what it printed)."""
    for backend in installed():
        yield backend, run(script, *arguments, backend=backend, **variables)


def cores():
    """The numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def peak_memory():
    """Bytes that this process had in memory at most since `reset_peak`; None outside Linux.

    `ru_maxrss` would begin with the peak of the process that started this one.
    """
    with contextlib.suppress(OSError, StopIteration):
        lines = pathlib.Path("/proc/self/status").read_text().splitlines()
        return int(next(x for x in lines if x.startswith("VmHWM:")).split()[1]) * 1024
    return None


def reset_peak():
    """Lets `peak_memory` begin again at what is in memory now."""
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/self/clear_refs").write_text("5")


def summary(values):
    """Least, quartiles and greatest of some numbers."""
    values = sorted(values)
    spread = statistics.quantiles(values, n=4, method="inclusive") if values[1:] else values * 3
    return dict(zip(("min", "low", "median", "high", "max"), (values[0], *spread, values[-1])))


def table(columns, rows):
    """Markdown."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def save(rows, path=FIGURES):
    """Adds rows to the figures, in place of those of the same day, processor and work."""
    path = pathlib.Path(path)
    known = {_key(row): row for row in (read(path) if path.is_file() else ())}
    known |= {_key(row): row for row in rows}
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(known.values())


def read(path=FIGURES):
    """The rows of the figures, every value as text."""
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def _key(row):
    return tuple(str(row[name]) for name in COLUMNS[:10])


def newest(rows, dtype, model="S16", batch="4"):
    """{(processor, task, backend): row}: of a model and batch the fastest of keras_vit that day.

    Figures of several days and machines of one kind are never put beside each other in one row.
    """
    usual = {"model": model, "image_size": "224", "batch": batch, "dtype": dtype}
    rows = [row for row in rows if row["peer"] and usual.items() <= row.items()]
    rows.sort(key=lambda row: (row["date"], -float(row["ratio"])))
    latest = {}
    for row in rows:
        group = row["processor"], row["task"], row["backend"]
        if group not in latest or row["date"] > latest[group]["date"]:
            latest[group] = row
    return latest


def compared(rows, dtype="float32", **work):
    """A Markdown table: for each device and task the backends, the fastest first, beside a peer."""
    columns = "device, task, backend, images/s, as, times as fast as, MiB, its, date".split(", ")
    measured = {_key(row): row for row in rows}
    lines = []
    for (processor, task, backend), row in newest(rows, dtype, **work).items():
        peer = measured[_key({**row, "implementation": row["peer"]})]
        rate = 1e3 * int(row["batch"]) / float(row["ms_median"])
        names = f"`{row['implementation']}`", f"{row['ratio']} `{row['peer']}`"
        memory = row["peak_mib"], peer["peak_mib"]
        lines.append((processor, task, backend, f"{rate:.1f}", *names, *memory, row["date"]))
    return table(columns, sorted(lines, key=lambda cells: (*cells[:2], -float(cells[3]))))


def summaries(rows):
    """The tables of docs/performance.md."""
    short, large = "Policy `mixed_bfloat16`", {"model": "L16", "batch": "128"}
    tables = {"float32": compared(rows), short: compared(rows, "bfloat16")}
    tables[f"{short}, L/16 on a GPU, batches of 128"] = compared(rows, "bfloat16", **large)
    return "\n\n".join(f"{title}:\n\n{table}" for title, table in tables.items())


if __name__ == "__main__":
    print(summaries(read(*sys.argv[1:])))
