"""The files of folders and archives, and which of them are images."""

import contextlib
import os
import pathlib
import re
import tarfile
import threading
import warnings
import zipfile
from collections.abc import Iterable
from typing import Any

from PIL import Image

from keras_vit.data.sources import part_of

ARCHIVES = (".zip", ".tar")
# Formats that Pillow names, but of which it makes pixels not at all or with other programs only.
_NO_PIXELS = {"BUFR", "EPS", "GRIB", "HDF5", "MPEG", "WMF"}
# What systems and network drives leave among images, besides hidden files.
_OF_SYSTEMS = r"""__MACOSX|Network\ Trash\ Folder|Temporary\ Items|TheVolumeSettingsFolder
    |\$RECYCLE\.BIN|System\ Volume\ Information|FOUND\.\d{3}|(eh)?Thumbs\.db|desktop\.ini
    |lost\+found|LOST\.DIR|__pycache__|~snapshot|\#(recycle|snapshot)
    |@(eaDir|Recycle|Recently-Snapshot|sharebin|tmp)"""
_IGNORED = re.compile(rf"\..*|{_OF_SYSTEMS}", re.IGNORECASE | re.VERBOSE)
LARGEST = 2**28  # bytes of one image file: a small archive can claim terabytes
_LINKS = 3  # levels of folders that may be links
LISTED = 10  # files named in a message; the count tells the rest


def image_suffixes():
    """The suffixes, in lower case, of the files that Pillow opens, with what its plugins added."""
    known = Image.registered_extensions().items()
    return {".mpo"} | {end for end, name in known if name in Image.OPEN and name not in _NO_PIXELS}


def images_among(names):
    """The names of files that are images, by their suffixes."""
    suffixes = image_suffixes()
    return [name for name in names if os.path.splitext(name)[1].lower() in suffixes]


def image_files(paths: str | os.PathLike[str] | Iterable[Any]) -> list[str]:
    """The files among paths, each once, and the images in the folders among them, sorted.

    It is the order in which `keras_vit.predict`, `preprocess` and `evaluation.embed` take a folder.

    Args:
        paths: a path of a file or of a folder, or several. Folders are searched at any depth.

    Raises:
        FileNotFoundError: none of the paths exists.
        ValueError: a folder without images.
    """
    paths = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not any(map(os.path.exists, paths)):
        raise FileNotFoundError(
            "Images are files and folders of them, and none of these exists; a pattern that "
            f"matches no file stays a pattern. Received: {', '.join(map(repr, map(str, paths)))}"
        )
    return list(dict.fromkeys(str(file) for path in paths for file in files_at(path)))


def files_at(path):
    """A file in a list, or the images in a folder; a warning tells of its other files."""
    if not os.path.isdir(path):
        return [path]
    folder = Folder(pathlib.Path(path))
    inside = images_among(folder.names)
    if not inside:
        raise ValueError(
            "The folder holds no image (a file that Pillow opens, such as .jpg, .png, .webp). "
            f"Received: {str(path)!r} with {len(folder.names)} other files"
        )
    warn_left_out(folder, set(inside))
    return [folder.place(name) for name in inside]


class Folder:
    """The regular files of a folder at any depth, without hidden ones.

    `folders` and `names` are paths in it, with `/`, sorted. Links to folders are followed down to
    the third level, where the class folders of `photos/train/` may be, unless they lead back up.
    `others` are the other links, and what is no regular file.
    """

    def __init__(self, path):
        self.path, self.name = path, path.resolve().name
        self.folders, self.names, self.others = [], [], []
        self._scan("", 0)

    def _scan(self, prefix, depth):
        try:
            with os.scandir(self.path / prefix) as entries:
                entries = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            raise ValueError(
                f"{self.path / prefix} cannot be read; check its permissions. Received: {error}"
            ) from error
        for entry in entries:
            name = prefix + entry.name
            if _IGNORED.fullmatch(entry.name):
                continue
            target = entry.is_symlink() and os.path.realpath(entry.path)
            leads_up = target and (self.path / prefix).resolve().is_relative_to(target)
            if entry.is_dir(follow_symlinks=depth < _LINKS and not leads_up):
                self.folders.append(name)
                self._scan(name + "/", depth + 1)
            elif entry.is_file():  # no pipe, no device: reading one need never end
                self.names.append(name)
            else:
                self.others.append(name)

    def size(self, name):
        with contextlib.suppress(OSError):
            return os.stat(self.place(name)).st_size
        return 0

    def read(self, name):
        with open(self.place(name), "rb") as file:
            _check_size(os.fstat(file.fileno()).st_size)
            return file.read()

    def place(self, name):
        return os.path.join(self.path, name)


