"""What a run stops and saves for: signals, and the clock."""

import contextlib
import os
import signal
import sys
import threading
import time

from keras_vit.checks import positive_int


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
        text = (
            f"{signal.Signals(number).name}: stopping after this batch and saving; a second one "
            "stops at once, without.\n"
        )
        # Past Python's buffer: a signal that comes within a `print` must not print. A notebook's
        # output is no file; there the run says at its end what it did.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            os.write(sys.stdout.fileno(), text.encode())


class SaveInterval:
    """When the next checkpoint is due.

    Args:
        every: updates between two checkpoints, or seconds as text such as "600s".

    Raises:
        ValueError: neither of them.
    """

    def __init__(self, every):
        self.steps = self.seconds = None
        with contextlib.suppress(ValueError):
            if isinstance(every, str) and every.endswith("s"):
                self.seconds = float(every[:-1])
            else:
                self.steps = positive_int(every, "save_every")
        if not (self.steps or (self.seconds and self.seconds > 0)):
            raise ValueError(
                "save_every must be a number of updates such as 500, or of seconds such as "
                f'"600s". Received: {every!r}'
            )
        self.saved(0)

    def saved(self, step):
        """Takes note of a checkpoint."""
        self._step, self._time = step, time.monotonic()

    def due(self, step):
        """Whether it is time for one."""
        if self.steps:
            return step // self.steps > self._step // self.steps
        return time.monotonic() - self._time >= self.seconds
