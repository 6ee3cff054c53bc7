"""How a process ends after another one of its run was killed, has failed or does not answer.

While all processes live, nothing here has an effect.
"""

import atexit
import ctypes
import multiprocessing
import os
import re
import signal
import sys

# A broken connection raises another type of error in each engine and network; the messages have
# one of these words.
_BROKEN_CONNECTION = re.compile(
    "gloo|nccl|collective|connection|peer|unavailable|socket|aborted|cancelled|deadline",
    re.IGNORECASE,
)

_jax_waits = False  # whether JAX lets this process wait for others at its end
_abort_handler = None  # which C calls, so that Python must keep it


def lost_error(process, processes, received):
    """The error of a process that cannot go on without another one."""
    return ConnectionError(
        f"Process {process} of {processes} lost another one, which was killed, has failed (see its "
        f"output) or does not answer. Received: {received}. Start all again with the same command: "
        "training goes on from the last checkpoint."
    )


def error_to_raise(error, devices):
    """The error to raise for one that ended a training: `lost_error` for a broken connection."""
    if _jax_waits and isinstance(error, Exception):  # a signal stops all processes, without a loss
        atexit.register(_leave)  # what is registered last is called first, and so before JAX waits
    if devices.processes == 1 or not _BROKEN_CONNECTION.search(str(error)):
        return error
    first_line = str(error).partition("\n")[0][:300]
    return lost_error(devices.process, devices.processes, first_line)


def end_jax_with_the_others(process, processes):
    """Lets this process of JAX 0.10 end soon after training has failed, here or elsewhere.

    At the end of a program JAX waits for all processes: also for one that was killed, or that
    itself waits for this one, which has failed. And where process 0 is gone, or one is silent, JAX
    calls `abort` from a thread of its own, before Python hears of it. The handler of this signal
    says what to do.
    """
    global _jax_waits, _abort_handler
    _jax_waits = True
    atexit.unregister(_leave)  # of a training that failed before this one
    if os.name != "posix" or _abort_handler:
        return
    error = lost_error(process, processes, "the error of JAX that stands above")
    line = f"\nConnectionError: {error}\n".encode()
    _abort_handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda number: os.write(2, line))
    ctypes.CDLL(None).signal(int(signal.SIGABRT), _abort_handler)


def _leave():
    for child in multiprocessing.active_children():  # workers of a pipeline
        child.terminate()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)  # because an exit handler cannot keep the next one, which is JAX's, from waiting
