"""Folders and archives of images: their files, and the classes and parts that folders stand for."""

import os
import tarfile
import threading
import zipfile
from collections import Counter
from pathlib import Path

ARCHIVES = (".zip", ".tar")
HELD_OUT = ("test", "val", "validation")  # names of parts; in memory the first one is the test set
EXTENSIONS = tuple(".bmp .gif .jpeg .jpg .pgm .png .ppm .tif .tiff .webp".split())
LARGEST = 2**28  # bytes of one image file: a small archive can claim terabytes


def open_files(path):
    """The files of a folder, a zip archive or a tar archive that is not compressed.

    Raises:
        ValueError: it cannot be read, or it is compressed as a whole: then no file in it can be
            reached without reading those before it.
    """
    path = Path(path)
    if path.is_dir():
        return Folder(path)
    if path.suffix.lower() == ".zip":
        return ZipArchive(path)
    if path.suffix.lower() == ".tar":
        return TarArchive(path)
    raise ValueError(
        "Images are read from a folder, a .zip or a .tar archive; unpack others, also compressed "
        f"tar archives. Received: {path}"
    )


class Folder:
    """The regular files of a folder, at any depth.

    Hidden files and folders are left out. A link to a folder could lead back up, so that none is
    followed below the second level, where the class folders of `train/` may be.

    Attributes:
        folders, names: paths in it, with `/`, sorted; the folders without those below.
    """

    def __init__(self, path):
        self.path, self.folders, self.names = path, [], []
        self._scan("", 0)

    def _scan(self, prefix, depth):
        try:
            with os.scandir(self.path / prefix) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            raise ValueError(
                f"The folder {self.path / prefix} cannot be read; check its permissions. "
                f"Received: {error}"
            ) from error
        for entry in entries:
            name = prefix + entry.name
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=depth < 2):
                self.folders.append(name)
                self._scan(name + "/", depth + 1)
            elif entry.is_file():  # no pipe, no device: reading one need never end
                self.names.append(name)

    def read(self, name):
        """The bytes of a file."""
        with open(self.place(name), "rb") as file:
            _check_size(os.fstat(file.fileno()).st_size)
            return file.read()

    def place(self, name):
        """Where a file lies, for messages."""
        return os.path.join(self.path, name)


class _Archive:
    """What archives have in common; a single folder that holds all the rest does not count."""

    def __init__(self, path):
        self.path = path
        try:
            members = self._members()
        except (OSError, EOFError, ValueError, zipfile.BadZipFile, tarfile.TarError) as error:
            raise ValueError(
                f"{path} cannot be read as a {path.suffix[1:]} archive; make it again, or "
                f"unpack it and pass the folder. Received: {error}"
            ) from error
        shown = {n: m for n, m in members.items() if not any(p[:1] == "." for p in n.split("/"))}
        shown = {n: m for n, m in shown.items() if not n.startswith("__MACOSX/")}
        tops = {name.split("/")[0] for name in shown}
        nested = len(tops) == 1 and all(name.count("/") > 1 for name in shown)
        cut = len(next(iter(tops))) + 1 if nested else 0
        self._found = {name[cut:]: member for name, member in sorted(shown.items())}
        self.names = list(self._found)
        parents = {
            "/".join(n.split("/")[:i]) for n in self.names for i in range(1, n.count("/") + 1)
        }
        self.folders = sorted(parents)

    def place(self, name):
        return f"{self.path}/{name}"


class ZipArchive(_Archive):
    """The files of a zip archive."""

    def _members(self):
        self._open = threading.local()
        with zipfile.ZipFile(self.path) as archive:
            return {info.filename: info for info in archive.infolist() if not info.is_dir()}

    def read(self, name):
        _check_size(self._found[name].file_size)
        if not hasattr(self._open, "file"):  # one for each thread: they need not wait
            self._open.file = zipfile.ZipFile(self.path)
        try:
            return self._open.file.read(self._found[name])
        except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
            raise ValueError(f"cannot be read from the archive: {error}") from error

    def __reduce__(self):  # an open file does not travel to another process
        return ZipArchive, (self.path,)


