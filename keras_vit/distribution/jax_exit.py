"""How a process of JAX ends after losing a peer.

JAX 0.10 aborts such a process before Python hears of it, or waits at the end of the program for a
peer that is gone. `enable` is the switch: without this one call JAX ends as it does by itself.
"""

import atexit
import ctypes
import multiprocessing
import os
import signal
import sys

from keras_vit.distribution.devices import GO_ON, LOST

_enabled = False
_handlers = []  # that C calls, so that Python must keep them


def enable(process, processes):
    """Lets this process, which has joined others, tell of a lost peer and end without waiting."""
    global _enabled
    _enabled = True
    if os.name == "posix":
        _tell_when_aborted(process, processes)


def _tell_when_aborted(process, processes):
    """Prints what to do when JAX calls `abort`, which it does from a thread of its own.

    It does so where process 0 is gone, or where a process sends no heartbeats.
    """
    text = f"Process {process} of {processes} was ended by JAX, as it says above. Most likely it "
    line = f"\nConnectionError: {text}{LOST}{GO_ON}\n".encode()

    @ctypes.CFUNCTYPE(None, ctypes.c_int)
    def tell(number):
        os.write(2, line)

    _handlers.append(tell)
    ctypes.CDLL(None).signal(int(signal.SIGABRT), tell)


def do_not_wait(error):
    """Lets this process end as soon as its program does, if `error` is what ends it.

    JAX waits for all processes: also for one that was killed, and for those that wait for this one,
    which has failed.
    """
    if not _enabled or not isinstance(error, Exception):
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
