"""The processes of a speed benchmark, seen from the one that starts them.

All live at once and take turns, so that whatever slows the machine down slows all of them; nobody
computes outside of a turn. They end with whoever started them.
"""

import contextlib
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import time

import machine

HERE = pathlib.Path(__file__).resolve().parent
OUT_OF_MEMORY = ("out of memory", "outofmemory", "resource_exhausted", "resourceexhausted", "oom")
OUT_OF_MEMORY += ("memoryerror", "can't allocate", "bad_alloc", "failed to allocate")


class WorkerError(Exception):
    """An implementation that does not run; the text says why, in one line.

    Attributes:
        missing: whether it is not installed.
        memory: whether memory did not suffice.
    """

    def __init__(self, text, missing=False, memory=False):
        super().__init__(text)
        self.missing, self.memory = missing, memory


class Worker:
    """A process that times one implementation.

    Attributes:
        settings: what it does.
        facts: what it said about its preparation: seconds, parameters, versions, memory.
        turns: its answers so far.
    """

    def __init__(self, settings, python=sys.executable, cores=(), timeout=900, memory_limit=None):
        """Starts it; `ready` waits until it is prepared.

        Args:
            settings: `Settings`.
            python: interpreter, whose packages are found.
            cores: what it may compute on; all where this is empty.
            timeout: seconds to wait for an answer.
            memory_limit: bytes, beyond which it is ended.
        """
        self.settings, self.timeout, self.memory_limit = settings, timeout, memory_limit
        self.facts, self.turns, self._received = {}, [], b""
        self._errors = tempfile.TemporaryFile()
        command = [python, str(HERE / "worker.py"), settings.to_json(), ",".join(map(str, cores))]
        self._start = time.perf_counter()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=_environment(settings.backend, len(cores)),
            start_new_session=True,
        )

    @property
    def label(self):
        return self.settings.label

    def ready(self):
        """Waits for the preparation; returns this worker.

        Raises:
            WorkerError: it failed.
        """
        self.facts = self._answer()
        self.facts["until_ready_s"] = time.perf_counter() - self._start
        return self

    def turn(self, steps):
        """Lets it make some steps; the answer is added to `turns`.

        Raises:
            WorkerError: it failed.
        """
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps({"steps": steps}).encode() + b"\n")
            self.process.stdin.flush()
        self.turns.append(self._answer())
        return self.turns[-1]

    def _answer(self):
        deadline = time.monotonic() + self.timeout
        while b"\n" not in self._received:
            if select.select([self.process.stdout], [], [], 0.05)[0]:
                chunk = os.read(self.process.stdout.fileno(), 1 << 16)
                if not chunk:
                    raise self._died()
                self._received += chunk
            self._check_limits(deadline)
        line, _, self._received = self._received.partition(b"\n")
        answer = json.loads(line)
        if "missing" in answer:
            raise WorkerError(answer["missing"], missing=True)
        if "error" in answer:
            raise WorkerError(answer["error"], memory=_is_memory(answer["error"] + answer["whole"]))
        return answer

    def _check_limits(self, deadline):
        if time.monotonic() > deadline:
            self.end()
            raise WorkerError(f"gave no answer in {self.timeout:g} s; --timeout gives it more")
        used = machine.memory("VmRSS", self.process.pid) if self.memory_limit else None
        if used and used > self.memory_limit:
            self.end()
            limit = self.memory_limit / 2**30
            raise WorkerError(f"needs more than {limit:.1f} GiB of memory", memory=True)

    def _died(self):
        code = self.process.wait()
        with contextlib.suppress(ValueError):
            code = signal.Signals(-code).name if code < 0 else code
        text = self.errors()
        lines = [line.strip() for line in text.splitlines() if line.strip()] or ["it said nothing"]
        memory = code == "SIGKILL" or _is_memory(text)
        return WorkerError(f"died ({code}): {lines[-1][:300]}", memory=memory)

    def errors(self):
        """The end of what it wrote to its standard error."""
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - 20_000))
        return self._errors.read().decode(errors="replace")

    def end(self):
        """Ends the process, and whatever it started, at once."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()


def _is_memory(text):
    return any(sign in text.lower() for sign in OUT_OF_MEMORY)


def _environment(backend, threads):
    path = [str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        **(machine.thread_environment(threads) if threads else {}),
        "KERAS_BACKEND": backend,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
    }


class Pool:
    """Several workers; as a context manager, which ends them all whatever happens."""

    def __init__(self, say=print):
        self.workers, self.failed, self.say = [], {}, say

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for worker in self.workers:
            worker.end()

    def start(self, settings, **options):
        """Starts a worker and waits for it, alone; one that fails is named and left out."""
        worker = Worker(settings, **options)
        self.workers.append(worker)
        try:
            worker.ready()
        except WorkerError as error:
            self._leave_out(worker, error)
            return None
        self.say(f"ready: {worker.label}, {worker.facts['until_ready_s']:.1f} s")
        return worker

    def take_turns(self, turns, steps):
        """Every worker makes `steps` steps per turn; every other turn goes backwards."""
        for turn in range(turns):
            order = self.workers if turn % 2 == 0 else self.workers[::-1]
            for worker in list(order):
                try:
                    worker.turn(steps)
                except WorkerError as error:
                    self._leave_out(worker, error)

    def _leave_out(self, worker, error):
        worker.end()
        self.workers.remove(worker)
        self.failed[worker.label] = str(error)
        self.say(f"{worker.label}: {error}")


def run_once(settings, steps, turns=1, **options):
    """Facts and the answers of a process that lives for a few turns alone.

    Raises:
        WorkerError: it failed.
    """
    worker = Worker(settings, **options)
    try:
        return worker.ready().facts, [worker.turn(steps) for _ in range(turns)]
    finally:
        worker.end()
