"""Starts `case.py` on virtual devices or in several processes, and reads what it left."""

import json
import pathlib
import signal
import socket

import numpy as np

from tests import processes
from tests.processes import finish
from tests.support import BACKEND


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def start(output, options=None, devices=1, **environment):
    """One process of a run, whose backend sees so many CPU devices."""
    flags = f"--xla_force_host_platform_device_count={devices}"
    cpus = {"XLA_FLAGS": flags, "CPUS": str(devices)}
    case = ("distribution/case.py", output, json.dumps(options or {}))
    return processes.start(*case, **cpus, **environment)


def variables(rank, addresses):
    """What the launcher of each engine tells a process."""
    world, port = str(len(addresses)), addresses[0].split(":")[1]
    if BACKEND == "jax":
        names = ("JOB_ADDRESSES", "NUM_PROCESSES", "PROCESS_ID")
        values = (addresses[0], world, str(rank))
        return {f"KERAS_DISTRIBUTION_{name}": value for name, value in zip(names, values)}
    if BACKEND == "tensorflow":
        task = {"type": "worker", "index": rank}
        return {"TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": task})}
    number = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": world}
    return {**number, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}


def free_addresses(world):
    return [f"127.0.0.1:{free_port()}" for _ in range(world)]


def launch(output, options=None, ranks=(0, 1), world=2, addresses=None, devices=1):
    """Several processes of a run on virtual devices; the addresses are those of all of them."""
    addresses = addresses or free_addresses(world)
    return [start(output, options, devices, **variables(i, addresses)) for i in ranks]


def trained_together(output, options=None, world=2, **more):
    """What each process comes to; all must end well, and one have written."""
    printed = all_printed(launch(output, options, range(world), world, **more), 0)
    assert ["update" in text for text in printed] == [True] + [False] * (world - 1)
    return [result(output, i) for i in range(world)]


def kill_at(process, line, number=signal.SIGKILL):
    """Sends a process a signal, once it has printed a line."""
    for printed in process.stdout:
        if printed.startswith(line):
            return process.send_signal(number)
    raise AssertionError(f"It ended before {line!r}.")


def all_printed(processes, code):
    """What each of them printed; all must end with that code."""
    ended = [finish(process) for process in processes]
    assert [c for _, c in ended] == [code] * len(ended), "\n".join(text for text, _ in ended)
    return [text for text, _ in ended]


def result(output, process=0):
    with np.load(pathlib.Path(output) / f"process_{process}.npz") as file:
        return {name: file[name] for name in file.files}


def trained(output, options=None, devices=1):
    """What a run in one process comes to."""
    all_printed([start(output, options, devices)], 0)
    return result(output)


def all_trained(output, options, devices=1):
    """What several runs in a row in one process come to; each must come to its end."""
    (printed,) = all_printed([start(output, options, devices)], 0)
    assert "ValueError" not in printed, printed
    return [result(pathlib.Path(output) / str(i)) for i in range(len(options))]


def assert_refused(output, cases, devices=1):
    """Several runs in a row in one process end before their first update: message -> options."""
    printed, _ = finish(start(output, list(cases.values()), devices))
    assert "batch 0" not in printed, printed
    errors = [text for text in printed.split("run ") if "ValueError: " in text]
    for message, error in zip(cases, errors, strict=True):
        assert message in error and "Received: " in error, printed


def assert_agree(one, many, tolerance=2e-5):
    """Every loss, metric, weight and prediction within `tolerance`."""
    assert one.keys() == many.keys()
    assert any(name.startswith("weight/") for name in one)
    for name, value in one.items():
        if value.dtype.kind == "f" and not name.startswith("share/"):
            np.testing.assert_allclose(many[name], value, rtol=0, atol=tolerance, err_msg=name)
