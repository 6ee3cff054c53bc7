"""Output files: whole or not at all, together or not at all, through links, and never a device."""

import contextlib
import errno
import os
import pathlib
import re
import socket
import stat
import subprocess
import sys

import pytest

from keras_vit import writing
from tests.support import ROOT, refuses

pytestmark = pytest.mark.any_backend


def folder_of(path):
    return sorted(each.name for each in path.iterdir())


def write_file(path, text="new"):
    writing.write_text(path, text)


def write_files(path, text="new"):
    with writing.replacing_files(path) as draft:
        draft.write_text(text)
        draft.with_name("data").write_text(text)


def write_one_of_files(path, text="new"):
    with writing.replacing_files(path) as draft:
        draft.write_text(text)


def write_folder(path, text="new"):
    with writing.replacing_folder(path) as draft:
        draft.mkdir()
        (draft / "file").write_text(text)


def write_figure(path, text="new"):
    class Figure:
        def savefig(self, path):
            path.write_bytes(text.encode())

    writing.save_figure(Figure(), path)


FILE_WRITERS = (write_file, write_files, write_one_of_files, write_figure)
WRITERS = (*FILE_WRITERS, write_folder)


def text_of(path):
    return (path / "file" if path.is_dir() else path).read_text()


def obstacle(name, path):
    if name == "a pipe":
        os.mkfifo(path)
    elif name == "a socket":
        with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)  # a whole path may be too long
    elif name == "a device":
        path.symlink_to("/dev/null")
    elif name == "a circle":
        path.symlink_to(path.name)


def state_of(path):
    """What a path is, but for the time of its last access: following a link is one."""
    state = os.lstat(path)
    return tuple(state[: stat.ST_ATIME]) + (state.st_mtime_ns,)


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("name", ["a pipe", "a socket", "a device", "a circle"])
def test_what_is_no_file_is_refused_and_stays(tmp_path, write, name):
    path = tmp_path / "model.png"
    obstacle(name, path)
    before = state_of(path)
    for place in (path, tmp_path / "link.png"):
        if place != path:
            place.symlink_to(path)
        refuses(f"Received: '{place}'.* {name}|{name}.*Received", write, place)
    assert state_of(path) == before and folder_of(tmp_path) == ["link.png", "model.png"]
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("write", WRITERS)
def test_a_file_for_a_folder_or_a_folder_for_a_file(tmp_path, write):
    path = tmp_path / "there.png"
    path.touch() if write is write_folder else path.mkdir()
    refuses(r"must be a (file|folder).*which is a (folder|file)", write, path)


def test_a_folder_where_a_file_of_several_shall_be(tmp_path):
    (tmp_path / "data").mkdir()
    write_file(tmp_path / "model", "old")
    refuses("data', which is a folder", write_files, tmp_path / "model")
    assert text_of(tmp_path / "model") == "old" and folder_of(tmp_path) == ["data", "model"]


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_its_target_is_replaced(tmp_path, write, there):
    target, link = tmp_path / "one" / "target.png", tmp_path / "two" / "link.png"
    link.parent.mkdir()
    link.symlink_to("../one/target.png")
    if there:
        write(target, "old")
    write(link)
    assert link.is_symlink() and os.readlink(link) == "../one/target.png"
    assert text_of(target) == "new" and not target.is_symlink()
    assert folder_of(link.parent)[-1] == "link.png"


@pytest.mark.parametrize("write", WRITERS)
def test_a_folder_that_is_a_link(tmp_path, write):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    write(tmp_path / "link" / "a.png")
    assert text_of(tmp_path / "real" / "a.png") == "new" and (tmp_path / "link").is_symlink()


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="it takes a second file system")
def test_a_link_to_another_disk(tmp_path):
    target = pathlib.Path("/dev/shm") / f"keras_vit_test_{os.getpid()}"
    try:
        for name in ("model", "data"):
            (tmp_path / "model").unlink(missing_ok=True)
            (tmp_path / "data").unlink(missing_ok=True)
            (tmp_path / name).symlink_to(target)
            for text in ("old", "new"):
                write_files(tmp_path / "model", text)
            assert target.read_text() == text_of(tmp_path / "model") == "new"
            assert (tmp_path / name).is_symlink()
    finally:
        target.unlink(missing_ok=True)


@pytest.mark.parametrize("write", FILE_WRITERS)
def test_permissions(tmp_path, write):
    """Those of the file that is replaced; of a new one, what the umask leaves."""
    path, mask = tmp_path / "a.png", os.umask(0o027)  # an old file may be for reading only
    try:
        write(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o404)
        write(path)
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o404


