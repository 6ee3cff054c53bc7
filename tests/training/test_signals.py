"""A signal is remembered wherever it meets the program."""

import os
import signal
import sys
import threading

import pytest

from keras_vit.training.callbacks import Signals

pytestmark = pytest.mark.any_backend


def test_a_signal_within_a_print(capfd):
    """Python's buffer cannot be entered twice: the message of the handler goes past it."""
    with capfd.disabled(), open(os.devnull, "w") as nowhere:
        before, sys.stdout = sys.stdout, nowhere
        try:
            for _ in range(100):
                with Signals() as signals:
                    thread = threading.Timer(2e-4, os.kill, (os.getpid(), signal.SIGINT))
                    thread.start()
                    while signals.asked is None:
                        print("x" * 50, flush=True)
                    thread.join()
                assert signals.asked == signal.SIGINT
        finally:
            sys.stdout = before


def test_the_handlers_come_back(capfd):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.asked == signal.SIGTERM
        # The second one stops at once.
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    assert "SIGTERM: stopping after this batch" in capfd.readouterr().out
