"""A web server on this machine that misbehaves as it is told to."""

import dataclasses
import hashlib
import os
import re
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).parents[2]

# The package itself would import Keras, which takes seconds and has no part in a download.
_ALONE = """
import sys, types
root, source = sys.argv[1:]
for name in ("keras_vit", "keras_vit.weights"):
    package = sys.modules[name] = types.ModuleType(name)
    package.__path__ = [root + "/" + name.replace(".", "/")]
from keras_vit.weights.download import fetch
print(fetch(source))
assert not {"keras", "numpy"} & set(sys.modules)
"""


@dataclasses.dataclass
class Answer:
    """What the server does with one request.

    Attributes:
        content: the whole file.
        status, headers: as they go out; 200 becomes 206 where a range is asked for.
        ranges: whether ranges are understood.
        if_range: whether `If-Range` is.
        etag: the version of the file; None for a file without one.
        stop_after: bytes after which the connection is cut.
        length: what `Content-Length` says instead of the truth; "" leaves it out.
        shift: how far a range begins from where it was asked to.
        hold: an event to wait for when the content has been sent.
        before: seconds to wait before anything is sent.
    """

    content: bytes = b""
    status: int = 200
    headers: dict = dataclasses.field(default_factory=dict)
    ranges: bool = True
    if_range: bool = True
    etag: str | None = '"v1"'
    stop_after: int | None = None
    length: int | str | None = None
    shift: int = 0
    hold: threading.Event | None = None
    before: float = 0.0


class FileServer(ThreadingHTTPServer):
    """`with FileServer() as server:` serves what `server.add` has been given."""

    daemon_threads = True
    block_on_close = False

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers, self.requests = {}, []
        self.at = f"http://127.0.0.1:{self.server_port}"

    def add(self, path, *answers):
        """Sets the answers to the first, second... request of a path, and returns its URL.

        The last answer holds from then on.
        """
        self.answers[path] = list(answers)
        return self.at + path

    def asked(self, header, path=None):
        """What each request had in a header."""
        return [headers.get(header) for where, headers in self.requests if path in (None, where)]

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *error):
        self.shutdown()
        self.server_close()

    def handle_error(self, request, client_address):
        """A client that hangs up is part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.requests.append((self.path, self.headers))
        answers = self.server.answers.get(self.path, [Answer(b"not here", status=404)])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer.before:
            time.sleep(answer.before)
        self.close_connection = True
        content, status, headers = self._part(answer)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content[: answer.stop_after])
        self.wfile.flush()
        if answer.hold is not None:
            answer.hold.wait(20)

    def _part(self, answer):
        headers = {"Content-Type": "application/octet-stream", **answer.headers}
        if answer.etag:
            headers["ETag"] = answer.etag
        content, status = answer.content, answer.status
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        current = self.headers.get("If-Range") in (None, answer.etag) or not answer.if_range
        if asked and answer.ranges and current and status == 200:
            start, total = int(asked[1]) + answer.shift, len(content)
            content, status = content[start:], 206
            headers["Content-Range"] = f"bytes {start}-{total - 1}/{total}"
            if start >= total:
                content, status = b"", 416
        length = len(content) if answer.length is None else answer.length
        if length != "":
            headers["Content-Length"] = length
        return content, status, headers

    def log_message(self, *args):
        pass


def isolate(monkeypatch, folder):
    """No proxy, no settings from outside, a cache in `folder`; returns the cache."""
    for name in ("KERAS_VIT_OFFLINE", "HF_HUB_OFFLINE", "HF_TOKEN", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    monkeypatch.setenv("KERAS_VIT_CACHE", str(folder / "cache"))
    return folder / "cache"


def start_process(source, errors):
    """A process of its own that fetches `source`, prints the path, and writes `errors`, a file."""
    return subprocess.Popen(
        [sys.executable, "-c", _ALONE, str(ROOT), source],
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        env=dict(os.environ),
    )


def wait_until(condition, seconds=15):
    """Waits for a condition that another thread or process brings about."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def sha256(content):
    return hashlib.sha256(content).hexdigest()
