"""The cache: where files lie, that they stay what they were, and that nothing leaves it."""

import errno
import io
import json
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from keras_vit.weights import cache as cache_module
from keras_vit.weights import transfer
from keras_vit.weights.cache import path_for
from keras_vit.weights.download import DownloadError, _url, cache_dir, fetch, split_subtree
from keras_vit.weights.progress import ProgressBar
from tests.weights.file_server import Answer, sha256

pytestmark = [pytest.mark.any_backend, pytest.mark.usefixtures("cache")]

CONTENT = b"weights" * 1000
NAME = "/models/ViT-B_16.npz"


def test_the_environment_decides_where(monkeypatch, tmp_path):
    assert cache_dir() == tmp_path / "cache"
    monkeypatch.delenv("KERAS_VIT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "keras_vit"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "keras_vit"
    monkeypatch.setenv("KERAS_VIT_CACHE", "~/mine")
    assert cache_dir() == tmp_path / "mine"


def test_names_of_google_cloud_storage():
    name = "gs://vit_models/augreg/B_16-i21k-300ep-lr_0.001-aug_medium1+x=0.1 ü%#?.npz"
    assert _url(name) == (
        "https://storage.googleapis.com/vit_models/augreg/"
        "B_16-i21k-300ep-lr_0.001-aug_medium1%2Bx%3D0.1%20%C3%BC%25%23%3F.npz"
    )
    plain = "augreg/B_16-lr_0.001+x=0.1.npz"
    path = path_for(_url(f"gs://vit_models/{plain}"))
    assert path == cache_dir() / "storage.googleapis.com" / "vit_models" / plain


@pytest.mark.parametrize("start", ["gs://big_vision/siglip/w", "hf://a/b/w", "/elsewhere/w", "w"])
def test_a_subtree_is_no_part_of_the_name(start):
    assert split_subtree(start + ".npz:img") == (start + ".npz", "img")
    assert split_subtree(start + ".npz:params/img") == (start + ".npz", "params/img")
    for whole in (start + ".npz", start, start + ".npz:"):
        assert split_subtree(whole) == (whole, None)
    assert split_subtree(Path("w.npz")) == ("w.npz", None)


def test_a_subtree_is_not_asked_for(server):
    assert fetch(server.add(NAME, Answer(CONTENT)) + ":img").name == "ViT-B_16.npz"


@pytest.mark.parametrize(
    "source",
    [
        "ViT-B_16",
        "/elsewhere/x.npz",
        "file:///etc/passwd",
        "ftp://a/b",
        "gs://bucket",
        "gs://../x",
        "gs://bucket/folder/",
        "https://host",
        "https://host/folder/",
        "https:///x",
        "https://[::1/x",
        "https://me:secret@host/x",
    ],
)
def test_what_names_no_file(source):
    with pytest.raises(ValueError) as error:
        fetch(source)
    assert "secret" not in str(error.value)


def test_kaggle_goes_its_own_way():
    with pytest.raises(ValueError, match=r"kagglehub.*pass the folder.*'kaggle://keras/vit"):
        fetch("kaggle://keras/vit/keras/vit_base")


@pytest.mark.parametrize(
    "options",
    [{"sha256": "abc"}, {"size": -1}, {"size": 1.5}, {"retries": None}, {"timeout": 0}],
)
def test_arguments_that_make_no_sense(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be.*Received"):
        fetch("https://host/x", **options)


HOSTILE = [
    "https://host/../../etc/passwd",
    "https://host/%2e%2e/%2E%2e/x",
    "https://host/..%2f..%2fx",
    "https://host/a//b",
    "https://host//etc/passwd",
    "https://host/%2fetc%2fpasswd",
    "https://host/..%5c..%5cx",
    "https://host/C:%5Cx",
    "https://host/x%00.npz",
    "https://host/.",
    "https://host/..",
    "https://host/.bashrc",
    "https://host/~",
    "https://host/x?a=../../b",
    "https://host/x.npz?" + "a" * 5000,
    "https://host/" + "a" * 5000,
    "https://host/" + "a" * 5000 + "b",
    "https://host/" + "a/" * 3000 + "x",
    "https://host/" + "a/" * 3001 + "x",
    "https://host/x.part",
    "https://host/x.lock",
    "https://host/x.npz.json",
    "https://host/x.npz.part.json",
    "https://host/%1b[2J",
    "https://host:8443/x",
    "https://[::1]/x",
    "http://host/x",
    "http://host:8443/x",
    "https://host/x",
    "https://host/x.npz",
]


def test_no_name_leaves_the_cache_or_meets_another(cache):
    places = [path_for(_url(url)) for url in HOSTILE]
    assert len(set(places)) == len(HOSTILE)
    for place in places:
        inside = place.relative_to(cache).parts
        assert all(re.fullmatch(r"[\w+=@,~.-]{1,150}", part, re.ASCII) for part in inside)
        assert not any(part.startswith(".") for part in inside)
        assert len(str(place)) < 2000
    besides = {f"{place}{end}" for place in places for end in (".part", ".part.json", ".lock")}
    assert not besides & set(map(str, places))
    assert places[-1] == cache / "host" / "x.npz"


@pytest.mark.parametrize("path", ["/a/%2e%2e/%2e%2e/x", "/x.npz?../../y", "/" + "a" * 3000])
def test_hostile_names_can_be_fetched_all_the_same(server, cache, path):
    url = server.add(path, Answer(CONTENT))
    assert fetch(url).read_bytes() == CONTENT
    assert fetch(url).is_relative_to(cache)
    assert [file.name for file in cache.parent.iterdir()] == ["cache"]
    assert len(server.requests) == 1


@pytest.mark.parametrize("by", ["argument", "KERAS_VIT_OFFLINE"])
def test_offline(server, cache, monkeypatch, by):
    url = server.add(NAME, Answer(CONTENT))
    options = {"offline": True} if by == "argument" else {}
    if not options:
        monkeypatch.setenv(by, "1")
    with pytest.raises(DownloadError) as error:
        fetch(url, **options)
    path = error.value.path
    assert url in str(error.value)
    assert f"put it at {path}." in str(error.value)
    assert not cache.exists()
    path.parent.mkdir(parents=True)
    path.write_bytes(b"by hand")
    assert fetch(url, **options).read_bytes() == b"by hand"
    assert server.requests == []
    path.unlink()
    assert fetch(url, offline=False).read_bytes() == CONTENT


def test_a_file_that_was_altered_is_refused(server):
    url = server.add(NAME, Answer(CONTENT))
    path = fetch(url)
    altered = b"WEIGHTS" + CONTENT[7:]
    path.write_bytes(altered)
    os.utime(path, ns=(0, 0))
    with pytest.raises(DownloadError, match="altered") as error:
        fetch(url)
    assert f"Expected: sha256 {sha256(CONTENT)}\n  Received: {sha256(altered)}" in str(error.value)
    assert f"Delete it and {path.name}.json" in str(error.value)
    path.unlink()
    assert fetch(url).read_bytes() == CONTENT


def test_a_file_is_read_again_only_if_it_was_touched(server, monkeypatch):
    url, read = server.add(NAME, Answer(CONTENT)), []
    hash_file = cache_module.hash_file
    monkeypatch.setattr(cache_module, "hash_file", lambda p: read.append(p) or hash_file(p))
    path = fetch(url)
    for expected in (1, 1):
        fetch(url, sha256=sha256(CONTENT))
        assert len(read) == expected
    os.utime(path, ns=(1, 1))
    for expected in (2, 2):
        fetch(url)
        assert len(read) == expected
    assert json.loads(path.with_name(path.name + ".json").read_text())["mtime_ns"] == 1
    for wrong, text in (({"sha256": "0" * 64}, "0" * 64), ({"size": 3}, "3 bytes")):
        with pytest.raises(DownloadError, match=text):
            fetch(url, **wrong)
    path.with_name(path.name + ".json").write_text("[damaged")
    assert fetch(url) == path
    assert len(read) == 3


def test_a_full_disk_keeps_the_part(server, monkeypatch):
    class Full(io.FileIO):
        def write(self, data):
            super().write(data[:100])
            raise OSError(errno.ENOSPC, "No space left on device")

    url = server.add(NAME, Answer(CONTENT))
    with monkeypatch.context() as patch:
        patch.setattr(transfer, "open", Full, raising=False)
        with pytest.raises(DownloadError, match=r"the disk is full.*\.part.*KERAS_VIT_CACHE"):
            fetch(url)
    assert len(server.requests) == 1
    assert fetch(url).read_bytes() == CONTENT
    assert server.asked("Range") == [None, "bytes=100-"]


def test_room_is_looked_for_before(server, monkeypatch):
    url = server.add(NAME, Answer(CONTENT))
    monkeypatch.setattr(transfer.shutil, "disk_usage", lambda path: SimpleNamespace(free=10))
    with pytest.raises(DownloadError, match=r"needs 7000 bytes, and the disk of .* has 10"):
        fetch(url)
    monkeypatch.setattr(transfer.shutil, "disk_usage", lambda path: SimpleNamespace(free=7000))
    assert fetch(url).read_bytes() == CONTENT


def test_a_cache_that_cannot_be_used(server, cache):
    cache.write_text("a file")
    with pytest.raises(DownloadError, match="KERAS_VIT_CACHE to another folder"):
        fetch(server.add(NAME, Answer(CONTENT)))
    cache.unlink()
    fetch(server.add("/folder/x", Answer(CONTENT)))
    with pytest.raises(DownloadError, match="is a folder"):
        fetch(server.add("/folder", Answer(CONTENT)))


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "progress", "shown"),
    [
        (Terminal, None, True),
        (Terminal, False, False),
        (io.StringIO, None, False),
        (io.StringIO, True, True),
    ],
)
def test_when_a_bar_is_shown(server, monkeypatch, stream, progress, shown):
    url = server.add(NAME, Answer(status=500), Answer(CONTENT))
    monkeypatch.setattr(sys, "stderr", stream())
    fetch(url, progress=progress)
    output = sys.stderr.getvalue()
    assert ("ViT-B_16.npz  100%" in output) == ("HTTP 500" in output) == shown
    assert shown or output == ""


def test_without_stderr(server, monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    assert fetch(server.add(NAME, Answer(CONTENT)), progress=True).is_file()


def test_what_a_bar_tells():
    bar = ProgressBar("x.npz", False)
    bar.start(10_000_000, 100_000_000)
    bar.began -= 10
    bar.advance(20_000_000)
    assert re.fullmatch(
        r"x\.npz   30%  30\.0/100\.0 MB  [12]\.[09] MB/s  00:3[45] left", bar.line()
    )
    bar.start(0, None)
    bar.began -= 2
    bar.advance(3_000_000)
    assert re.fullmatch(r"x\.npz  3\.0 MB  1\.[45] MB/s", bar.line())
