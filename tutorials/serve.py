"""Serves an exported classifier over HTTP, within limits for all that strangers may send.

    pip install -e ".[torch,export,serve]"  # in a checkout
    keras-vit export MODEL model.onnx --preprocess
    python tutorials/serve.py model.onnx --port 8000
    curl --data-binary @cat.jpg http://localhost:8000

The answer is JSON, {"predictions": [{"name": ..., "probability": ...}, ...]}, the most probable
class first, or {"error": ...} with a status of 400 and more. `keras_vit` reads the image, as in
`keras_vit.predict`; onnxruntime runs the model; waitress speaks HTTP.
"""

import argparse
import concurrent.futures
import contextlib
import io
import json
import select
import socket
import time
import warnings
import weakref

import numpy as np
import onnxruntime
from PIL import Image, UnidentifiedImageError
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser
from waitress.server import TcpWSGIServer
from waitress.task import ErrorTask
from waitress.utilities import BadRequest, Error

from keras_vit import Preprocessing
from keras_vit.data import preprocess

BYTES = 10_000_000  # of a body; waitress keeps large ones on the disk
PIXELS = 25_000_000  # of an image, as it is stored and as it is resized
DECODING = 10  # seconds for an image; a JPEG of 10 MB can repeat its scans for an hour
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")  # a tiny TIFF can have a tile of a gigabyte
SECONDS = 20  # for a request to arrive
CONNECTIONS = 500  # open at once; a silent one costs a socket
REQUESTS = 64  # with a body at once, from their headers to their answers; the next one gets 503
DECODERS = 2  # images read at once, which bounds the memory
HELP = (
    f"POST one image file to /, {', '.join(FORMATS)}, of at most {BYTES:,} bytes and {PIXELS:,} "
    "pixels, as curl --data-binary @FILE does."
)


class Body(io.BytesIO):
    """The bytes of an image file, which nobody reads for longer than `DECODING`."""

    def __init__(self, content):
        super().__init__(content)
        self.end = time.monotonic() + DECODING

    def read(self, size=-1):
        if time.monotonic() > self.end:
            raise TimeoutError(f"decoding takes more than {DECODING} s")
        return super().read(size)


class Classifier:
    """The model of a file that `keras_vit.export(..., preprocess=True)` wrote."""

    def __init__(self, path, top=5):
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        metadata, self.top = self.session.get_modelmeta().custom_metadata_map, top
        source, output = metadata.get("input"), metadata.get("output")
        *_, channels = self.session.get_inputs()[0].shape
        if source != "uint8 pixels" or output == "features" or channels not in (1, 3):
            raise SystemExit(
                f"{path}: export a classifier of RGB or grayscale images with preprocess=True. "
                f"Received: {source} with {channels} channels -> {output}"
            )
        self.output = "probability" if output == "probabilities" else "value"
        self.names = json.loads(metadata.get("class_names", "null"))
        self.image_size = json.loads(metadata["image_size"])
        config = json.loads(metadata["preprocessing"])  # without the scale, which the file has
        config |= {"mean": (0,) * channels, "std": (1 / 255,) * channels}
        self.preprocessing = Preprocessing.from_config(config)

    def pixels(self, body):
        """The bytes of an image file -> uint8 of the model's size.

        Raises:
            ValueError: no image, or one beyond the limits; it is not decoded then.
        """
        try:
            image = Image.open(Body(body), formats=FORMATS)  # reads the header alone
        except UnidentifiedImageError as error:
            raise ValueError("no image of these formats") from error
        (height, width), short, long = self.image_size, *sorted(image.size)
        if max(long * short, long / short * height * width) > PIXELS:
            raise ValueError(f"too many pixels, {image.width} x {image.height}")
        image.decodermaxblock = 4096  # bytes at a time, between which `Body` looks at the clock
        image.load()
        pixels = preprocess(image, preprocessing=self.preprocessing, image_size=self.image_size)
        return np.rint(pixels).clip(0, 255).astype(np.uint8)

    def __call__(self, body):
        """The bytes of an image file -> (HTTP status, answer)."""
        try:
            pixels = self.pixels(body)
        # Of errors Pillow's decoders know no common type; those of damaged files are many.
        except Exception as error:
            return "400 Bad Request", {"error": f"No image that can be read: {error}. {HELP}"}
        (outputs,) = self.session.run(None, {"images": pixels})[0]
        names, order = self.names or list(map(str, range(len(outputs)))), range(len(outputs))
        if self.output == "probability":
            order = np.argsort(-outputs, kind="stable")[: self.top]
        best = [{"name": names[i], self.output: float(outputs[i])} for i in order]
        return "200 OK", {"predictions": best}


