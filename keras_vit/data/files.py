"""Folders and archives of images: their files, and the classes they stand for."""

import os
import pathlib
import re
import tarfile
import threading
import zipfile
from collections import Counter

import numpy as np

from keras_vit.data.dataset import stratified_split
from keras_vit.data.sources import HELD_OUT, Source

ARCHIVES = (".zip", ".tar")
EXTENSIONS = tuple(".bmp .gif .jpeg .jpg .pgm .png .ppm .tif .tiff .webp".split())
LARGEST = 2**28  # bytes of one image file: a small archive can claim terabytes
LISTED = 10  # files named in a message; the count tells the rest


class FileSource(Source):
    """The image files of class folders, or of an archive of them, read when they are needed.

    Where there are no parts, `test_fraction` of each class is `"test"`.
    """

    sorted_by_class = True
    upright = True

    def __init__(self, path, name=None, test_fraction=0.2, seed=0):
        files = open_files(path)
        class_names, parts = labelled_files(files)
        if "all" in parts:
            every = parts.pop("all")
            labels = np.array([label for _, label in every])
            for part, rows in zip(("train", "test"), stratified_split(labels, test_fraction, seed)):
                parts[part] = [every[row] for row in rows]
        sizes = {part: len(found) for part, found in parts.items()}
        super().__init__(name or files.name, class_names, sizes)
        self._files = files
        self._listing = [item for found in parts.values() for item in found]

    def __getitem__(self, row):
        name, label = self._listing[row]
        return self._files.read(name), label

    def place(self, row):
        return self._files.place(self._listing[row][0])


def open_files(path):
    """The files of a folder, a zip archive or a tar archive that is not compressed.

    In a compressed tar archive no file could be read without reading those before it.
    """
    if path.is_dir():
        return Folder(path)
    return ZipArchive(path) if path.suffix.lower() == ".zip" else TarArchive(path)


class Folder:
    """The regular files of a folder at any depth, without hidden ones.

    `folders` and `names` are paths in it, with `/`, sorted. Links to folders are followed down to
    the second level, where the class folders of `train/` may be; deeper ones could lead back up.
    """

    def __init__(self, path):
        self.path, self.name, self.folders, self.names = path, path.resolve().name, [], []
        self._scan("", 0)

    def _scan(self, prefix, depth):
        try:
            with os.scandir(self.path / prefix) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            raise ValueError(
                f"{self.path / prefix} cannot be read; check its permissions. Received: {error}"
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
        with open(self.place(name), "rb") as file:
            _check_size(os.fstat(file.fileno()).st_size)
            return file.read()

    def place(self, name):
        return os.path.join(self.path, name)


class _Archive:
    """What archives have in common. A single folder around all files is left out of the names."""

    def __init__(self, path):
        self.path, self.name = path, path.resolve().stem
        try:
            members = self._members()
        except (OSError, EOFError, ValueError, zipfile.BadZipFile, tarfile.TarError) as error:
            raise ValueError(
                f"{path} cannot be read as a {path.suffix[1:]} archive; make it again, or "
                f"unpack it and pass the folder. Received: {error}"
            ) from error
        hidden = re.compile(r"__MACOSX/|(.*/)?\.")
        shown = {name: members[name] for name in sorted(members) if not hidden.match(name)}
        tops = {name.split("/")[0] for name in shown}
        if len(tops) == 1 and all(name.count("/") > 1 for name in shown):
            shown = {name.split("/", 1)[1]: member for name, member in shown.items()}
        self._found, self.names = shown, list(shown)
        parents = {str(p) for name in shown for p in pathlib.PurePosixPath(name).parents}
        self.folders = sorted(parents - {"."})

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
            members = [member for member in archive if member.isreg()]
        return {m.name.removeprefix("./"): (m.offset_data, m.size) for m in members}

    def read(self, name):
        offset, size = self._found[name]
        _check_size(size)
        with open(self.path, "rb") as file:
            file.seek(offset)
            content = file.read(size)
        if len(content) != size:
            raise ValueError(f"the archive ends within the file: {len(content)} of {size} bytes")
        return content


def _check_size(size):
    if size > LARGEST:
        raise ValueError(f"a file of {size} bytes; at most {LARGEST} are read as one image")


def labelled_files(files):
    """The images of class folders, or of such folders in `train` and `test`, `val` or `validation`.

    Images count at any depth below their class folder; all other files are ignored.

    Returns:
        (class names, dict from each part to a list of (name, label)), classes and files in sorted
        order. A set without parts has the part `"all"`.
    """
    tops = {name for name in files.folders if "/" not in name}
    held_out = [part for part in HELD_OUT if part in tops]
    parts = ["train", *held_out] if "train" in tops and (held_out or tops == {"train"}) else ["all"]
    numbers, found = None, {}
    for part in parts:
        classes = _class_files(files, "" if part == "all" else f"{part}/")
        if numbers is None:
            numbers = {name: number for number, name in enumerate(classes)}
            if empty := [name for name, images in classes.items() if not images]:
                raise ValueError(
                    f"Every class folder in {files.path} must hold an image. Received: none in "
                    f"{', '.join(map(repr, empty))}; add some, or remove what is no class"
                )
        if unknown := [name for name in classes if classes[name] and name not in numbers]:
            raise ValueError(
                f"The classes in {files.place(part)} must be among those in {files.place('train')} "
                f"({', '.join(numbers)}). Received: unknown {', '.join(unknown)}"
            )
        found[part] = [(file, numbers[name]) for name in classes for file in classes[name]]
    return tuple(numbers), found


def _class_files(files, prefix):
    """{class name: sorted image names} of the folders below a prefix."""
    folders = [n.removeprefix(prefix) for n in files.folders if n.startswith(prefix)]
    classes = {name: [] for name in folders if "/" not in name}
    inside = [name for name in files.names if name.startswith(prefix)]
    for name in inside:
        folder, _, rest = name.removeprefix(prefix).partition("/")
        if rest and folder in classes and name.lower().endswith(EXTENSIONS):
            classes[folder].append(name)
    if not any(classes.values()):
        kinds = Counter(pathlib.Path(name).suffix.lower() or "no suffix" for name in inside)
        counts = ", ".join(f"{suffix} x{count}" for suffix, count in kinds.most_common())
        raise ValueError(
            f"Images ({' '.join(EXTENSIONS)}) must lie in one subfolder per class, beside or below "
            f"train/ and test/. Received: {files.place(prefix)} with {len(classes)} subfolders and "
            f"{f'files {counts}' if inside else 'no files at all'}"
        )
    return classes


def listed(lines):
    """The first lines of a message, indented, and how many more there are."""
    more = [f"and {len(lines) - LISTED} more"] * (len(lines) > LISTED)
    return "\n".join(f"  {line}" for line in [*lines[:LISTED], *more])
