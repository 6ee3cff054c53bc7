"""A line between the processes of one run, beside the engine's own: who came, and who is lost."""

import atexit
import collections
import contextlib
import json
import os
import platform
import random
import selectors
import socket
import struct
import sys
import threading
import time

import keras

from keras_vit.distribution.rendezvous import meet, pack
from keras_vit.version import __version__

_GRACE = 8  # seconds in which a process that lost another may end by itself
_ORDERLY = (None, 0, 130, 143)  # exit codes of runs that ended, or that a signal stopped


class Meeting:
    """The processes of one run, each connected with process 0 over TCP.

    JAX and TensorFlow wait long for a process that does not come, name no address, and end in
    ways of their own, or not at all, when one is killed. So the processes meet here before the
    engine starts, compare what must be the same, and go on hearing of each other: the end of a
    process closes its connection at once, and one that has stopped is silent.

    Who has lost another process says so, and is ended after a few seconds if it has not ended by
    itself: a collective operation of an engine cannot be left from within.

    Args:
        address: `host:port` of process 0, where it listens until all have come.
        process, processes: the number of this one, and how many there are.
        facts: a dict from name to text that must be the same in all, such as versions.
        timeout: seconds to wait for those that have not come, and for a sign of one that has.
        addresses: those of all processes, to name them; where they are not known, that of 0.

    Attributes:
        lost: what happened, once another process is lost; else None.

    Raises:
        ConnectionError: they do not all come, or the port is another's.
        ValueError: they do not fit together.
    """

    def __init__(self, address, process, processes, facts, timeout=300, addresses=None):
        self.process, self.processes, self.timeout = process, processes, timeout
        self.lost = None
        self._names = dict(enumerate(addresses or [address]))
        self._peers = meet(address, process, processes, facts, timeout, self._names)
        self._buffers = {peer: b"" for peer in self._peers.values()}
        self._silent = dict.fromkeys(self._peers, 0.0)  # seconds
        self._texts = {i: collections.deque() for i in range(processes)}
        self._answers = collections.deque()
        self._changed, self._sending = threading.Condition(), threading.Lock()
        self._over = self._abandoned = False
        threading.Thread(target=self._watch, daemon=True, name="keras_vit meeting").start()
        atexit.register(self._leave)  # before the engine's own, which was registered earlier

    def gather(self, text):
        """One text of each process, in every process, by number; waits for those that live.

        Raises:
            ConnectionError: one of them is lost.
        """
        return self._gather({"text": text})

    def _gather(self, message):
        if self.process:
            self._send(0, message)
            return self._wait(lambda: self._answers).popleft()
        with self._changed:
            self._texts[0].append(message)
        self._wait(lambda: all(self._texts.values()))
        with self._changed:
            texts = [self._texts[i].popleft().get("text") for i in range(self.processes)]
            self._over = self._over or "bye" in message
        for i in self._peers:
            self._send(i, {"texts": texts, **message})
        return texts

    def explain(self, error):
        """A ConnectionError that says who is lost, if that is why an error came; else None."""
        with self._changed:  # the engine may know a moment earlier
            self._changed.wait_for(lambda: self.lost, timeout=2)
        return self.lost and ConnectionError(
            f"{self.lost} Received: {(str(error).splitlines() or [''])[0][:300]}"
        )

    def leave_on(self, error):
        """Lets the others know that this process fails, if it does: they need not wait for it."""
        code = error.code if isinstance(error, SystemExit) else 1
        if error is not None and not (isinstance(error, SystemExit) and code in _ORDERLY):
            self._abandon()

    def _abandon(self):
        self._over = self._abandoned = True
        for peer in self._peers.values():
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)

    def _leave(self):
        """At the end of the process: waits for the others, however long they work."""
        if getattr(sys, "last_value", None) is not None:
            self._abandon()
        if not (self._abandoned or self.lost):
            with contextlib.suppress(ConnectionError):
                self._gather({"bye": True})
        if self._abandoned or self.lost:
            # The engines would wait here for those that are no more, or abort.
            sys.stdout.flush(), sys.stderr.flush()
            os._exit(1)

    def _send(self, i, message):
        try:
            with self._sending:
                self._peers[i].sendall(pack(message))
        except OSError as error:
            self._lose(i, f"cannot be reached: {error}")

    def _wait(self, ready):
        with self._changed:
            self._changed.wait_for(lambda: self.lost or ready())
            if not ready():
                raise ConnectionError(self.lost)
            return ready()

    def _watch(self):
        """Reads what the others send, and notices when they are silent."""
        pause = max(0.2, min(10.0, self.timeout / 5))
        said = before = time.monotonic()
        with selectors.DefaultSelector() as selector:
            for i, peer in self._peers.items():
                selector.register(peer, selectors.EVENT_READ, i)
            while not (self._over or self.lost):
                for key, _ in selector.select(pause / 2):
                    self._read(key.data, key.fileobj)
                now = time.monotonic()
                for i in self._peers:
                    # Time in which this process itself was stopped does not count.
                    self._silent[i] += min(now - before, pause)
                    if self._silent[i] > self.timeout:
                        self._lose(i, f"has given no sign for {self.timeout} s")
                before = now
                if now - said > pause:
                    said = now
                    for i in self._peers:
                        self._send(i, {})

    def _read(self, i, peer):
        try:
            received = peer.recv(65536)
        except OSError as error:
            return self._lose(i, f"cannot be heard any more: {error}")
        if not received:
            return self._lose(i, "was killed or has failed")
        self._silent[i] = 0.0
        data = self._buffers[peer] + received
        while len(data) >= 4 and len(data) >= 4 + struct.unpack(">I", data[:4])[0]:
            size = 4 + struct.unpack(">I", data[:4])[0]
            self._take(i, json.loads(data[4:size]))
            data = data[size:]
        self._buffers[peer] = data

    def _take(self, i, message):
        if "lost" in message:
            return self._lose(*message["lost"])
        with self._changed:
            if self.process == 0 and message:
                self._texts[i].append(message)
            elif message:
                self._answers.append(message["texts"])
                self._over = self._over or "bye" in message
            self._changed.notify_all()

    def _lose(self, i, why):
        if self.lost or self._over:
            return
        where = f" at {self._names[i]}" if i in self._names else ""
        self.lost = (
            f"Process {self.process} of {self.processes} lost process {i}{where}, which {why}; see "
            "its output. Start all again with the same command: training goes on from the last "
            "checkpoint."
        )
        # At once: engines abort a process without asking.
        os.write(2, f"{self.lost}\n".encode())
        for other in self._peers if self.process == 0 else ():
            with contextlib.suppress(OSError):
                self._peers[other].sendall(pack({"lost": [i, why]}))
        with self._changed:
            self._changed.notify_all()
        end = threading.Timer(_GRACE, os._exit, [1])
        end.daemon = True
        end.start()


def engine_versions(*modules):
    """What processes must have the same versions of, as text by name."""
    versions = {"python": ".".join(platform.python_version_tuple()[:2]), "keras_vit": __version__}
    return versions | {module.__name__: module.__version__ for module in (keras, *modules)}


def begin_alike(meeting):
    """Gives all processes the same random state, where they have not got it: they make one model.

    Keras draws the seeds of layers from Python's generator.
    """
    from keras_vit.workarounds import set_random_seed

    seeds = meeting.gather(str(random.Random(str(random.getstate())).randrange(2**31)))
    if len(set(seeds)) > 1:
        set_random_seed(int(seeds[0]))