def application(classifier):
    """The WSGI application, which waitress calls in a thread for each request that has arrived."""
    decoders = concurrent.futures.ThreadPoolExecutor(DECODERS)

    def answer(environ, start_response):
        if environ["PATH_INFO"] != "/":
            status, content = "404 Not Found", {"error": HELP}
        elif environ["REQUEST_METHOD"] != "POST":
            status, content = "405 Method Not Allowed", {"error": HELP}
        elif environ.get("CONTENT_LENGTH", "0") == "0":
            status, content = "411 Length Required", {"error": f"No body. {HELP}"}
        else:
            body = environ["wsgi.input"].read
            status, content = decoders.submit(lambda: classifier(body())).result()
        content = json.dumps(content, allow_nan=False).encode()
        length, form = ("Content-Length", str(len(content))), ("Content-Type", "application/json")
        start_response(status, [form, length, ("Allow", "POST")])
        return [content]

    return answer


# What follows is how waitress keeps the limits, and answers in JSON what does not reach the above.


class Refusal(ErrorTask):
    """The answer to a request that the parser or the server refused."""

    def execute(self):
        error = self.request.error
        body = json.dumps({"error": f"{error.reason}: {error.body}. {HELP}"}).encode()
        headers = [("Content-Type", "application/json")]
        headers += [("Retry-After", "5")] * (error.code == 503)
        error.to_response = lambda ident: (f"{error.code} {error.reason}", headers, body)
        super().execute()


class Busy(Error):
    code, reason = 503, "Service Unavailable"


class Late(Error):
    code, reason = 408, "Request Timeout"


WITH_BODY = weakref.WeakSet()  # the requests that count


class Parser(HTTPRequestParser):
    def received(self, data):
        try:
            consumed = super().received(data)
        except ValueError as error:  # a number or an address that is none
            self.error = BadRequest(error)
        if self.body_rcv is not None and self.error is None and self not in WITH_BODY:
            if len(WITH_BODY) < REQUESTS:
                WITH_BODY.add(self)
            else:
                self.error = Busy("too many requests at once; come again in some seconds")
        if self.error is None:
            return consumed
        self.completed, self.expect_continue = True, False  # nor is the body waited for
        return len(data)


class Channel(HTTPChannel):
    """A connection. After its last answer it reads on, or the client would miss the answer."""

    parser_class, error_task_class, answered = Parser, Refusal, False

    def readable(self):
        return self.answered or super().readable()

    def received(self, data):
        return not self.answered and super().received(data)

    def handle_read(self):
        start, begun = self.last_activity, self.answered or self.request is not None
        super().handle_read()
        if begun:  # a byte now and then does not buy another 20 seconds
            self.last_activity = start

    def handle_write(self):
        if self.close_when_flushed and not self.total_outbufs_len:
            self.close_when_flushed, self.answered = False, True
            with contextlib.suppress(OSError):  # the client may have gone
                self.socket.shutdown(socket.SHUT_WR)
        super().handle_write()


class Server(TcpWSGIServer):
    channel_class = Channel

    def maintenance(self, now):
        for channel in self.active_channels.values():
            request, late = channel.request, channel.last_activity < now - SECONDS
            if late and request is not None and not channel.requests:
                request.error, channel.request = Late(f"more than {SECONDS} s"), None
                channel.requests.append(request)
                self.add_task(channel)
        super().maintenance(now)  # closes connections without a request


def serve(path, port=8000, top=5):
    """The server, for `run()`; port 0 takes a free one, `effective_port` tells it."""
    return Server(
        application(Classifier(path, top)),
        host="127.0.0.1",
        port=port,
        threads=REQUESTS + 1,  # one is left to say 503
        connection_limit=CONNECTIONS,
        asyncore_use_poll=hasattr(select, "poll"),
        channel_timeout=SECONDS,
        cleanup_interval=1,
        max_request_header_size=8192,
        max_request_body_size=BYTES,
    )


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="an ONNX file, exported with preprocess=True")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--top", type=int, default=5, help="classes to tell (default: 5)")
    args = parser.parse_args(arguments)
    if args.top < 1:
        parser.error(f"--top must be 1 or more. Received: {args.top}")
    warnings.filterwarnings("ignore", module="PIL")  # a small image can cause thousands
    server = serve(args.model, args.port, args.top)
    print(f"http://localhost:{server.effective_port}", flush=True)
    server.run()  # until Ctrl-C


if __name__ == "__main__":
    main()
