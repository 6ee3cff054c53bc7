"""Ctrl-C and SIGTERM, which end a run after its present batch."""

import os
import signal
import sys
import threading


class Stop(BaseException):
    """Raised in a callback to leave `model.fit`; it never leaves `training.fit`."""


class Interrupted(SystemExit):
    """A run was stopped by a signal, and saved.

    Left alone it ends the process with the code that shells expect: 130 after Ctrl-C, 143 after
    SIGTERM.

    Attributes:
        signal: the number of the signal.
    """

    def __init__(self, number):
        super().__init__(128 + number)
        self.signal = number


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

    def __exit__(self, *_):
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _remember(self, number, frame):
        self.asked = number
        for each, handler in self._before.items():
            signal.signal(each, handler)
        _say_in_a_handler(
            f"{signal.Signals(number).name}: stopping after this batch and saving; a second one "
            "stops at once, without.\n"
        )


def _say_in_a_handler(text):
    """Writes past Python's buffer: a signal that comes within a `print` must not print."""
    try:
        os.write(sys.stdout.fileno(), text.encode())
    except (AttributeError, OSError, ValueError):
        pass  # a notebook's output is no file; the run says at its end what it did
