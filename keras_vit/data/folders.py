"""`FileSource`: the images of a folder or an archive, labelled by their folders or by name."""

import operator
import os
import pathlib
import warnings

import numpy as np

from keras_vit.data.dataset import split_rows
from keras_vit.data.files import Folder, TarArchive, ZipArchive, images_among, listed, warn_left_out
from keras_vit.data.labels import read_labels
from keras_vit.data.layout import find_parts, folders_below, labelled_files, quoted
from keras_vit.data.pixels import PATHS
from keras_vit.data.sources import Source, part_of
from keras_vit.heads import map_heads, of_head


class FileSource(Source):
    """The image files of class folders, or of an archive of them, read when they are needed.

    Where there are no parts, `test_fraction` of each class is `"test"`. With `labels`, the files
    are those that are labelled there, see `keras_vit.data.labels.read_labels`.
    """

    sorted_by_class = True
    upright = True

    def __init__(self, path, name=None, test_fraction=0.2, seed=0, labels=None, problem=None):
        archive = ZipArchive if path.suffix.lower() == ".zip" else TarArchive
        self._files = files = Folder(path) if path.is_dir() else archive(path)
        if labels is None:
            class_names, parts = labelled_files(files, problem)
            problem, shape = "single_label", ()
        else:
            labels_read, parts = files_by_label(files, labels, problem)
            fields = map(operator.attrgetter, ("class_names", "problem", "shape"))
            class_names, problem, shape = (map_heads(field, labels_read) for field in fields)
        kept = {image for inside in parts.values() for image, _ in inside}
        if isinstance(labels, PATHS):  # a file that may lie among the images
            place, folder = pathlib.Path(labels).resolve(), path.resolve()
            kept |= {place.relative_to(folder).as_posix()} if folder in place.parents else set()
        if "all" in parts:
            _warn_of_other_parts(files)
            every = parts.pop("all")
            heads = problem.items() if isinstance(problem, dict) else ()
            self.split_by = next((head for head, of in heads if of == "single_label"), None)
            values = np.array([of_head(label, self.split_by) for _, label in every])
            both = split_rows(values, test_fraction, seed, of_head(problem, self.split_by))
            parts = {p: [every[row] for row in rows] for p, rows in zip(("train", "test"), both)}
        sizes = {part: len(inside) for part, inside in parts.items()}
        super().__init__(name or files.name, class_names, sizes, problem, shape)
        self.left_out, self.content = warn_left_out(files, kept), str(path.resolve())
        self._listing = [item for inside in parts.values() for item in inside]

    def __getitem__(self, row):
        name, label = self._listing[row]
        return self._files.read(name), label

    def label(self, row):
        return self._listing[row][1]

    def identity(self, row):
        return self._listing[row]  # the name within the folder, which may be moved

    def place(self, row):
        return self._files.place(self._listing[row][0])

    def cost(self, row):
        return 2**14 + self._files.size(self._listing[row][0])  # to open a file takes time


def _warn_of_other_parts(files):
    """Warns if a folder is called like a part of a set, and other parts lie beside it."""
    path = files.path.resolve()
    if not isinstance(files, Folder) or not (part := part_of(path.name)):
        return
    try:
        beside = [folder.name for folder in path.parent.iterdir() if folder.is_dir()]
    except OSError:  # a folder above that may be passed through but not listed
        return
    if others := [name for name in beside if part_of(name) not in (None, part)]:
        warnings.warn(
            f"{files.path} is read as a whole set, and split; {quoted(others)} beside it "
            f"{'is' if len(others) == 1 else 'are'} not read. To have the parts of {path.parent}, "
            "pass that folder",
            stacklevel=2,
        )


def files_by_label(files, labels, problem=None):
    """(what `read_labels` returns, parts as of `labelled_files`) of the images labelled by name.

    Parts are those that the labels name, or else the folders of parts in which the images lie, or
    else the one part `"all"`.
    """
    labels_read = read_labels(labels, problem)
    heads = [*labels_read.values()] if isinstance(labels_read, dict) else [labels_read]
    names = match_files([*dict.fromkeys(file for each in heads for file in each.values)], files)
    images = [name for name in files.names if name in names]
    if (part_of_file := heads[0].parts) is None:
        prefixes = find_parts(files, images)
        beside = [n for n in folders_below(images, prefixes.get("all", "")) if part_of(n)]
        if beside and "all" in prefixes:
            raise ValueError(
                "The parts of a set must lie in folders of their own, such as train and test, "
                "or a column 'split' must name the part of each file. Received: labelled "
                f"images in {quoted(beside)} and in other places of {files.path}"
            )
        parts = {part: [n for n in images if n.startswith(p)] for part, p in prefixes.items()}
    else:
        order = ("train", "test", "validation")
        parts = {part: [n for n in images if part_of_file[names[n]] == part] for part in order}
    parts = {part: inside for part, inside in parts.items() if inside}

    def check_classes(labels):
        if labels.problem == "regression" or labels.listed or "train" not in parts:
            return
        seen = {part: set() for part in parts}
        for part, inside in parts.items():
            for label in (labels.values.get(names[image], ()) for image in inside):
                seen[part].update(np.flatnonzero(label) if np.ndim(label) else [label])
        if unknown := sorted(set().union(*seen.values()) - seen["train"]):
            raise ValueError(
                f"Each class must have a training image. Received: {len(parts['train'])} of "
                f"{files.path}, none of {quoted(labels.class_names[n] for n in unknown)}"
            )

    map_heads(check_classes, labels_read)

    def labelled(image):
        return image, map_heads(lambda labels: labels.value(names[image]), labels_read)

    return labels_read, {part: [*map(labelled, inside)] for part, inside in parts.items()}


def match_files(names, files):
    """{image: its name among the labels} for a folder or an archive of images.

    Names are paths in it, or in one folder in it, such as `images/`, or begin with its own path or
    name. If no name has the suffix of an image, those of the files do not count.
    """
    images = images_among(files.names)
    plain = {name: name.replace("\\", "/").removeprefix("./") for name in names}
    has_suffixes, known = bool(images_among(plain.values())), {}
    for image in images:
        known.setdefault(image if has_suffixes else os.path.splitext(image)[0], []).append(image)
    if not any(name in known for name in plain.values()):
        first = plain[names[0]]
        beginnings = (f"{files.path}/", f"{files.path.resolve()}/", f"{files.name}/")
        inside = [k.removesuffix(first) for k in known if k.endswith(f"/{first}")]
        begins = [p for p in beginnings if all(n.startswith(p) for n in plain.values())]
        if begins:
            plain = {name: path.removeprefix(begins[0]) for name, path in plain.items()}
        elif len(inside) == 1:
            plain = {name: inside[0] + path for name, path in plain.items()}
    if missing := [name for name in names if plain[name] not in known]:
        raise ValueError(
            f"Each label must have its image in {files.path}. Received: {len(missing)} of "
            f"{len(names)} without one:\n{listed(missing)}\nNames are paths in that folder"
        )
    if several := [name for name in names if len(known[plain[name]]) > 1]:
        raise ValueError(
            f"Each label must have one image in {files.path}; name files with their suffixes. "
            f"Received: {several[0]!r} for {', '.join(known[plain[several[0]]])}"
        )
    matches = {known[plain[name]][0]: name for name in names}
    if len(matches) < len(names):
        twice = next(name for name in names if matches[known[plain[name]][0]] != name)
        raise ValueError(f"Each image must have one label. Received: {twice!r} under two names")
    return matches
