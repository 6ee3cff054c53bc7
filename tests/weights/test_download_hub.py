"""hf:// names, with huggingface_hub and without."""

import json
import sys
from types import SimpleNamespace

import pytest

from keras_vit.weights.download import DownloadError, fetch
from tests.weights.file_server import Answer, FileServer, sha256

pytestmark = pytest.mark.any_backend

REPO = "/google/vit-base/resolve/main"
INDEX = json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}})


@pytest.fixture(autouse=True)
def no_library(cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # an import fails


@pytest.fixture
def server(cache, server, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", server.at + "/")
    return server


def offer(server, *names, repo=REPO):
    for name in names:
        content = INDEX if name.endswith(".index.json") else name
        server.add(f"{repo}/{name}", Answer(content.encode()))


def names_in(folder):
    return {path.name for path in folder.iterdir() if path.suffix in (".json", ".safetensors")} - {
        path.name + ".json" for path in folder.iterdir()
    }


def test_one_file(server):
    offer(server, "sub/x+y.npz", repo="/a/b/resolve/v1.0")
    server.add("/a/b/resolve/v1.0/sub/x%2By.npz", Answer(b"here"))
    path = fetch("hf://a/b@v1.0/sub/x+y.npz:img", sha256=sha256(b"here"))
    assert path.read_bytes() == b"here"
    assert path.parts[-6:] == ("a", "b", "resolve", "v1.0", "sub", "x+y.npz")
    server.add("/a/b/resolve/refs%2Fpr%2F1/x", Answer(b"proposed"))
    assert fetch("hf://a/b@refs/pr/1/x").read_bytes() == b"proposed"
    assert fetch("hf://a/b@refs%2Fpr%2F1/x").read_bytes() == b"proposed"


def test_a_folder_of_one_file(server):
    offer(server, "config.json", "preprocessor_config.json", "model.safetensors")
    folder = fetch("hf://google/vit-base")
    assert names_in(folder) == {"config.json", "preprocessor_config.json", "model.safetensors"}
    asked = len(server.requests)
    assert fetch("hf://google/vit-base@main/") == folder
    assert fetch("hf://google/vit-base", offline=True) == folder
    assert len(server.requests) == asked == 3


def test_a_folder_of_shards(server, monkeypatch):
    shards = ("model-1.safetensors", "model-2.safetensors")
    offer(server, "config.json", "model.safetensors.index.json", *shards)
    folder = fetch("hf://google/vit-base")
    assert names_in(folder) == {"config.json", "model.safetensors.index.json", *shards}
    asked = len(server.requests)
    assert fetch("hf://google/vit-base") == folder
    assert len(server.requests) == asked, "what is not there is remembered"
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert fetch("hf://google/vit-base") == folder
    (folder / shards[1]).unlink()
    with pytest.raises(DownloadError, match=r"model-2\.safetensors"):
        fetch("hf://google/vit-base")


def test_a_repository_without_weights_may_get_them_later(server):
    offer(server, "config.json")
    with pytest.raises(DownloadError, match=r"(?s)model\.safetensors.*no such file"):
        fetch("hf://google/vit-base")
    offer(server, "preprocessor_config.json", "model.safetensors")
    assert len(names_in(fetch("hf://google/vit-base"))) == 3
    with pytest.raises(DownloadError, match=r"config\.json: there is no such file"):
        fetch("hf://google/other")


@pytest.mark.parametrize(
    "index", ["{", "[]", "{}", '{"weight_map": {"a": "../x.safetensors"}}', '{"weight_map": [1]}']
)
def test_an_index_that_is_none(server, index):
    offer(server, "config.json")
    server.add(REPO + "/model.safetensors.index.json", Answer(index.encode()))
    with pytest.raises(DownloadError, match="must name files of its own folder"):
        fetch("hf://google/vit-base")


def test_errors_are_no_missing_files(server):
    offer(server, "config.json", "model.safetensors")
    server.add(REPO + "/preprocessor_config.json", Answer(status=403))
    with pytest.raises(DownloadError, match="gated"):
        fetch("hf://google/vit-base")


@pytest.mark.parametrize(
    "name",
    ["hf://", "hf://x", "hf://a/b/../c", "hf://../b", "hf://a/b//c", "hf://a/b@", "hf://a b/c"],
)
def test_names_of_another_form(server, name):
    with pytest.raises(ValueError, match=r"hf://ORG/REPO\[@REVISION\]"):
        fetch(name)
    assert server.requests == []


def test_a_folder_has_no_size_and_no_hash(server):
    with pytest.raises(ValueError, match="those of one file"):
        fetch("hf://a/b", size=3)


def test_the_token_goes_to_the_endpoint_only(server, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret\n")
    with FileServer() as other:
        there = other.add("/there", Answer(b"weights"))
        server.add(REPO + "/moved", Answer(status=307, headers={"Location": "/here"}))
        server.add("/here", Answer(status=302, headers={"Location": there}))
        assert fetch("hf://google/vit-base/moved").read_bytes() == b"weights"
        assert server.asked("Authorization") == ["Bearer secret"] * 2
        fetch(other.add("/direct", Answer(b"weights")))
        assert other.asked("Authorization") == [None, None]


class Library(SimpleNamespace):
    """Stands for huggingface_hub: records what it is asked for, and offers `files`."""

    def __init__(self, folder, *files):
        super().__init__(folder=folder, files=files, calls=[])
        folder.mkdir()

    def snapshot_download(self, **arguments):
        self.calls.append(arguments)
        for name in set(arguments["allow_patterns"]) & set(self.files):
            text = INDEX if name.endswith(".index.json") else name
            (self.folder / name).write_text(text)
        return str(self.folder)

    def hf_hub_download(self, **arguments):
        self.calls.append(arguments)
        if arguments["filename"] not in self.files:
            raise RuntimeError("404 Entry Not Found")
        (self.folder / arguments["filename"]).write_text("content")
        return str(self.folder / arguments["filename"])


@pytest.fixture
def library(monkeypatch, tmp_path):
    def install(*files):
        made = Library(tmp_path / "hub", *files)
        monkeypatch.setitem(sys.modules, "huggingface_hub", made)
        return made

    return install


COMMON = [
    "config.json",
    "preprocessor_config.json",
    "model.safetensors",
    "model.safetensors.index.json",
]


def test_the_library_brings_a_folder(library):
    hub = library("config.json", "model.safetensors", "README.md")
    assert fetch("hf://google/vit-base@v2", timeout=5) == hub.folder
    assert hub.calls == [
        {
            "repo_id": "google/vit-base",
            "revision": "v2",
            "local_files_only": False,
            "etag_timeout": 5.0,
            "allow_patterns": COMMON,
        }
    ]


def test_the_library_brings_shards(library, monkeypatch):
    shards = ["model-1.safetensors", "model-2.safetensors"]
    hub = library("config.json", "model.safetensors.index.json", *shards)
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    assert fetch("hf://google/vit-base") == hub.folder
    assert [call["allow_patterns"] for call in hub.calls] == [COMMON, COMMON + shards]
    assert all(call["local_files_only"] for call in hub.calls)
    hub.files = hub.files[:-1]
    (hub.folder / shards[1]).unlink()
    with pytest.raises(DownloadError, match=r"without model-2\.safetensors"):
        fetch("hf://google/vit-base")


def test_the_library_brings_one_file(library):
    hub = library("x.npz")
    path = fetch("hf://a/b/x.npz:img", size=7, sha256=sha256(b"content"))
    assert path == hub.folder / "x.npz"
    assert hub.calls[0]["filename"] == "x.npz"
    assert hub.calls[0]["revision"] == "main"
    with pytest.raises(DownloadError, match="Expected: 8 bytes\n  Received: 7 bytes"):
        fetch("hf://a/b/x.npz", size=8)
    with pytest.raises(DownloadError, match="Expected: sha256 0000"):
        fetch("hf://a/b/x.npz", sha256="0" * 64)


def test_the_library_fails(library):
    library("README.md")
    with pytest.raises(DownloadError, match=r"(?s)hf://a/b/x.*404 Entry Not Found.*HF_TOKEN"):
        fetch("hf://a/b/x")
    with pytest.raises(DownloadError, match=r"without config\.json, model\.safetensors"):
        fetch("hf://a/b")
