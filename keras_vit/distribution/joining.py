"""How the processes of a run find each other: by the environment variables of each engine."""

import datetime
import json
import os
import sys

from keras_vit.distribution import ending
from keras_vit.workarounds import make_workers_strategy

_JAX = tuple(
    f"KERAS_DISTRIBUTION_{name}" for name in ("JOB_ADDRESSES", "NUM_PROCESSES", "PROCESS_ID")
)
TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")  # torchrun sets them
_SILENCE = 40  # seconds without heartbeats after which JAX gives a process up; its default is 100
_strategy = None  # of several processes: TensorFlow joins them once in a process's life


def join_jax(timeout):
    """Lets JAX join the other processes that the variables name or that JAX itself detects."""
    import jax

    if jax.distributed.is_initialized():
        return
    given, missing = _environment(_JAX)
    if given and missing:
        raise ValueError(
            f"Several processes need the environment variables {_JAX}. Received: no "
            f"{missing}; set them in every process, or none of them."
        )
    if not given and os.environ.get("SLURM_NTASKS") == "1":
        return  # JAX would give this one process one device of the node
    options = {}
    if given:
        addresses, *numbers = given.values()
        if not all(number.isdigit() for number in numbers) or int(numbers[1]) >= int(numbers[0]):
            raise ValueError(f"Processes are numbered from 0 to {_JAX[1]} - 1. Received: {given}.")
        options = {
            "coordinator_address": addresses.split(",")[0],
            "num_processes": int(numbers[0]),
            "process_id": int(numbers[1]),
            "cluster_detection_method": "deactivate",
        }
        # JAX ends a process that finds no other; this line tells where it looked.
        print(f"JAX joins {options}, within {timeout} s.", file=sys.stderr)
    # This service would take SIGTERM, which `training.fit` obeys, for itself.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            **options,
            initialization_timeout=timeout,
            heartbeat_timeout_seconds=min(timeout, _SILENCE),
            # The first process may evaluate for hours when the others are done.
            shutdown_timeout_seconds=7 * 24 * 3600,
        )
    except ValueError:  # JAX detects no cluster
        if given:
            raise
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        text = f"JAX's processes cannot join. Received: {options or 'what JAX detected'}, {reason}"
        if "must be called before" not in str(error):
            raise ConnectionError(f"{text}; choose a port that all of them reach.") from error
        # JAX has computed something, and joins nobody any more.
        if given:
            raise ValueError(f"{text}; call distribution.setup first.") from error
    if jax.process_count() > 1 and os.name == "posix":
        ending.tell_when_aborted(jax.process_index(), jax.process_count())


def join_torch(timeout, devices=None):
    """Lets PyTorch join the processes that `torchrun` has started, `devices` in all if given."""
    import torch

    given, missing = _environment(TORCHRUN)
    if missing:
        raise ValueError(
            "With PyTorch each device has its own process. Received: no environment variables "
            f"{missing}; start the command with torchrun --nproc-per-node=N, which sets them."
        )
    processes = int(given["WORLD_SIZE"])
    if devices is not None and devices != processes:
        raise ValueError(
            "The number of devices is that of the processes. Received: "
            f"devices={devices}, WORLD_SIZE={processes}; pass that number to torchrun alone."
        )
    backend = "gloo"
    if torch.cuda.is_available():
        backend = "nccl"
        torch.cuda.set_device(int(given["LOCAL_RANK"]))
    address = f"{given['MASTER_ADDR']}:{given['MASTER_PORT']}"
    try:
        torch.distributed.init_process_group(backend, timeout=datetime.timedelta(seconds=timeout))
    except (RuntimeError, ValueError) as error:  # torch's DistError is a RuntimeError
        raise ConnectionError(
            f"The {processes} processes did not meet at {address} within {timeout} s. Received: "
            f"process {given['RANK']}, {error}; start as many processes as WORLD_SIZE says, with "
            "ranks 0 to WORLD_SIZE - 1, and a free port that all of them reach."
        ) from error


def join_tensorflow(process, addresses, timeout):
    """The strategy of several processes, which TensorFlow joins."""
    global _strategy
    if _strategy is not None:
        return _strategy
    # TensorFlow waits without a limit for processes that never come; this tells what it waits for.
    print(
        f"Process {process} of {len(addresses)} waits for the others at {', '.join(addresses)}.",
        file=sys.stderr,
    )
    try:
        _strategy = make_workers_strategy(timeout)
    except RuntimeError as error:
        if "program startup" not in str(error):
            raise
        raise ValueError(
            "Processes must join before TensorFlow computes anything. Received: a TensorFlow "
            "whose devices are in use; call distribution.setup first."
        ) from error
    return _strategy


def read_tf_config():
    """The number of this process and the addresses of all, as TF_CONFIG has them."""
    text = os.environ.get("TF_CONFIG") or "{}"
    try:
        config = json.loads(text)
        groups = {name: config.get("cluster", {}).get(name, []) for name in ("chief", "worker")}
        addresses = [*groups["chief"], *groups["worker"]]
        if len(addresses) < 2:
            return 0, addresses
        return addresses.index(groups[config["task"]["type"]][config["task"]["index"]]), addresses
    except (ValueError, AttributeError, KeyError, IndexError, TypeError) as error:
        raise ValueError(
            'TF_CONFIG must be JSON such as {"cluster": {"worker": ["node0:29500", "node1:29500"]},'
            ' "task": {"type": "worker", "index": 0}}, with the index of this process among the '
            f"workers. Received: {text!r}."
        ) from error


def _environment(names):
    """Dict of the environment variables that are set, and the names of those that are not."""
    given = {name: os.environ[name] for name in names if os.environ.get(name)}
    return given, [name for name in names if name not in given]
