"""What a process raises and does after it has lost another one; `test_processes` kills some."""

import pytest

from keras_vit.distribution import lost_process
from tests.distribution.test_setup import OneOf

pytestmark = pytest.mark.any_backend

GLOO = ValueError("UNKNOWN: Gloo AllGather failed: Connection closed by peer [127.0.0.1]:1922\nat")


def test_a_broken_connection_is_told_as_a_lost_process():
    error = lost_process.error_to_raise(GLOO, OneOf(1, 4))
    assert isinstance(error, ConnectionError)
    text = str(error)
    assert text.startswith("Process 1 of 4 lost another one")
    assert "Received: UNKNOWN: Gloo AllGather" in text and "same command" in text
    assert ":1922. Start" in text  # of the first line alone


def test_other_errors_and_those_of_a_single_process_stay():
    for error, devices in ((GLOO, OneOf(0, 1)), (MemoryError("no memory"), OneOf(0, 4))):
        assert lost_process.error_to_raise(error, devices) is error


def test_only_jax_with_other_processes_leaves_and_only_after_an_error(monkeypatch):
    """Whether the program has caught it or not; JAX ends one that a signal has stopped."""
    handlers = set()
    monkeypatch.setattr("atexit.register", handlers.add)
    monkeypatch.setattr("atexit.unregister", handlers.discard)
    monkeypatch.setattr(lost_process, "_abort_handler", "is set")
    monkeypatch.setattr(lost_process, "_jax_waits", False)
    lost_process.error_to_raise(MemoryError(), OneOf(0, 2))
    assert not handlers
    lost_process.end_jax_with_the_others(0, 2)
    lost_process.error_to_raise(SystemExit(143), OneOf(0, 2))
    assert not handlers
    lost_process.error_to_raise(MemoryError(), OneOf(0, 2))
    (leave,) = handlers
    lost_process.end_jax_with_the_others(0, 2)  # the next training, of the same program
    assert not handlers
    left = []
    monkeypatch.setattr("os._exit", left.append)
    leave()
    assert left == [1]
