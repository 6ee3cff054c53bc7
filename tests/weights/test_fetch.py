"""Downloads from a server on this machine: whole and right, or not at all, and helpful errors."""

import base64
import hashlib
import os
import signal
import subprocess
import sys
import time

import pytest

from keras_vit.weights.downloads import DownloadError, cache_dir, https_address, place_of
from keras_vit.weights.fetch import fetch
from tests.support import ROOT, refuses
from tests.weights.file_server import Answer

pytestmark = pytest.mark.any_backend

CONTENT = bytes(range(256)) * 40
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def files_in(cache):
    """What has a name in the cache."""
    return [path.name for path in cache.glob("*")]


def refused(url, *words, **options):
    with pytest.raises(DownloadError) as error:
        fetch(url, **{"retries": 0, **options})
    for word in words:
        assert word in str(error.value)


def test_a_file_is_downloaded_once(cache, server):
    url = server.add("/models/vit.npz", Answer(CONTENT))
    path = fetch(url)
    assert path.read_bytes() == CONTENT
    assert path.parent == cache and path.name.endswith("-vit.npz")
    assert fetch(url, size=len(CONTENT), sha256=SHA256.upper()) == path
    assert fetch(url + ":img") == path, "a subtree is part of the same file"
    assert len(server.requests) == 1
    assert files_in(cache) == [path.name]


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path))
    assert cache_dir() == tmp_path
    monkeypatch.delenv("KERAS_VIT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "keras_vit"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "keras_vit"


def test_every_url_has_a_place_of_its_own_inside_the_cache(cache):
    ends = "model model.json model.npz model%2Enpz ../model .. a/.. model?x=1 model?x=2 é".split()
    urls = [https_address(f"{scheme}://host/{end}") for scheme in ("http", "https") for end in ends]
    assert len({place_of(url) for url in urls}) == len(urls)
    assert all(place_of(url).resolve().parent == cache.resolve() for url in urls)


def test_addresses_of_google_cloud_storage():
    address = "https://storage.googleapis.com/bucket/a%20b/x%2By.npz"
    assert https_address("gs://bucket/a b/x+y.npz") == address


@pytest.mark.parametrize(
    "source",
    ["vit.npz", "ftp://host/file", "https://host", "https://host/", "gs://bucket", "https:///file",
     "https://user:word@host/file", "hf://name", "hf://a/b/../c", "hf://a/b//c", "kaggle://a/b"],
)  # fmt: skip
def test_what_is_no_source(cache, source):
    with pytest.raises(ValueError, match="Received") as error:
        fetch(source)
    assert "user:word" not in str(error.value)


@pytest.mark.parametrize("options", [{"size": 7}, {"sha256": "0" * 64}], ids=str)
def test_another_file_than_the_expected_one(cache, server, options):
    url = server.add("/vit.npz", Answer(CONTENT))
    refused(url, "Could not download", **options)
    assert files_in(cache) == []
    fetch(url)
    refused(url, "not what it should be", "Delete it", **options)


def test_the_hash_that_google_announces_is_compared(cache, server):
    def headers(content):
        digest = base64.b64encode(hashlib.md5(content).digest()).decode()
        return {"x-goog-hash": f"crc32c=AAAAAA==, md5={digest}"}

    refused(server.add("/bad.npz", Answer(CONTENT, headers=headers(b"other"))), "MD5")
    assert files_in(cache) == []
    assert fetch(server.add("/good.npz", Answer(CONTENT, headers=headers(CONTENT)))).is_file()


@pytest.mark.parametrize(
    "answer, words",
    [
        (Answer(b"gone", status=404), "HTTP 404"),
        (Answer(b"private", status=403), "HTTP 403"),
        (Answer(b"broken", status=503), "503"),
        (Answer(b"<html>", headers={"Content-Type": "text/html"}), "a web page"),
        (Answer(CONTENT, headers={"Content-Encoding": "gzip"}), "packed the file"),
        (Answer(CONTENT, stop_after=1000), "Connection broken"),
        (Answer(CONTENT, length=len(CONTENT) + 1), "Connection broken"),
        (Answer(CONTENT, length=""), "how large the file is"),
        (Answer(b"", status=302, headers={"Location": "ftp://127.0.0.1/x"}), "redirects"),
        (Answer(b"", status=302, headers={"Location": "http://[::1"}), "Could not download"),
        (Answer(b"", status=302, headers={"Location": "/loop"}), "redirects"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_the_whole_file_is_not_kept(cache, server, answer, words):
    url = server.add("/loop", answer)
    refused(url, "Could not download", words, str(place_of(url)), "KERAS_VIT_OFFLINE")
    assert files_in(cache) == []


def test_more_than_was_announced_is_not_taken(cache, server):
    """HTTP ends the file there: a server that goes on has its say in vain."""
    path = fetch(server.add("/file", Answer(CONTENT, length=1000)))
    assert path.read_bytes() == CONTENT[:1000]
    refused(server.add("/endless", Answer(CONTENT * 1000, length="")), "bytes", size=1000)
    url = server.add("/unsaid", Answer(CONTENT, length=""))
    assert fetch(url, size=len(CONTENT)).read_bytes() == CONTENT


def test_failures_in_passing_are_tried_again(cache, server, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds, sleep=time.sleep: sleep(min(seconds, 0.05)))
    bad = [Answer(b"", status=503), Answer(CONTENT, stop_after=500)]
    url = server.add("/file", *bad, Answer(CONTENT))
    refused(url, "503", retries=0)
    assert fetch(url, retries=2).read_bytes() == CONTENT
    assert len(server.requests) == 3


def test_a_name_that_is_not_there_is_asked_for_once(cache, server):
    refused(server.at + "/nothing", "HTTP 404", retries=4)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "answer, words, seconds",
    [(Answer(CONTENT, before=30), "", 25), (Answer(CONTENT, pieces=1), "sent only", 5)],
    ids=["silence", "trickle"],
)
def test_a_server_that_sends_too_little_is_left(cache, server, answer, words, seconds):
    start = time.monotonic()
    refused(server.add("/slow", answer), words, timeout=0.2)
    assert time.monotonic() - start < seconds


def test_offline(cache, server, monkeypatch):
    url = server.add("/file", Answer(CONTENT))
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    refused(url, "offline mode", str(place_of(url)))
    assert server.requests == []
    fetch(url, offline=False)
    assert fetch(url).read_bytes() == CONTENT
    assert len(server.requests) == 1


def test_a_pipe_in_the_cache(cache):
    cache.mkdir()
    os.mkfifo(place_of("https://example.org/pipe.npz"))
    with pytest.raises(DownloadError, match="which is a pipe"):
        fetch("https://example.org/pipe.npz", sha256="0" * 64)


def test_a_cache_that_cannot_be_written(monkeypatch, tmp_path, server):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "file" / "cache"))
    refused(server.add("/x", Answer(CONTENT)), "KERAS_VIT_CACHE")


# The package itself would import Keras, which takes seconds and has no part in a download.
_ALONE = """
import sys, types
for name in ("keras_vit", "keras_vit.weights"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [name.replace(".", "/")]
from keras_vit.weights.fetch import fetch
print(fetch(sys.argv[1], size=int(sys.argv[2]), timeout=20))
assert not {"keras", "numpy"} & set(sys.modules)
"""


def start(url, size):
    return subprocess.Popen(
        [sys.executable, "-c", _ALONE, url, str(size)],
        cwd=ROOT, env=dict(os.environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_a_killed_download_never_looks_complete_and_two_processes_take_turns(cache, server):
    content = CONTENT * 50
    url = server.add("/file", Answer(content, pieces=2000), Answer(content, before=0.5))
    killed = start(url, len(content))
    while not any(path.stat().st_size for path in cache.glob("tmp*")):
        assert killed.poll() is None, killed.stderr.read()
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert not place_of(url).exists()
    both = [start(url, len(content)) for _ in range(2)]
    outputs = [process.communicate(timeout=60) for process in both]
    assert [out.strip() for out, _ in outputs] == [str(place_of(url))] * 2, outputs
    assert place_of(url).read_bytes() == content
    assert len(server.requests) == 2, "the second of the two waits for the first"


# ---- Hugging Face, whose own client talks to the server


def serve(hub, files, name="org/model"):
    """Gives the hub a repository, and returns its address."""
    hub.repositories[name] = files
    return f"hf://{name}"


REPOSITORY = {"config.json": b"{}", "model.safetensors": CONTENT, "README.md": b"x"}


def test_a_repository(hub):
    folder = fetch(serve(hub, REPOSITORY))
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    assert (folder / "model.safetensors").read_bytes() == CONTENT
    hub.repositories.clear()
    assert fetch("hf://org/model", offline=True) == folder, "nobody is asked"


def test_weights_in_several_files(hub):
    parts = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    files = {"model.safetensors.index.json": b"{}", **dict.fromkeys(parts, b"x")}
    folder = fetch(serve(hub, files))
    assert {path.name for path in folder.iterdir()} == set(files)


def test_one_file_of_a_repository(hub):
    name = serve(hub, {"weights/vit.npz": CONTENT})
    path = fetch(f"{name}@main/weights/vit.npz", size=len(CONTENT), sha256=SHA256)
    assert path.read_bytes() == CONTENT
    refused(f"{name}/weights/vit.npz", "not what it should be", size=3)


def test_another_content_than_the_hub_announced(hub):
    """Of the same size, as after a bit that flipped on the disk or in a cache on the way."""
    name = serve(hub, REPOSITORY)
    folder = fetch(name)
    (folder / "model.safetensors").resolve().write_bytes(CONTENT[::-1])
    refused(name, "not what it should be", "altered", offline=True)
    refused(f"{name}/model.safetensors", "not what it should be", offline=True)


def test_a_repository_that_is_not_there_or_has_no_single_hash(hub):
    refused("hf://org/nothing", "huggingface_hub could not get", "HF_TOKEN")
    refused("hf://org/nothing", "KERAS_VIT_OFFLINE", offline=True)
    refuses("names a folder", fetch, serve(hub, REPOSITORY), size=3)
