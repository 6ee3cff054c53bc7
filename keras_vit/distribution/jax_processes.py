"""How the processes of JAX find each other."""

import os
import sys

import jax

from keras_vit.distribution import lost_process
from keras_vit.distribution.processes import environment

_VARIABLES = tuple(
    f"KERAS_DISTRIBUTION_{name}" for name in ("JOB_ADDRESSES", "NUM_PROCESSES", "PROCESS_ID")
)


def join(timeout):
    """Joins the processes that the variables name, or that JAX itself detects, if there are any."""
    if not jax.distributed.is_initialized():
        _initialize(environment(_VARIABLES), timeout)
    if jax.process_count() > 1:
        lost_process.end_jax_with_the_others(jax.process_index(), jax.process_count())


def _initialize(given, timeout):
    if not given and os.environ.get("SLURM_NTASKS") == "1":
        return  # JAX would give this one process one device of the node
    # This service would take SIGTERM, which `training.fit` obeys, for itself.
    jax.config.update("jax_enable_preemption_service", False)
    options = {
        "initialization_timeout": timeout,
        # After so many seconds without a sign of life JAX gives a process up.
        "heartbeat_timeout_seconds": min(timeout, 40),
        # The first process may evaluate for hours when the others are done.
        "shutdown_timeout_seconds": 7 * 24 * 3600,
    }
    if given:
        addresses, processes, process = (given[name] for name in _VARIABLES)
        are_numbers = processes.isdigit() and process.isdigit()
        if not are_numbers or int(process) >= int(processes):
            raise ValueError(
                f"Processes are numbered from 0 to {_VARIABLES[1]} - 1. Received: {given}."
            )
        options |= {
            "coordinator_address": addresses.split(",")[0],
            "num_processes": int(processes),
            "process_id": int(process),
            "cluster_detection_method": "deactivate",
        }
        # JAX ends a process that finds no other; this line tells where it looked.
        print(f"JAX joins {given}, within {timeout} s.", file=sys.stderr)
    try:
        jax.distributed.initialize(**options)
    except ValueError:
        if given:  # else JAX has detected no other processes
            raise
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        text = f"JAX's processes cannot join. Received: {given or 'what JAX detected'}, {reason}"
        if "must be called before" not in str(error):
            raise ConnectionError(f"{text}; choose a port that all of them reach.") from error
        if given:  # else this process is alone, and may have computed something
            raise ValueError(f"{text}; call distribution.setup first.") from error
