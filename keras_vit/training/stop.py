"""What stops a run of `training.fit`: a signal, values that are not finite, another run."""

import contextlib
import os
import signal
import sys
import threading

import filelock


class DivergenceError(ValueError):
    """The loss or the weights are no longer finite."""


class Interrupted(SystemExit):
    """A run was stopped by a signal, and saved; its code is 130 after Ctrl-C, 143 after SIGTERM."""


class Signals:
    """While it is entered, remembers the first SIGINT or SIGTERM instead of obeying it.

    Left to itself, Python raises KeyboardInterrupt wherever it happens to be, and where that is a
    hook of a backend (JAX's garbage collection, for one) the exception is swallowed and training
    goes on. A second signal does what it did before. Outside the main thread, where Python lets
    nobody handle signals, nothing changes.

    Attributes:
        asked: the number of the signal that came, or None.
    """

    def __init__(self):
        self.asked, self._before = None, {}

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, error=None, *_):
        if error not in (None, Interrupted) and sys.stdout is not None and sys.stdout.isatty():
            print(flush=True)  # what went wrong is not told behind a progress bar
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _remember(self, number, frame):
        self.asked = number
        self.__exit__()
        text = (
            f"{signal.Signals(number).name}: stopping after this batch and saving; a second one "
            "stops at once, without.\n"
        )
        # Past Python's buffer: a signal that comes within a `print` must not print. A notebook's
        # output is no file; there the run says at its end what it did.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            place = sys.stdout.fileno()
            on_a_new_line = "\n" * os.isatty(place)  # not behind `^C` and a progress bar
            os.write(place, (on_a_new_line + text).encode())


def only_run_in(folder):
    """A context in which no other process can be for the same folder.

    The lock is the operating system's and ends with the process, however that ends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return filelock.FileLock(folder / ".lock").acquire(timeout=1)
    except filelock.Timeout:
        raise ValueError(
            f"Another run is writing to this folder. Received: output={str(folder)!r}; wait for "
            "its end, or choose another folder."
        ) from None
