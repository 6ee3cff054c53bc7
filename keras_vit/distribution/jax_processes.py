"""How the processes of JAX find each other."""

import os
import sys

from keras_vit.distribution import jax_exit
from keras_vit.distribution.devices import environment

_VARIABLES = tuple(
    f"KERAS_DISTRIBUTION_{name}" for name in ("JOB_ADDRESSES", "NUM_PROCESSES", "PROCESS_ID")
)
_SILENCE = 40  # seconds without heartbeats after which JAX gives a process up; its default is 100


def join(timeout):
    """Lets JAX join the other processes that the variables name or that JAX itself detects."""
    import jax

    if jax.distributed.is_initialized():
        return
    given, missing = environment(_VARIABLES)
    if given and missing:
        raise ValueError(
            f"Several processes need the environment variables {_VARIABLES}. Received: no "
            f"{missing}; set them in every process, or none of them."
        )
    if not given and os.environ.get("SLURM_NTASKS") == "1":
        return  # JAX would give this one process one device of the node
    options = {}
    if given:
        addresses, *numbers = given.values()
        if not all(number.isdigit() for number in numbers) or int(numbers[1]) >= int(numbers[0]):
            raise ValueError(
                f"Processes are numbered from 0 to {_VARIABLES[1]} - 1. Received: {given}."
            )
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
    if jax.process_count() > 1:
        jax_exit.enable(jax.process_index(), jax.process_count())
