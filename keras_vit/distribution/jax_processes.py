"""How the processes of JAX find each other."""

import os
import sys

from keras_vit.distribution import lost_process
from keras_vit.distribution.processes import environment

_VARIABLES = tuple(
    f"KERAS_DISTRIBUTION_{name}" for name in ("JOB_ADDRESSES", "NUM_PROCESSES", "PROCESS_ID")
)
_SILENCE = 40  # seconds without heartbeats after which JAX gives a process up; its default is 100


def join(timeout):
    """Joins the other processes, if there are any, and ends with them."""
    import jax

    if not jax.distributed.is_initialized():
        _initialize(timeout)
    if jax.process_count() > 1:
        lost_process.end_jax_with_the_others(jax.process_index(), jax.process_count())


def _initialize(timeout):
    """Initializes `jax.distributed`, if there are other processes."""
    import jax

    options = _options()
    if not options and os.environ.get("SLURM_NTASKS") == "1":
        return  # JAX would give this one process one device of the node
    if options:  # JAX ends a process that finds no other; this line tells where it looked
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
        if options:
            raise
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        text = f"JAX's processes cannot join. Received: {options or 'what JAX detected'}, {reason}"
        if "must be called before" not in str(error):
            raise ConnectionError(f"{text}; choose a port that all of them reach.") from error
        if options:  # else this process is alone, and may have computed something
            raise ValueError(f"{text}; call distribution.setup first.") from error


def _options():
    """The other processes as `jax.distributed.initialize` takes them; {}: JAX detects them."""
    given = environment(_VARIABLES)
    if not given:
        return {}
    addresses, *numbers = given.values()
    if not all(number.isdigit() for number in numbers) or int(numbers[1]) >= int(numbers[0]):
        raise ValueError(
            f"Processes are numbered from 0 to {_VARIABLES[1]} - 1. Received: {given}."
        )
    return {
        "coordinator_address": addresses.split(",")[0],
        "num_processes": int(numbers[0]),
        "process_id": int(numbers[1]),
        "cluster_detection_method": "deactivate",
    }