@pytest.mark.parametrize("write", WRITERS)
def test_what_fails_leaves_what_was_there(tmp_path, write):
    class Unwritable(str):
        def encode(self):
            raise OSError("the disk is full")

    path = tmp_path / "a.png"
    write(path, "old")
    before = folder_of(tmp_path)
    with pytest.raises((OSError, TypeError)):
        write(path, None if write not in (write_file, write_figure) else Unwritable("new"))
    assert text_of(path) == "old" and folder_of(tmp_path) == before


@pytest.mark.parametrize("write", WRITERS)
def test_a_full_disk_is_named(tmp_path, write, monkeypatch):
    """What the system says of one has neither the file nor what to do."""

    def full(number):
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "a.png"
    write(path, "old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError) as error:
        write(path)
    assert error.value.errno == errno.ENOSPC and error.value.filename == str(path)
    assert re.search(r"No space left on device, \d+ bytes are free; make room", str(error.value))
    assert text_of(path) == "old"


@pytest.mark.parametrize("write", [write_files, write_one_of_files, write_folder])
def test_what_killed_processes_left_is_named(tmp_path, recwarn, write):
    (tmp_path / ".new.12345678").mkdir()
    (tmp_path / ".other.12345678").mkdir()
    write(tmp_path / "new")
    (warning,) = recwarn
    assert ".new.12345678" in str(warning.message) and "other" not in str(warning.message)
    (tmp_path / ".new.12345678").rmdir()
    write(tmp_path / "new")
    assert len(recwarn) == 1


def test_the_weights_of_an_old_onnx_model_go_with_it(tmp_path):
    """Of models of 2 GB and more, which name their second file."""
    path, weights = tmp_path / "new.onnx", tmp_path / "new.onnx.data"
    for text, is_named in (("old model, with new.onnx.data", True), ("old model", False)):
        path.write_text(text)
        weights.write_text("weights")
        write_one_of_files(path)
        assert path.read_text() == "new" and weights.exists() != is_named
    path.write_text("old model, with new.onnx.data")
    with writing.replacing_files(path) as draft:
        for name in (path.name, weights.name):
            draft.with_name(name).write_text("new")
    assert weights.read_text() == "new"


def test_names_of_any_length_and_bytes(tmp_path):
    for name in ("é" * 125, os.fsdecode(b"caf\xe9")):
        for write in (write_file, write_one_of_files, write_folder):
            write(tmp_path / write.__name__ / name)
            assert text_of(tmp_path / write.__name__ / name) == "new"


KILLED_EVERYWHERE = """
import importlib.util, os, pathlib, sys
spec = importlib.util.spec_from_file_location("writing", sys.argv[1])
writing = importlib.util.module_from_spec(spec)
spec.loader.exec_module(writing)
root = pathlib.Path(sys.argv[2])

def write_folder(path, text):
    with writing.replacing_folder(path) as draft:
        draft.mkdir()
        for name in "ab":
            (draft / name).write_text(text)

def write_files(path, text):
    with writing.replacing_files(path) as draft:
        for name in ("a", "b", draft.name):
            draft.with_name(name).write_text(text)

def read(path):
    if path.is_dir():
        return {(path / name).read_text() for name in "ab"}
    writing.check_finished(path)
    return {path.with_name(name).read_text() for name in ("a", "b", path.name)}

def killed(write, path, text, moment):
    if pid := os.fork():
        return os.waitpid(pid, 0)[1]
    count = 0
    def die(event, arguments):
        nonlocal count
        count += event == "open" or event.startswith("os.")
        if count == moment:
            os._exit(9)
    sys.addaudithook(die)
    write(path, text)
    os._exit(0)

for write in (write_files, write_folder):
    outcomes, path = [], root / write.__name__ / "main"
    path.parent.mkdir()
    write(path, "0")
    old, moment = "0", 1
    while True:
        new = str(moment)
        ended = killed(write, path, new, moment)
        try:
            read_now = read(path)
        except (ValueError, FileNotFoundError):
            read_now = None
        assert read_now in ({old}, {new}, None), (write, moment, read_now)
        outcomes.append("error" if read_now is None else "old" if read_now == {old} else "new")
        if not ended:
            break
        write(path, old := new + " again")
        assert read(path) == {old}, "what was left does not hinder the next"
        moment += 1
    print(write.__name__, *outcomes)
"""


def test_a_process_killed_at_any_moment(tmp_path):
    """It ends before its first call of the system, or its second, and so on."""
    command = [sys.executable, "-c", KILLED_EVERYWHERE, writing.__file__, tmp_path]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert not run.returncode, run.stderr
    for line in run.stdout.splitlines():
        outcomes = line.split()[1:]
        assert outcomes == sorted(outcomes, key=["old", "error", "new"].index)
        assert {*outcomes} == {"old", "error", "new"} and len(outcomes) > 20
    assert len(run.stdout.splitlines()) == 2
