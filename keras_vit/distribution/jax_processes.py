"""How the processes of JAX find each other, and how a process ends after losing a peer."""

import atexit
import ctypes
import multiprocessing
import os
import signal
import sys

from keras_vit.distribution.devices import GO_ON, LOST, environment

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
        end_after_a_loss(jax.process_index(), jax.process_count())


# ---- how a process ends after losing a peer

_ends_after_a_loss = False
_handlers = []  # that C calls, so that Python must keep them


def end_after_a_loss(process, processes):
    """Switches on what follows in this file; without this call JAX ends a process as before.

    JAX 0.10 calls `abort` where process 0 is gone or a process sends no heartbeats, from a thread
    of its own and before Python hears of it; now it prints first what to do. For the other way in
    which JAX ends, see `do_not_wait`.
    """
    global _ends_after_a_loss
    _ends_after_a_loss = True
    if os.name != "posix":
        return
    text = f"Process {process} of {processes} was ended by JAX, as it says above. Most likely it "
    line = f"\nConnectionError: {text}{LOST}{GO_ON}\n".encode()

    @ctypes.CFUNCTYPE(None, ctypes.c_int)
    def tell(number):
        os.write(2, line)

    _handlers.append(tell)
    ctypes.CDLL(None).signal(int(signal.SIGABRT), tell)


def do_not_wait(error):
    """Lets this process end as soon as its program does, if `error` is what ends it.

    At the end of a program JAX 0.10 waits for all processes, also for one that was killed, and for
    those that wait for this one, which has failed.
    """
    if not _ends_after_a_loss or not isinstance(error, Exception):
        return
    identity = id(error)  # and no reference to it: its frames hold arrays
    is_lost = isinstance(error, ConnectionError)

    def leave():
        if not is_lost and id(getattr(sys, "last_value", None)) != identity:
            return  # the program has caught the error
        for child in multiprocessing.active_children():  # workers of a pipeline
            child.terminate()
        sys.stdout.flush()
        sys.stderr.flush()
        # An exit handler cannot raise: after `sys.exit` JAX's own handler would still be called,
        # and wait. This call alone ends the process before it.
        os._exit(1)

    atexit.register(leave)  # called before JAX's: the handler that is registered last comes first
