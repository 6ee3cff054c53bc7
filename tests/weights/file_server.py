"""A web server on this machine that misbehaves as it is told to."""

import dataclasses
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclasses.dataclass
class Answer:
    """What the server does with one request.

    Attributes:
        content: the whole file.
        status, headers: as they go out.
        stop_after: bytes after which the connection is cut.
        length: what `Content-Length` says instead of the truth; "" leaves it out.
        before: seconds to wait before anything is sent.
        pieces: bytes that are sent at a time, with a pause after each; 0 for all at once.
    """

    content: bytes = b""
    status: int = 200
    headers: dict = dataclasses.field(default_factory=dict)
    stop_after: int | None = None
    length: int | str | None = None
    before: float = 0.0
    pieces: int = 0


class Server(ThreadingHTTPServer):
    """A server at `at` within a `with` block."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, handler):
        super().__init__(("127.0.0.1", 0), handler)
        self.at = f"http://127.0.0.1:{self.server_port}"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *error):
        self.shutdown()
        self.server_close()

    def handle_error(self, request, client_address):
        """A client that hangs up is part of the tests."""


class Handler(BaseHTTPRequestHandler):
    """Answers HEAD as GET, without a word on the terminal."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self.do_GET()

    def log_message(self, *args):
        pass


class FileServer(Server):
    """`with FileServer() as server:` serves what `server.add` has been given."""

    def __init__(self):
        super().__init__(_Handler)
        self.answers, self.requests = {}, []

    def add(self, path, *answers):
        """Sets the answers to the first, second... request of a path, and returns its URL.

        The last answer holds from then on.
        """
        self.answers[path] = list(answers)
        return self.at + path


class _Handler(Handler):
    def do_GET(self):
        path = self.path.split("?")[0]
        self.server.requests.append((self.command, path, self.headers))
        answers = self.server.answers.get(path, [Answer(b"not here", status=404)])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        time.sleep(answer.before)
        self.close_connection = True
        self.send_response(answer.status)
        for name, value in {"Content-Type": "application/octet-stream", **answer.headers}.items():
            self.send_header(name, value)
        length = len(answer.content) if answer.length is None else answer.length
        if length != "":
            self.send_header("Content-Length", length)
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command == "HEAD":
            return
        content = answer.content[: answer.stop_after]
        if answer.pieces:
            for i in range(0, len(content), answer.pieces):
                self.wfile.write(content[i : i + answer.pieces])
                self.wfile.flush()
                time.sleep(0.02)
        else:
            self.wfile.write(content)