class Archive:
    """The files of an archive. A single folder around all of them is left out of the names."""

    def __init__(self, path):
        self.path, self.name, self.others = path, path.resolve().stem, []
        try:
            members = self._members()
        except (OSError, EOFError, ValueError, zipfile.BadZipFile, tarfile.TarError) as error:
            raise ValueError(
                f"{path} cannot be read as a {path.suffix[1:]} archive; make it again, or "
                f"unpack it and pass the folder. Received: {error}"
            ) from error
        names = [n for n in sorted(members) if not any(map(_IGNORED.fullmatch, n.split("/")))]
        tops = {name.split("/")[0] for name in names}
        is_inside = len(tops) == 1 and all(n.count("/") > 1 for n in names) and not part_of(*tops)
        self._entries = {n.split("/", 1)[1] if is_inside else n: members[n] for n in names}
        self.names = list(self._entries)
        parents = {str(p) for name in self.names for p in pathlib.PurePosixPath(name).parents}
        self.folders = sorted(parents - {"."})

    def place(self, name):
        return f"{self.path}/{name}"


class ZipArchive(Archive):
    def _members(self):
        self._open = threading.local()
        with zipfile.ZipFile(self.path) as archive:
            files = [info for info in archive.infolist() if not info.is_dir()]
        names = (info.filename.replace("\\", "/") for info in files)  # of Windows' makers
        return {name.removeprefix("./"): info for name, info in zip(names, files)}

    def size(self, name):
        return self._entries[name].file_size

    def read(self, name):
        _check_size(self._entries[name].file_size)
        if not hasattr(self._open, "file"):  # one for each thread: they need not wait
            self._open.file = zipfile.ZipFile(self.path)
        try:
            return self._open.file.read(self._entries[name])
        except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
            raise ValueError(f"cannot be read from the archive: {error}") from error

    def __reduce__(self):  # an open file does not travel to another process
        return ZipArchive, (self.path,)


class TarArchive(Archive):
    """A tar archive that is not compressed: else no file were read without those before it."""

    def _members(self):
        places = {}
        with tarfile.open(self.path, "r:") as archive:
            for member in archive:
                name, target = (n.removeprefix("./") for n in (member.name, member.linkname))
                if member.isreg():
                    places[name] = member.offset_data, member.size
                elif member.islnk() and target in places:  # the second name of a file
                    places[name] = places[target]
                elif not member.isdir():
                    self.others.append(name)
        return places

    def size(self, name):
        return self._entries[name][1]

    def read(self, name):
        offset, size = self._entries[name]
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


def warn_left_out(files, kept):
    """Warns of the files that are not among those kept, and returns their places."""
    names = [*(name for name in files.names if name not in kept), *files.others]
    images = images_among(names)
    others = sorted(set(names) - set(images))
    groups = {"images without a label": images, "files that are no images by their suffix": others}
    counts = " and ".join(f"{len(group)} {what}" for what, group in groups.items() if group)
    if names:
        text = f"Left out of {files.path}: {counts}:\n{listed([*images, *others])}"
        warnings.warn(text, stacklevel=2)
    return tuple(map(files.place, names))


def listed(lines):
    """The first lines of a message, indented, and how many more there are."""
    more = [f"and {len(lines) - LISTED} more"] if len(lines) > LISTED else []
    return "\n".join(f"  {line}" for line in [*lines[:LISTED], *more])


def refuse(wrong, rule, rows=None):
    """Raises a ValueError that tells a rule and what is wrong: texts, or files and their labels."""
    if wrong := list(wrong):
        told = [name if rows is None else f"{rows[name]!r:.80} for {name!r}" for name in wrong[:5]]
        more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        raise ValueError(f"{rule}. Received: {', '.join(told)}{more}")
