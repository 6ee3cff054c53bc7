"""Files that are written: each appears whole or not at all, and those that belong together do so.

A link stays and what it points to is replaced. A device, a pipe or a socket is refused, and so is
a folder where a file shall be, or a file where a folder shall be.
"""

import contextlib
import errno
import glob
import os
import pathlib
import shutil
import stat
import tempfile
import warnings

UNFINISHED = ".unfinished"  # ends the name of a folder of new files that take their places


def output_place(path, folder=False):
    """Where a file, or a folder, will be written, with links followed; call it before long work.

    Raises:
        ValueError: something else is there, or links that lead in a circle.
    """
    noun, letter = ("folder", "d") if folder else ("file", "-")
    try:
        present = stat.filemode(os.stat(path).st_mode)[0]
    except FileNotFoundError:  # nothing yet, or a link to nothing yet
        present = letter
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        present = "l"
    if present != letter:
        names = {"d": "a folder", "-": "a file", "p": "a pipe", "s": "a socket"}
        names["l"] = "a circle of links"
        raise ValueError(
            f"An output must be a {noun}, a new one or one to replace. Received: "
            f"{os.fspath(path)!r}, which is {names.get(present, 'a device')}; move it away, or "
            "choose another path."
        )
    return pathlib.Path(os.path.realpath(path))


@contextlib.contextmanager
def naming_full_disk(path):
    """Has the error of a full disk, which names no file, say which it was and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or error.filename:
            raise
        free = shutil.disk_usage(path.parent).free
        reason = f"{os.strerror(error.errno)}, {free} bytes are free; make room and try again"
        raise OSError(error.errno, reason, os.fspath(path)) from error


@contextlib.contextmanager
def replacing(path):
    """A file opened for writing, which takes the place of `path` when all went well."""
    with replacing_files(output_place(path)) as draft, open(draft, "wb") as stream:
        yield stream


def write_text(path, text):
    """Writes a text in UTF-8, whole or not at all."""
    with replacing(path) as stream:
        stream.write(text.encode())


def save_figure(figure, path, **options):
    """Writes a figure of matplotlib in the format of the suffix, as `savefig` does, else as PNG."""
    path = pathlib.Path(path)
    with replacing_files(path if path.suffix else path.with_name(path.name + ".png")) as draft:
        figure.savefig(draft, **options)


def save_whole(model, path):
    """Saves a .keras file, which appears whole or not at all."""
    with replacing_files(path) as draft:
        model.save(draft)


@contextlib.contextmanager
def replacing_files(path):
    """A path in a new folder, for a file of this name and for others that belong to it.

    All that is written there takes its place in the folder of `path` when all went well. Of several
    files the old one at `path`, which readers ask for first, is deleted before the others are
    replaced, and the new one comes last. So a reader of what a killed process left finds the old
    files, the new ones, or none at `path`: see `check_finished`. Each file gets the permissions of
    the one that it replaces. Weights that an old ONNX model keeps in a file beside it go with it.
    """
    path = pathlib.Path(path)
    folder = output_place(path.parent, folder=True)
    output_place(path)
    weights = path.with_name(path.name + ".data")
    has_weights = path.suffix == ".onnx" and path.is_file() and weights.is_file()
    is_old = has_weights and weights.name.encode() in path.read_bytes()
    with _drafts(folder, path.name) as drafts:
        yield drafts / path.name
        files = list(drafts.iterdir())
        for file in files:
            _sync(file)
            _take_mode(file, output_place(folder / file.name))
        mark = folder / (path.name + UNFINISHED)
        if os.path.isdir(mark):
            _finish(mark)  # of a process that was killed
        if len(files) == 1:
            _move(files[0], folder / files[0].name)
        else:
            os.rename(drafts, mark)
            _finish(mark)
        if is_old and weights.name not in {file.name for file in files}:
            weights.unlink()


@contextlib.contextmanager
def replacing_folder(path):
    """A path for a new folder, which takes the place of the one at `path` when all went well."""
    place = output_place(path, folder=True)
    with _drafts(place.parent, place.name) as drafts:
        yield (draft := drafts / place.name)
        for file in draft.rglob("*"):
            _sync(file)
        old = drafts.with_name("old")
        with contextlib.suppress(FileNotFoundError):
            os.rename(place, old)
        try:
            os.rename(draft, place)
        except BaseException:
            if old.exists():
                os.rename(old, place)
            raise
        _take_mode(place, old)


def check_finished(path):
    """Raises a ValueError where `replacing_files(path)` was cut off between the old and the new."""
    mark = pathlib.Path(os.path.realpath(path.parent)) / (path.name + UNFINISHED)
    if os.path.isdir(mark):
        raise ValueError(
            f"A process that wrote {str(path)!r} and the files that belong to it ended before all "
            f"had taken their places. Save again, or move the files of {str(mark)!r} to "
            f"{str(mark.parent)!r} and delete that folder."
        )


@contextlib.contextmanager
def _drafts(folder, name):
    """A new folder with the name of `folder`, in it but for a moment, for drafts of `name`."""
    folder.mkdir(parents=True, exist_ok=True)
    prefix = f".{name[:50]}."
    if left := [old.name for old in folder.glob(glob.escape(prefix) + "?" * 8) if old.is_dir()]:
        warnings.warn(
            f"Processes that wrote {name!r} were killed, or do so now: their unfinished files are "
            f"in {str(folder)!r}, in {left}. Delete these folders if none is running.",
            stacklevel=2,
        )
    temporary = tempfile.TemporaryDirectory(dir=folder, prefix=prefix)
    with naming_full_disk(folder / name), temporary as outer:
        drafts = pathlib.Path(outer) / (folder.name or "files")
        drafts.mkdir()
        yield drafts


def _finish(mark):
    """Moves new files to the folder of `mark`, that after which it is named last."""
    folder, first = mark.parent, mark.name.removesuffix(UNFINISHED)
    if (mark / first).exists():
        output_place(folder / first).unlink(missing_ok=True)
    for file in sorted(mark.iterdir(), key=lambda file: file.name == first):
        _move(file, folder / file.name)
    mark.rmdir()


def _move(file, path):
    place = output_place(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.replace(file, place)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with open(file, "rb") as source, replacing(place) as stream:  # a link to another disk
            shutil.copyfileobj(source, stream)
        file.unlink()


def _take_mode(new, old):
    if old.exists():
        os.chmod(new, stat.S_IMODE(old.stat().st_mode))


def _sync(file):
    if file.is_file():
        with open(file, "rb+") as stream:
            os.fsync(stream.fileno())