class TarArchive(_Archive):
    """The files of a tar archive that is not compressed, by their places in it."""

    def _members(self):
        with tarfile.open(self.path, "r:") as archive:
            return {
                m.name.removeprefix("./"): (m.offset_data, m.size) for m in archive if m.isreg()
            }

    def read(self, name):
        offset, size = self._found[name]
        _check_size(size)
        with open(self.path, "rb") as file:
            file.seek(offset)
            content = file.read(size)
        if len(content) != size:
            raise ValueError(f"the archive ends within the file: {len(content)} of {size} bytes")
        return content


def labelled_files(files):
    """The images of class folders, or of such folders in `train` and `test`, `val` or `validation`.

    Images count at any depth below their class folder; other files are ignored, and so are images
    outside class folders as long as there are class folders.

    Args:
        files: from `open_files`.

    Returns:
        (class names, dict from each part to a list of (name, label)), classes and files in sorted
        order. Where there are no parts, it is `"all"`.

    Raises:
        ValueError: no class folders, a class without images, or a held-out class that is not among
            those of `train`.
    """
    tops = {name for name in files.folders if "/" not in name}
    held_out = [part for part in HELD_OUT if part in tops]
    if "train" not in tops or not (held_out or tops == {"train"}):
        names, found = _training_files(files, "")
        return names, {"all": found}
    names, found = _training_files(files, "train")
    parts = {"train": found}
    for part in held_out:
        classes = {name: inside for name, inside in _class_files(files, part).items() if inside}
        if strangers := sorted(set(classes) - set(names)):
            raise ValueError(
                f"The classes in {files.place(part)} must be among those in {files.place('train')} "
                f"({', '.join(names)}). Received: unknown {', '.join(strangers)}"
            )
        parts[part] = _labelled(classes, names)
    return names, parts


def _training_files(files, part):
    """(class names, list of (name, label)), where every class has an image."""
    classes = _class_files(files, part)
    empty = [name for name, found in classes.items() if not found]
    if empty:
        raise ValueError(
            f"Every class folder in {files.place(part)} must hold an image ({_extensions()}). "
            f"Received: none in {', '.join(map(repr, empty))}; add images, or remove or hide "
            "the folders that are no classes"
        )
    return tuple(classes), _labelled(classes, tuple(classes))


def _labelled(classes, names):
    return [(file, names.index(name)) for name, found in classes.items() for file in found]


def _class_files(files, part):
    """{class name: sorted image names} of a part, or of all for ""; classes sorted."""
    prefix = f"{part}/" if part else ""
    inside = [name.removeprefix(prefix) for name in files.names if name.startswith(prefix)]
    folders = [name.removeprefix(prefix) for name in files.folders if name.startswith(prefix)]
    classes = {name: [] for name in folders if "/" not in name}
    images = [name for name in inside if name.lower().endswith(EXTENSIONS)]
    layout = (
        "folder/<class>/<image>, or folder/train/<class>/<image> with folder/test/... beside it"
    )
    if not classes and images:
        raise ValueError(
            f"Images must lie in one subfolder per class: {layout}. Received: {files.place(part)} "
            f"with {len(images)} images directly in it and no subfolder"
        )
    if not classes:
        raise ValueError(
            f"No images found; expected {layout}. Received: {files.place(part)} with "
            f"{_counted(inside)}"
        )
    for name in images:
        if "/" in name:
            classes[name.split("/")[0]].append(prefix + name)
    if not any(classes.values()):
        raise ValueError(
            f"No images ({_extensions()}) found below the {len(classes)} subfolders of "
            f"{files.place(part)}. Received: {_counted(set(inside) - set(images))}"
        )
    return classes


def _extensions():
    return " ".join(extension[1:] for extension in EXTENSIONS)


def _counted(names):
    """What there is instead of images: extensions and how many of each."""
    if not names:
        return "no files at all"
    counts = Counter(Path(name).suffix.lower() or "no extension" for name in sorted(names))
    return "files " + ", ".join(f"{suffix} x{count}" for suffix, count in counts.most_common())


def _check_size(size):
    if size > LARGEST:
        raise ValueError(f"a file of {size} bytes; at most {LARGEST} are read as one image")
