"""The process of one implementation, from both sides: `Worker` starts it, `main` runs in it.

It prepares its step once, then times as many steps as each line of its input asks for, and answers
with lines of JSON. What libraries print goes to its standard error.
"""

import contextlib
import importlib
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import tables
from peers import PEERS, Settings

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")
# Several processes share a device in turns, so that none may take its memory in advance.
SHARED = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
NO_MEMORY = ("out of memory", "resource_exhausted", "outofmemory", "bad_alloc", "can't allocate")


class WorkerError(Exception):
    """An implementation that does not run; the text says why, in one line."""


class Worker:
    """A process that prepares one implementation, and times steps when it is asked.

    Args:
        settings: `Settings`.
        python: its interpreter.
        cores: numbers of the cores that it may use; all where this is empty.
        timeout: seconds to wait for an answer.

    Attributes:
        report: what it said when it was ready: seconds, parameters, versions, accelerator.
        turns: its answers since: milliseconds of each step by `"wall"` and `"cpu"`, bytes.
    """

    def __init__(self, settings, python=sys.executable, cores=(), timeout=900):
        self.settings, self.turns, self.timeout = settings, [], timeout
        self._command = [python, __file__, settings.to_json(), json.dumps(cores)]
        threads = {name: str(len(cores)) for name in THREADS} if cores else {}
        self._environment = tables.environment(settings.backend, **threads, **SHARED)
        self._process = None

    def turn(self, steps):
        """Adds the times of some steps to `turns`; starts the process if it does not run."""
        if self._process is None:
            self._errors = tempfile.TemporaryFile("w+", errors="replace")
            options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            options |= {"stderr": self._errors, "env": self._environment}
            options |= {"start_new_session": True}  # so that `end` ends its children too
            self._process = subprocess.Popen(self._command, **options)
            self.report = self._answer()
        with contextlib.suppress(BrokenPipeError):
            print(steps, file=self._process.stdin, flush=True)
        self.turns.append(self._answer())

    def _answer(self):
        timer = threading.Timer(self.timeout, self._kill)
        timer.start()
        line = self._process.stdout.readline()
        timer.cancel()
        answer = json.loads(line) if line else {"error": self._last_words()}
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def _last_words(self):
        code = self._process.wait()
        self._errors.seek(0)
        printed = self._errors.read().strip() or "it printed nothing"
        name = signal.Signals(-code).name if code < 0 else code
        last = _in_one_line(printed, printed.splitlines()[-1])
        return f"died ({name}; --timeout is {self.timeout:g} s): {last}"

    def end(self):
        """Ends the process, and whatever it started."""
        if self._process is not None:
            self._kill()
            self._process.wait()
            self._process = None

    def _kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _in_one_line(text, line=None):
    if any(sign in text.lower() for sign in NO_MEMORY):
        return "does not fit in memory"
    return (line or text.splitlines()[0])[:300]


def serve(settings, cores):
    """What a worker does: prepares, tells how it went, and answers each line of its input."""
    if cores:
        os.sched_setaffinity(0, cores)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print
    say = lambda answer: print(json.dumps(answer), file=answers, flush=True)  # noqa: E731
    try:
        step, wait, report = prepare(settings)
        say(report)
        for line in sys.stdin:
            say(time_steps(step, wait, int(line), settings))
    except ImportError as error:
        install = PEERS[settings.name].install
        say({"error": f"not installed: {error} (pip install {install})"})
    except Exception as error:
        say({"error": _in_one_line(f"{type(error).__name__}: {error}")})


def prepare(s):
    """Imports, builds, and makes three steps; returns `step`, `wait` and report."""
    framework = PEERS[s.name].framework
    start = time.perf_counter()
    importlib.import_module({"flax": "flax.linen"}.get(framework, framework))
    importlib.import_module(PEERS[s.name].module)
    imported = time.perf_counter()
    from steps import make_step, set_precision, set_up_keras

    if framework == "keras":
        set_up_keras(s)
    if s.dtype == "float32" and device(s.backend)["accelerator"]:
        set_precision(s.backend, "tf32" if s.tf32 == "true" else "float32")
    tables.reset_peak()
    before = tables.peak_memory()
    model = PEERS[s.name].build(s)
    built = time.perf_counter()
    step, wait, parameters = make_step(model, s)
    made = time.perf_counter()
    step()
    wait()
    report = {"first_call_s": time.perf_counter() - made, "parameters": int(parameters)}
    report |= {"memory_before": before, "import_s": imported - start, "build_s": built - imported}
    for _ in range(2):
        step()
        wait()
    tables.reset_peak()
    return step, wait, {**report, **device(s.backend), "versions": _versions(s)}


def _versions(s):
    versions = {}
    for package in (s.backend, "keras", "flax", PEERS[s.name].install.split()[0]):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    framework = PEERS[s.name].framework
    return {k: v for k, v in versions.items() if k not in ("keras", "flax") or k == framework}


def time_steps(step, wait, steps, s):
    """Milliseconds of each step; where data are resident they are not waited for one by one."""
    times = {"wall": [], "cpu": []}
    group = steps if s.resident else 1
    for _ in range(steps // group):
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(group):
            step()
        wait()
        times["wall"].append((time.perf_counter() - wall) * 1e3 / group)
        times["cpu"].append((time.process_time() - cpu) * 1e3 / group)
    return {**times, "memory": device(s.backend)["memory"] or tables.peak_memory()}


def device(backend):
    """Name of the accelerator, and bytes in use there at most; None on a CPU."""
    name = memory = None
    if backend == "torch":
        import torch

        if torch.cuda.is_available():
            name, memory = torch.cuda.get_device_name(), torch.cuda.max_memory_allocated()
    elif backend == "jax":
        import jax

        first = jax.local_devices()[0]
        if first.platform != "cpu":
            name, memory = first.device_kind, (first.memory_stats() or {}).get("peak_bytes_in_use")
    else:
        import tensorflow as tf

        for gpu in tf.config.list_physical_devices("GPU")[:1]:
            name = tf.config.experimental.get_device_details(gpu).get("device_name", "GPU")
            memory = tf.config.experimental.get_memory_info("GPU:0")["peak"]
    return {"accelerator": name, "memory": memory}


if __name__ == "__main__":
    serve(Settings.from_json(sys.argv[1]), json.loads(sys.argv[2]))
