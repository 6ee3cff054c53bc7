"""Downloads: whatever the server, the network or the disk does, never a wrong file."""

import json
import socket
import subprocess
import threading
from email.utils import formatdate
from urllib.request import Request

import pytest

from keras_vit.weights import progress, transfer, web
from keras_vit.weights.download import DownloadError, fetch
from tests.weights.file_server import Answer, sha256, start_process, wait_until

pytestmark = [pytest.mark.any_backend, pytest.mark.usefixtures("cache")]

CONTENT = bytes(range(256)) * 4096 * 3  # 3 MiB
NAME = "/models/ViT-B_16.npz"


def refused(url, *texts, **options):
    """The error of a fetch, which has all these texts."""
    with pytest.raises(DownloadError) as error:
        fetch(url, **options)
    for text in (url, *texts):
        assert text in str(error.value)
    assert not error.value.path.exists()
    return error.value


def part(path):
    return path.with_name(path.name + ".part")


def interrupted(server, count=1000, **options):
    """URL of a file of which the first `count` bytes have come; answers are left to be added."""
    url = server.add(NAME, Answer(CONTENT, stop_after=count, **options))
    error = refused(url, f"Received: {count} bytes so far", "Attempts: 1", retries=0)
    assert part(error.path).stat().st_size == count
    server.requests.clear()
    return url


def test_a_file_comes_once_with_its_record(server, cache):
    url = server.add(NAME, Answer(CONTENT))
    path = fetch(url)
    assert path.is_relative_to(cache)
    assert path.parts[-2:] == ("models", "ViT-B_16.npz")
    assert path.read_bytes() == CONTENT
    record = json.loads(path.with_name("ViT-B_16.npz.json").read_text())
    assert (record["url"], record["size"], record["etag"]) == (url, len(CONTENT), '"v1"')
    assert record["sha256"] == sha256(CONTENT)
    assert record["date"].endswith("Z")
    assert fetch(url, size=len(CONTENT), sha256=sha256(CONTENT).upper()) == path
    assert len(server.requests) == 1
    assert {file.name for file in path.parent.iterdir()} == {path.name, path.name + ".json"}


@pytest.mark.parametrize("content", [b"", b"x", CONTENT])
@pytest.mark.parametrize("length", [None, ""])
def test_of_any_length_known_or_not(server, content, length):
    url = server.add(NAME, Answer(content, length=length))
    assert fetch(url, progress=True, retries=0).read_bytes() == content


def test_what_broke_off_goes_on_where_it_stopped(server):
    url = interrupted(server)
    server.add(NAME, Answer(CONTENT))
    assert fetch(url).read_bytes() == CONTENT
    assert server.asked("Range") == ["bytes=1000-"]
    assert server.asked("If-Range") == ['"v1"']


def test_a_date_stands_in_for_an_etag(server):
    date = {"Last-Modified": formatdate(0, usegmt=True)}
    url = interrupted(server, etag='W/"weak"', headers=date)
    server.add(NAME, Answer(CONTENT, etag='W/"weak"', headers=date, if_range=False))
    assert fetch(url).read_bytes() == CONTENT
    assert server.asked("If-Range") == [date["Last-Modified"]]


def test_without_a_version_only_a_hash_allows_to_go_on(server):
    url = interrupted(server, etag=None)
    server.add(NAME, Answer(CONTENT, etag=None))
    assert fetch(url).read_bytes() == CONTENT
    assert server.asked("Range") == [None]
    fetch(url).unlink()
    interrupted(server, etag=None)
    server.add(NAME, Answer(CONTENT, etag=None))
    assert fetch(url, sha256=sha256(CONTENT)).read_bytes() == CONTENT
    assert server.asked("Range") == ["bytes=1000-"]


