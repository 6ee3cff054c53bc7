"""Processes meet over loopback, here as threads: who comes, who does not fit, who is lost."""

import concurrent.futures
import functools
import socket
import time

import pytest

from keras_vit.distribution import meeting as meetings
from keras_vit.distribution.meeting import Meeting
from tests.distribution.processes import free_port

pytestmark = pytest.mark.any_backend


@pytest.fixture(autouse=True)
def ended(monkeypatch):
    """The codes with which processes would have been ended; nobody waits for the end of this."""
    codes = []
    monkeypatch.setattr(meetings.os, "_exit", codes.append)
    monkeypatch.setattr(meetings.atexit, "register", lambda function: None)
    monkeypatch.setattr(meetings, "_GRACE", 0.2)
    return codes


def together(*calls):
    """What functions return or raise that run at the same time."""
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(call) for call in calls]
    return [future.exception() or future.result() for future in futures]


def joining(port, process, processes=2, facts=None, timeout=10.0, **options):
    address = f"127.0.0.1:{port}"
    return lambda: Meeting(address, process, processes, facts or {"x": "1"}, timeout, **options)


def test_texts_reach_every_process_and_the_end_is_no_loss(ended):
    port = free_port()
    three = together(*(joining(port, i, 3) for i in range(3)))
    for word in ("a", "b"):
        calls = [functools.partial(m.gather, f"{word}{m.process}") for m in three]
        found = together(*calls)
        assert found == [[f"{word}{i}" for i in range(3)]] * 3
    together(*(m._leave for m in three))
    time.sleep(0.4)
    assert [m.lost for m in three] == [None] * 3 and ended == []


def test_who_does_not_come_is_named_with_the_address():
    port = free_port()
    addresses = [f"127.0.0.1:{port}", "10.0.0.2:7000", "10.0.0.3:7000"]
    begin = time.monotonic()
    found = together(*(joining(port, i, 3, timeout=1, addresses=addresses) for i in (0, 1)))
    assert time.monotonic() - begin < 8
    for error in found:
        assert isinstance(error, ConnectionError)
        assert f"did not meet at 127.0.0.1:{port} within 1 s" in str(error)
        assert "nothing of process 2 at 10.0.0.3:7000" in str(error)
    (error,) = together(joining(port, 1, timeout=0.5))
    assert f"Process 0 did not answer at 127.0.0.1:{port} within 0.5 s" in str(error)


def test_other_versions_are_told_by_process():
    port = free_port()
    found = together(
        joining(port, 0, facts={"jax": "1.0", "keras": "3.0"}),
        joining(port, 1, facts={"jax": "1.1", "keras": "3.0"}),
    )
    for error in found:
        assert isinstance(error, ValueError)
        assert "same jax. Received:\n  process 0: jax 1.0\n  process 1: jax 1.1" in str(error)


def test_another_number_of_processes_is_told():
    port = free_port()
    for error in together(joining(port, 0, 2), joining(port, 1, 3)):
        assert isinstance(error, ValueError) and "2 by process 0, 3 by process 1" in str(error)


def test_a_second_launcher_on_the_port_is_told():
    """Its process 0 finds the port taken, its process 1 the place."""
    port = free_port()
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        first = [pool.submit(joining(port, i, 3)) for i in range(2)]
        time.sleep(0.5)
        second = together(joining(port, 0, 3), joining(port, 1, 3))
        first.append(pool.submit(joining(port, 2, 3)))
    assert [each.result().process for each in first] == [0, 1, 2]  # they are not disturbed
    assert f"cannot listen at 127.0.0.1:{port}" in str(second[0])
    assert "a second process 1" in str(second[1])
    together(*(each.result()._leave for each in first))


def test_another_program_on_the_port_is_told():
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer():
            peer, _ = other.accept()
            with peer:
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        port = other.getsockname()[1]
        _, error = together(answer, joining(port, 1))
    assert isinstance(error, ConnectionError) and "no process of this run" in str(error)


def test_strangers_do_not_disturb():
    port = free_port()

    def knock():
        time.sleep(0.3)
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        time.sleep(0.3)
        return joining(port, 1)()

    both = together(joining(port, 0), knock)
    assert [m.process for m in both] == [0, 1]
    together(*(m._leave for m in both))


@pytest.mark.parametrize("killed", [0, 1, 2])
def test_who_is_lost_is_told_in_every_process_and_they_end(killed, ended, capfd):
    port = free_port()
    three = together(*(joining(port, i, 3) for i in range(3)))
    left = [m for m in three if m.process != killed]
    three[killed]._over = True  # its thread goes no further, as in a killed process
    for peer in three[killed]._peers.values():
        peer.shutdown(socket.SHUT_RDWR)
    for error in together(*(lambda m=m: m.gather("x") for m in left)):
        assert isinstance(error, ConnectionError)
        assert f"lost process {killed}" in str(error) and "goes on from the last" in str(error)
    time.sleep(0.5)
    assert ended == [1, 1]  # also where the engine waits for ever
    assert f"Process {left[0].process} of 3 lost process {killed}" in capfd.readouterr().err


def test_one_that_has_stopped_is_lost_too():
    port = free_port()
    first, second = together(*(joining(port, i, timeout=1.0) for i in (0, 1)))
    second._over = True  # no sign any more, but its connection stays
    error = together(lambda: first.gather("x"))[0]
    assert "lost process 1, which has given no sign for 1.0 s" in str(error)


def test_one_that_fails_tells_the_others():
    port = free_port()
    first, second = together(*(joining(port, i) for i in (0, 1)))
    second.leave_on(SystemExit(143))  # stopped by a signal, as all are
    assert first.lost is None and not second._abandoned
    second.leave_on(ValueError("bad data"))
    assert "lost process 1" in str(together(lambda: first.gather("x"))[0])
    error = first.explain(RuntimeError("Gloo: connection closed\nmore"))
    assert "Received: Gloo: connection closed" in str(error) and "more" not in str(error)


@pytest.mark.parametrize("address", ["node0", "node0:", ":1", "node0:x", "node0:70000"])
def test_an_address_without_host_or_port_is_told(address):
    with pytest.raises(ValueError, match="must be host:port"):
        Meeting(address, 1, 2, {}, 1)


def test_a_pause_of_this_process_is_no_silence_of_others(monkeypatch):
    """All processes of a host may be stopped together, for longer than they would wait."""
    port, real, jump = free_port(), time.monotonic, [0.0]
    monkeypatch.setattr(meetings.time, "monotonic", lambda: real() + jump[0])
    both = together(*(joining(port, i, timeout=2.0) for i in (0, 1)))
    jump[0] = 3600.0
    assert together(*(lambda m=m: m.gather("x") for m in both)) == [["x", "x"]] * 2
    time.sleep(1)
    assert [m.lost for m in both] == [None, None]
    together(*(m._leave for m in both))
