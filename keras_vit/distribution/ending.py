"""The end of a process of JAX whose run has failed, here or in another process."""

import atexit
import ctypes
import multiprocessing
import os
import re
import signal
import sys

_LOST = "lost another one, which was killed, has failed (see its output) or does not answer. "
_GO_ON = "Start all again with the same command: training goes on from the last checkpoint."


def explain(error, process, processes):
    """The error to raise for an error of training: another one if a process was lost."""
    words = "gloo|nccl|collective|connection|peer|unavailable|socket|aborted|cancelled|deadline"
    if processes == 1 or not re.search(words, str(error), re.IGNORECASE):
        return error
    received = (str(error).splitlines() or [""])[0][:300]
    return ConnectionError(
        f"Process {process} of {processes} {_LOST}Received: {received}. {_GO_ON}"
    )


def do_not_wait(error):
    """Lets this process end as soon as its program does, if `error` is what ends it.

    At the end of a program JAX 0.10 waits for all processes, also for one that was killed, and for
    those that wait for this one, which has failed.
    """
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


def tell_when_aborted(process, processes):
    """Prints what to do where JAX ends this process because it lost another one.

    JAX 0.10 calls `abort` where process 0 is gone or a process sends no heartbeats, from a thread
    of its own and before Python hears of it.
    """
    text = f"Process {process} of {processes} was ended by JAX, as it says above. Most likely it "
    line = f"\nConnectionError: {text}{_LOST}{_GO_ON}\n".encode()

    @ctypes.CFUNCTYPE(None, ctypes.c_int)
    def tell(number):
        os.write(2, line)

    _HANDLERS.append(tell)
    ctypes.CDLL(None).signal(int(signal.SIGABRT), tell)


_HANDLERS = []  # that C calls, so that Python must keep them
