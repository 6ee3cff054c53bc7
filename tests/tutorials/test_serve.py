"""The server of an exported model: it answers as `keras_vit.predict` does, whatever others send."""

import contextlib
import http.client
import importlib
import io
import json
import os
import pathlib
import select
import socket
import subprocess
import sys
import threading

import numpy as np
import onnx
import pytest
from PIL import Image

import keras_vit
from keras_vit import Preprocessing
from tests.support import ROOT, randomize, refuses, tiny_vit

pytest.importorskip("waitress")
pytestmark = pytest.mark.any_backend

# In a process of its own, whose memory and threads are counted; small limits are soon reached.
LIMITS = {"SECONDS": 2, "DECODING": 1, "REQUESTS": 4, "PIXELS": 1_000_000, "BYTES": 3_000_000}
PROGRAM = """
import sys
import tests.bare
from tutorials import serve
vars(serve).update({limits})
serve.main([sys.argv[1], "--port", "0", "--top", "2"])
"""


@pytest.fixture(scope="module")
def model():
    model = randomize(tiny_vit())
    model.class_names = ("cat", "dog", "owl")
    how = {"resize": "shortest", "interpolation": "bicubic", "library": "pillow"}
    model.preprocessing = Preprocessing(**how)
    return model


@pytest.fixture(scope="module")
def path(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("serve") / "model.onnx"
    return keras_vit.export(model, path, preprocess=True).path


@contextlib.contextmanager
def running(path):
    command = [sys.executable, "-c", PROGRAM.format(limits=LIMITS), str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            process.port = int(process.stdout.readline().rpartition(":")[2])
            yield process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def server(path):
    with running(path) as process:
        yield process


def request(server, body, method="POST", path="/", **headers):
    """(status, answer, headers)"""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    with contextlib.closing(connection):
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read()), response.headers


def connect(server, *sent):
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    for data in sent:
        connection.sendall(data)
    return connection


def reply(connection):
    """(status, answer) of a connection that the server closes."""
    with connection, connection.makefile("rb") as file:
        head, _, body = file.read().partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(body)


def stored(image, format="PNG", **options):
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def photograph(height=37, width=53, channels=3):
    """Smooth, so that a JPEG is like it."""
    rows, columns = np.mgrid[:height, :width]
    waves = [120 + 110 * np.sin(rows / (5 + i) + columns / (7 - i)) for i in range(channels)]
    return np.stack(waves, axis=-1).astype("uint8")


def files():
    image = Image.fromarray(photograph())
    deep = (photograph()[..., 0].astype("uint16") + 7) * 200
    turned, clear = Image.Exif(), Image.fromarray(photograph(channels=4), "RGBA")
    turned[0x0112] = 6
    return {
        "RGB": stored(image),
        "16 bits": stored(Image.fromarray(deep)),
        "gray": stored(image.convert("L")),
        "one bit": stored(image.convert("1")),
        "palette": stored(image.convert("P"), transparency=3),
        "transparent": stored(clear),
        "gray and transparent": stored(clear.convert("LA")),
        "JPEG on its side": stored(image, "JPEG", exif=turned),
        "CMYK": stored(image.convert("CMYK"), "JPEG"),
        "progressive": stored(image, "JPEG", progressive=True),
        "two JPEGs": stored(image, "MPO", save_all=True, append_images=[image.rotate(90)]),
        "WebP": stored(image, "WEBP"),
        "moving": stored(image, "GIF", save_all=True, append_images=[image.rotate(180)]),
        "BMP": stored(image, "BMP"),
    }


@pytest.mark.parametrize("name", files())
def test_an_image_is_answered_as_by_predict(server, model, tmp_path, name):
    content, file = files()[name], tmp_path / "image"
    file.write_bytes(content)
    status, answer, _ = request(server, content)
    (expected,) = keras_vit.predict(model, file, top=2)
    assert status == 200
    assert [each["name"] for each in answer["predictions"]] == [each.label for each in expected]
    received = [each["probability"] for each in answer["predictions"]]
    np.testing.assert_allclose(received, [each.probability for each in expected], atol=1e-5)


def test_resizes_of_tensorflow_differ_by_the_rounding_of_the_files_bytes(path, tmp_path):
    serve, other = importlib.import_module("tutorials.serve"), onnx.load(path)
    how = Preprocessing(crop_fraction=0.8, mean=(0.2, 0.4, 0.5), std=(0.1, 0.2, 0.3))
    props = {prop.key: prop.value for prop in other.metadata_props}
    props["preprocessing"] = json.dumps(how.to_config())
    onnx.helper.set_model_props(other, props)
    onnx.save(other, tmp_path / "model.onnx")
    classifier = serve.Classifier(str(tmp_path / "model.onnx"))
    (tmp_path / "image").write_bytes(files()["16 bits"])
    options = {"preprocessing": how, "image_size": classifier.image_size}
    expected = keras_vit.data.preprocess(tmp_path / "image", **options)
    scaled = (classifier.pixels(files()["16 bits"]) / 255 - how.mean) / how.std
    np.testing.assert_allclose(scaled, expected, atol=0.51 / 255 / 0.1)


def progressive_bomb():
    """Its last scan changes nothing, and does so 20,000 times."""
    content = stored(Image.new("L", (999, 999), 128), "JPEG", progressive=True)
    last = content[content.rindex(b"\xff\xda") : -2]
    return content[:-2] + 20_000 * last + content[-2:]


def test_what_is_no_image_or_beyond_the_limits_is_refused(server):
    whole = stored(Image.new("RGB", (40, 40)))
    refused = {
        "no image": b"not an image",
        "truncated": whole[: len(whole) // 2],
        "formats": stored(Image.new("RGB", (40, 40)), "TIFF"),
        "too many pixels, 2000 x 2000": stored(Image.new("L", (2000, 2000))),
        "too many pixels, 1 x 90000": stored(Image.new("L", (1, 90000))),  # resized, a large one
        "more than 1 s": progressive_bomb(),
    }
    for reason, content in refused.items():
        status, answer, _ = request(server, content)
        assert status == 400 and reason in answer["error"] and "POST one image" in answer["error"]
    assert request(server, whole)[0] == 200  # and it goes on


def test_requests_that_are_none_get_an_answer(server):
    body = stored(Image.new("RGB", (40, 40)))
    wrong = {("GET", "/"): 405, ("PUT", "/"): 405, ("POST", "/classify"): 404}
    for (method, path), expected in wrong.items():
        status, answer, _ = request(server, body, method, path)
        assert status == expected and "POST one image" in answer["error"]
    assert request(server, b"")[0] == request(server, None)[0] == 411
    parts = "a" * 65536 + "\r\n10000\r\n"
    headers = {
        "Content-Length: many": 400,
        "Content-Length: -5": 400,
        "Content-Length: +5": 400,
        "Content-Length: 5\r\nContent-Length: 6": 400,
        f"Content-Length: {'9' * 5000}": 400,
        "Content-Length: 999999999999": 413,
        "Content-Length: 999999999999\r\nExpect: 100-continue": 413,
        "Transfer-Encoding: gzip": 501,
        "Transfer-Encoding: chunked\r\n\r\nfive\r\n": 400,
        f"Transfer-Encoding: chunked\r\n\r\n10000\r\n{70 * parts}": 413,
        "no colon": 400,
        f"X: {'a' * 100_000}": 431,
    }
    for header, expected in headers.items():
        status, answer = reply(connect(server, f"POST / HTTP/1.1\r\n{header}\r\n\r\n".encode()))
        assert (status, "POST one image" in answer["error"]) == (expected, True), header[:60]
    for line in (b"GARBAGE", b"\x16\x03\x01", b"POST http://[ HTTP/1.1"):
        assert reply(connect(server, line, b"\r\n\r\n"))[0] == 400


def test_a_body_in_chunks_and_one_that_is_too_large(server):
    """Its client sees the answer, though it reads nothing before it has sent all."""
    status, answer, _ = request(server, bytes(30_000_000))
    assert status == 413 and "3000000" in answer["error"]
    content = files()["RGB"]
    parts = (content[i : i + 1000] for i in range(0, len(content), 1000))
    assert request(server, parts)[:2] == request(server, content)[:2]


def memory_and_threads(server):
    lines = pathlib.Path(f"/proc/{server.pid}/status").read_text().splitlines()
    found = dict(line.split(":\t") for line in lines if ":\t" in line)
    return int(found["VmRSS"].split()[0]) * 1024, int(found["Threads"])


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="Linux tells what is used")
def test_silent_and_slow_clients_take_no_memory_and_no_threads_and_are_given_up(server):
    content = files()["RGB"]
    request(server, content)
    memory, threads = memory_and_threads(server)
    silent = [connect(server) for _ in range(200)]
    slow = connect(server, b"POST / HTTP/1.1\r\n")
    unfinished = [
        connect(server, b"POST / HTTP/1.1\r\nContent-Length: 2999999\r\n\r\n", bytes(2_000_000))
        for _ in range(LIMITS["REQUESTS"] - 1)
    ]
    assert request(server, content)[0] == 200
    more, same = memory_and_threads(server)
    assert more - memory < 50e6 and same <= threads + 1
    unfinished.append(connect(server, b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n"))
    status, answer, headers = request(server, content)
    assert (status, "too many" in answer["error"], headers["Retry-After"]) == (503, True, "5")
    for _ in range(60):  # a byte now and then buys no time
        slow.sendall(b"X")
        if select.select([slow], [], [], 0.1)[0]:
            break
    else:
        pytest.fail("a slow client is waited for")
    assert {reply(connection)[0] for connection in (slow, *unfinished)} == {408}
    assert {connection.recv(1) for connection in silent} == {b""}
    assert request(server, content)[0] == 200


def test_many_requests_at_once_are_answered_or_told_to_come_again(server):
    answers, content = [], stored(Image.fromarray(photograph(900, 900)))
    client = lambda: answers.append(request(server, content)[:2])  # noqa: E731
    threads = [threading.Thread(target=client) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    good = [answer for status, answer in answers if status == 200]
    assert {status for status, _ in answers} <= {200, 503} and len(answers) == 30
    assert len(good) >= LIMITS["REQUESTS"] and all(answer == good[0] for answer in good)


def test_other_files_are_refused(path, tmp_path):
    serve, plain = importlib.import_module("tutorials.serve"), onnx.load(path)
    del plain.metadata_props[:]
    onnx.save(plain, tmp_path / "model.onnx")
    refuses("preprocess=True", serve.Classifier, str(tmp_path / "model.onnx"), error=SystemExit)
