"""The process of one implementation: prepares its step once, then times steps when it is asked.

Started by `pool.Worker`, not by hand. It takes `Settings` as its argument and lines of JSON from
its standard input; it answers each with a line of JSON. What libraries print goes to its standard
error.
"""

import contextlib
import importlib.metadata
import json
import os
import sys
import time

import machine
from peers import PEERS, why_missing
from settings import Settings

PRODUCTS = "products"  # the name under which the products of matrices are timed
BACKEND_PACKAGES = {
    "torch": ("torch",),
    "tensorflow": ("tensorflow", "tensorflow_cpu"),
    "jax": ("jax",),
}


def prepare(s):
    """Imports, builds, makes the first step and the warm-up; a function for turns, and facts."""
    if s.name == PRODUCTS:
        from products import make_products

        turn = make_products(s)
        return lambda steps: turn(), {"accelerator": machine.accelerator(s.backend)}
    facts, clock = {}, _Clock()
    PEERS[s.name].load()
    facts["import_s"] = clock.lap()
    model = _build(s)
    facts["build_s"] = clock.lap()
    from jobs import check, make_job

    job = make_job(model, s)
    clock.lap()
    job.step()
    job.wait()
    facts["first_s"] = clock.lap()
    for _ in range(s.warmup):
        job.step()
        job.wait()
    facts |= {"parameters": int(job.parameters), "versions": _versions(s)}
    facts |= {"peak_memory": machine.memory(), "accelerator": machine.accelerator(s.backend)}
    check(job, s)
    machine.reset_peak()
    return lambda steps: time_steps(job, steps, s), facts


def _build(s):
    peer = PEERS[s.name]
    if peer.framework == "keras":
        from keras_jobs import prepare_keras

        prepare_keras(s)
    return peer.build(s)


class _Clock:
    """Seconds since the last lap."""

    def __init__(self):
        self.last = time.perf_counter()

    def lap(self):
        before, self.last = self.last, time.perf_counter()
        return self.last - before


def _versions(s):
    """Of the backend, of Keras or Flax, and of the library itself."""
    peer = PEERS[s.name]
    packages = [*BACKEND_PACKAGES[s.backend], peer.install.split()[0]]
    packages += [peer.framework] if peer.framework != "torch" else []
    found = {}
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def time_steps(job, steps, s):
    """Milliseconds of each step by the wall clock and of this process's CPU time.

    Where the data are resident, steps are not waited for one by one: each counts the mean.
    """
    wall, cpu = [], []
    group = steps if s.resident else 1
    for _ in range(steps // group):
        cpu_start, start = time.process_time(), time.perf_counter()
        for _ in range(group):
            job.step()
        job.wait()
        wall += [(time.perf_counter() - start) * 1e3 / group] * group
        cpu += [(time.process_time() - cpu_start) * 1e3 / group] * group
    return {
        "wall": wall,
        "cpu": cpu,
        "step_memory": machine.memory(),
        "device_memory": machine.accelerator_peak(s.backend),
    }


def serve(s, say):
    """Prepares, says so, and times as many steps as each line asks for."""
    try:
        turn, facts = prepare(s)
    except ImportError as error:
        say({"missing": why_missing(s.name, error)} if s.name in PEERS else _error(error))
        return 1
    except Exception as error:
        say(_error(error))
        return 1
    say({"ready": True, **facts})
    for line in sys.stdin:
        try:
            say(turn(json.loads(line)["steps"]))
        except Exception as error:
            say(_error(error))
            return 1
    return 0


def _error(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    return {"error": f"{type(error).__name__}: {lines[0]}"[:400], "whole": str(error)[-4000:]}


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(answer):
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    settings = Settings.from_json(sys.argv[1])
    cores = [int(core) for core in sys.argv[2].split(",") if core] if len(sys.argv) > 2 else []
    if cores:
        machine.use_cores(cores)
    sys.exit(serve(settings, say))


if __name__ == "__main__":
    main()
