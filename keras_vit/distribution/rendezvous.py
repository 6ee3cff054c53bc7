"""How the processes of one run find each other: each says hello to process 0, which compares."""

import contextlib
import json
import socket
import struct
import time

_PAUSE = 0.2  # seconds between two attempts to reach process 0
_LARGEST = 1 << 20  # bytes of a message; what claims more is another program


def meet(address, process, processes, facts, timeout, names):
    """Connects process 0 with all others; the arguments are those of `Meeting`.

    Returns:
        A dict from the number of a process to the socket to it: in process 0 all, in others 0.
    """
    host, port = split_address(address)
    deadline = time.monotonic() + timeout
    hello = {"keras_vit": process, "processes": processes, "facts": facts}
    if process == 0:
        return _receive_all(host, port, hello, timeout, deadline, names)
    return {0: _say_hello(host, port, hello, timeout, deadline)}


def split_address(address):
    """Host and port of `host:port`.

    Raises:
        ValueError: it is not of that form.
    """
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"An address must be host:port, such as node0:29500. Received: {address}.")
    return host.strip("[]"), int(port)


def pack(message):
    """A message as bytes: its length, then JSON."""
    text = json.dumps(message).encode()
    return struct.pack(">I", len(text)) + text


def _unpack(peer):
    """The next message; ValueError for what is none, OSError where none comes."""
    size = struct.unpack(">I", _receive(peer, 4))[0]
    if size > _LARGEST:
        raise ValueError("no message of a run")
    message = json.loads(_receive(peer, size))
    if not isinstance(message, dict):
        raise ValueError("no message of a run")
    return message


def _receive(peer, size):
    data = b""
    while len(data) < size:
        part = peer.recv(size - len(data))
        if not part:
            raise ConnectionResetError("the connection was closed")
        data += part
    return data


def _receive_all(host, port, hello, timeout, deadline, names):
    """What process 0 does: listens, compares, and answers."""
    here = host if host in ("localhost", "127.0.0.1", "::1") else ""
    family = socket.AF_INET6 if ":" in here else socket.AF_INET
    try:
        listener = socket.create_server((here, port), family=family)
    except OSError as error:
        raise ConnectionError(
            f"Process 0 cannot listen at {host}:{port}. Received: {error}; another run or program "
            "may have the port: choose a free one, the same in all processes."
        ) from error
    peers, facts = {}, {0: hello["facts"]}
    with listener:
        try:
            while len(peers) < hello["processes"] - 1:
                listener.settimeout(max(0.01, deadline - time.monotonic()))
                peer, _ = listener.accept()
                _take_in(peer, hello, peers, facts, deadline)
        except TimeoutError:
            absent = [i for i in range(1, hello["processes"]) if i not in peers]
            named = ", ".join(f"{i} at {names[i]}" if i in names else str(i) for i in absent)
            text = (
                f"The {hello['processes']} processes did not meet at {host}:{port} within "
                f"{timeout} s. Received: nothing of process {named}; start one process for each "
                "number, and see that its host reaches this address."
            )
            _refuse_all(peers, text, "ConnectionError")
            raise ConnectionError(text) from None
        except ValueError as error:
            _refuse_all(peers, str(error), "ValueError")
            raise
        told = {json.dumps(each, sort_keys=True) for each in facts.values()}
        if len(told) > 1:
            text = _differences(facts)
            _refuse_all(peers, text, "ValueError")
            raise ValueError(text)
        for peer in peers.values():
            _set_up(peer)
            peer.sendall(pack({"welcome": True}))
    return peers


def _take_in(peer, hello, peers, facts, deadline):
    """Hears one that came. One too many is told so, and strangers are left."""
    peer.settimeout(max(0.01, min(5.0, deadline - time.monotonic())))
    try:
        message = _unpack(peer)
        number, processes = message["keras_vit"], message["processes"]
    except (OSError, ValueError, KeyError):
        peer.close()
        return
    if processes != hello["processes"]:
        text = (
            "All processes must be told the same number of processes. Received: "
            f"{hello['processes']} by process 0, {processes} by process {number}."
        )
        _refuse_all({number: peer}, text, "ValueError")
        raise ValueError(text)
    if number in peers:
        text = (
            f"Each process must have its own number, 0 to {processes - 1}. Received: a second "
            f"process {number}; is another run started with this address?"
        )
        _refuse_all({number: peer}, text, "ConnectionError")
        return
    peers[number], facts[number] = peer, message["facts"]


def _say_hello(host, port, hello, timeout, deadline):
    """What the other processes do: try until process 0 answers."""
    error = None
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise ConnectionError(
                f"Process 0 did not answer at {host}:{port} within {timeout} s. Received: process "
                f"{hello['keras_vit']} of {hello['processes']}, {error}; start process 0 on that "
                "host, and see that this one reaches it."
            )
        try:
            peer = socket.create_connection((host, port), timeout=left)
        except OSError as reason:
            error = reason
            time.sleep(min(_PAUSE, max(left, 0)))
            continue
        if peer.getsockname() == peer.getpeername():  # Linux may connect a free port to itself
            peer.close()
            continue
        return _hear_answer(peer, host, port, hello, deadline)


def _hear_answer(peer, host, port, hello, deadline):
    try:
        peer.sendall(pack(hello))
        peer.settimeout(max(0.01, deadline - time.monotonic()) + 5)  # 0 tells who is missing
        answer = _unpack(peer)
    except (OSError, ValueError) as reason:
        peer.close()
        raise ConnectionError(
            f"What answers at {host}:{port} is no process of this run that waits for others. "
            f"Received: {reason}; another run or program may have the port, or process 0 has "
            "ended: see its output, or choose another port, the same in all processes."
        ) from reason
    if "welcome" in answer:
        _set_up(peer)
        return peer
    peer.close()
    kind = ValueError if answer.get("kind") == "ValueError" else ConnectionError
    raise kind(answer.get("refused", "Process 0 refused this one without a reason."))


def _refuse_all(peers, text, kind):
    for peer in peers.values():
        with contextlib.suppress(OSError):
            peer.sendall(pack({"refused": text, "kind": kind}))
            peer.shutdown(socket.SHUT_WR)  # what was sent still arrives


def _differences(facts):
    names = [name for name in facts[0] if len({each.get(name) for each in facts.values()}) > 1]
    told = "".join(
        f"\n  process {i}: " + ", ".join(f"{name} {facts[i].get(name)}" for name in names)
        for i in sorted(facts)
    )
    return (
        f"All processes must have the same {', '.join(names)}. Received:{told}\nInstall the same "
        "packages on every host."
    )


def _set_up(peer):
    peer.settimeout(None)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # messages are short