@pytest.mark.parametrize(
    "then",
    [
        Answer(CONTENT[::-1], etag='"v2"'),
        Answer(CONTENT[::-1], etag='"v2"', if_range=False),
        Answer(CONTENT[::-1], ranges=False),
        Answer(CONTENT[:500], if_range=False),
        Answer(CONTENT[:2000], if_range=False),
        Answer(CONTENT, shift=-1),
        Answer(CONTENT, shift=1),
    ],
)
def test_what_does_not_continue_starts_again(server, then):
    url = interrupted(server)
    server.add(NAME, then)
    assert fetch(url, retries=0).read_bytes() == then.content


def test_a_part_that_is_complete_only_wants_its_name(server):
    url = interrupted(server)
    path = refused(url, retries=0).path
    server.requests.clear()
    part(path).write_bytes(CONTENT)
    assert fetch(url).read_bytes() == CONTENT
    assert server.requests == []


def test_a_connection_that_keeps_breaking(server):
    url = server.add(NAME, Answer(CONTENT, stop_after=1_100_000))
    assert fetch(url, retries=1).read_bytes() == CONTENT, "each attempt got a MiB further"
    url = server.add("/small.npz", Answer(CONTENT, stop_after=1000, ranges=False))
    refused(url, "broke off after 1000 of 3145728 bytes", "Attempts: 3", retries=2)


@pytest.mark.parametrize("extra", [1, 2_000_000])
def test_more_than_was_announced(server, extra):
    url = server.add(NAME, Answer(CONTENT, length=len(CONTENT) - extra))
    error = refused(url, f"announced {len(CONTENT) - extra} bytes and sent more")
    assert not part(error.path).exists()


def test_less_than_was_announced(server):
    url = server.add(NAME, Answer(CONTENT, length=len(CONTENT) + 5))
    refused(url, "of 3145733 bytes", "Attempts: 2", retries=1)


def test_a_server_that_does_not_hang_up(server):
    url = server.add(NAME, Answer(b"weights", hold=threading.Event()))
    assert fetch(url, timeout=0.3, retries=0).read_bytes() == b"weights"


def test_the_wrong_bytes(server):
    url = server.add(NAME, Answer(CONTENT))
    expected = sha256(b"other")
    error = refused(url, f"Expected: sha256 {expected}", sha256(CONTENT), sha256=expected)
    assert not part(error.path).exists()
    refused(url, "expected 7 bytes, but the server has 3145728", size=7)
    server.add(NAME, Answer(CONTENT, length=""))
    refused(url, "Expected: 7\n  Received: 3145728", size=7)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Answer(status=404), "no such file (HTTP 404)"),
        (Answer(status=403), "private or gated"),
        (Answer(status=401), "HF_TOKEN"),
        (Answer(status=418), "HTTP 418"),
        (Answer(status=204), "HTTP 204"),
        (Answer(status=206), "HTTP 206"),
        (Answer(status=429, headers={"Retry-After": "4000"}), "asks to wait 4000 s"),
        (Answer(CONTENT, headers={"Content-Encoding": "gzip"}), "packed the file with gzip"),
        (
            Answer(b"<html>Please\nlog in", headers={"Content-Type": "text/html; charset=utf-8"}),
            "web page (text/html) came instead of the file: '<html>Please log in'",
        ),
    ],
)
def test_what_no_further_attempt_would_mend(server, answer, text):
    refused(server.add(NAME, answer), text, "Attempts: 1")
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_what_passes(server, status):
    busy = Answer(status=status, headers={"Retry-After": "0"})
    assert fetch(server.add(NAME, busy, busy, Answer(CONTENT))).read_bytes() == CONTENT
    refused(server.add("/x", busy), f"HTTP {status}", "Attempts: 2", retries=1)


def test_the_server_says_how_long_to_wait(server, monkeypatch):
    waited = []
    monkeypatch.setattr(transfer.time, "sleep", waited.append)
    date = formatdate(transfer.time.time() + 100, usegmt=True)
    busy = [Answer(status=429, headers={"Retry-After": value}) for value in ("7", date, "soon")]
    fetch(server.add(NAME, *busy, Answer(CONTENT)))
    assert waited[0] == 7
    assert 90 < waited[1] <= 100
    assert waited[2] < 1


def test_silence_and_no_server_at_all(server):
    url = server.add(NAME, Answer(CONTENT, before=0.5))
    refused(url, "timed out", "Attempts: 2", timeout=0.05, retries=1)
    hanging = Answer(CONTENT, stop_after=1000, hold=threading.Event())
    refused(server.add("/x", hanging), "timed out", timeout=0.1, retries=0)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/x"
        refused(url, "no connection", "Attempts: 3", retries=2)


def test_redirects(server):
    there = server.add("/there", Answer(CONTENT))
    url = server.add(NAME, Answer(status=302, headers={"Location": there}))
    assert fetch(url).read_bytes() == CONTENT
    circle = server.add("/circle", Answer(status=302, headers={"Location": "/circle?again"}))
    server.add("/circle?again", Answer(status=302, headers={"Location": "/circle"}))
    refused(circle, "redirects lead nowhere")
    for number in range(12):
        server.add(f"/{number}", Answer(status=307, headers={"Location": f"/{number + 1}"}))
    server.add("/12", Answer(CONTENT))
    assert fetch(server.at + "/2").read_bytes() == CONTENT
    refused(server.at + "/1", "redirects lead nowhere")
    refused(server.add("/ftp", Answer(status=302, headers={"Location": "ftp://x/y"})), "ftp://x/y")
    with pytest.raises(DownloadError, match="not as safe"):
        web._Redirects().redirect_request(
            Request("https://a/b"), None, 302, "Found", {}, "http://a/b"
        )


def test_two_processes_and_some_threads_fetch_once(server, tmp_path):
    release, errors = threading.Event(), (tmp_path / "errors").open("w+")
    url = server.add(NAME, Answer(CONTENT, hold=release))
    processes = [start_process(url, errors) for _ in range(2)]
    wait_until(lambda: server.requests)
    threads = [threading.Thread(target=fetch, args=(url,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    wait_until(lambda: "Waiting" in (tmp_path / "errors").read_text())
    release.set()
    outputs = [process.communicate(timeout=20)[0] for process in processes]
    for thread in threads:
        thread.join()
    assert [process.returncode for process in processes] == [0, 0], errors.read()
    assert len(server.requests) == 1
    assert fetch(url).read_bytes() == CONTENT
    assert outputs == [f"{fetch(url)}\n"] * 2
    assert len((tmp_path / "errors").read_text().splitlines()) == 1


def test_whoever_waits_says_so_once(server, capfd):
    release = threading.Event()
    url = server.add(NAME, Answer(CONTENT, before=0.3, hold=release))
    release.set()
    threads = [threading.Thread(target=fetch, args=(url,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert capfd.readouterr().err == "Waiting for another download of ViT-B_16.npz to end.\n"


def test_a_killed_process_neither_blocks_nor_spoils(server, cache):
    hanging = Answer(CONTENT, stop_after=1_000_000, hold=threading.Event())
    url = server.add(NAME, hanging, Answer(CONTENT))
    process = start_process(url, subprocess.DEVNULL)
    wait_until(lambda: any(p.stat().st_size > 500_000 for p in cache.rglob("*.part")))
    process.kill()
    process.communicate()
    (here,) = (p.stat().st_size for p in cache.rglob("*.part"))
    assert fetch(url, sha256=sha256(CONTENT)).read_bytes() == CONTENT
    assert server.asked("Range") == [None, f"bytes={here}-"]


def test_an_interrupt_leaves_the_part(server, monkeypatch):
    def interrupt(self, count):
        raise KeyboardInterrupt

    url = server.add(NAME, Answer(CONTENT))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(progress.ProgressBar, "advance", interrupt)
        fetch(url)
    assert fetch(url).read_bytes() == CONTENT
    assert int(server.asked("Range")[1].strip("bytes=-")) > 0
