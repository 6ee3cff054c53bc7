"""`FileSource`: the images of a folder or an archive, labelled by their folders or by name."""

import os
import warnings

import numpy as np

from keras_vit.data.dataset import split_rows
from keras_vit.data.files import Folder, images_among, listed, open_files, warn_left_out
from keras_vit.data.labels import read_labels
from keras_vit.data.layout import find_parts, folders_below, labelled_files, quoted
from keras_vit.data.pixels import PATHS
from keras_vit.data.sources import Source, part_of
from keras_vit.heads import errors_of, map_heads, of_head


class FileSource(Source):
    """The image files of class folders, or of an archive of them, read when they are needed.

    Where there are no parts, `test_fraction` of each class is `"test"`. With `labels`, the files
    are those that are labelled there, see `keras_vit.data.labels.read_labels`.
    """

    sorted_by_class = True
    upright = True

    def __init__(self, path, name=None, test_fraction=0.2, seed=0, labels=None, problem=None):
        files = open_files(path)
        if labels is None:
            if problem not in (None, "single_label"):
                raise ValueError(
                    f"Class folders give each image one class; problem={problem!r} needs labels=, "
                    f"a file or a mapping that names the labels of each. Received: {files.path}"
                )
            class_names, parts = labelled_files(files, problem)
            problem, shape = "single_label", ()
        else:
            labels_read, parts = files_by_label(files, labels, problem)
            class_names, problem = labels_read.class_names, labels_read.problem
            shape = map_heads(np.shape, next(iter(labels_read.values.values())))
        kept = {image for inside in parts.values() for image, _ in inside}
        kept |= _files_of(labels, files)
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
        self.left_out = warn_left_out(files, [n for n in files.names if n not in kept])
        self._files = files
        self._listing = [item for inside in parts.values() for item in inside]

    def __getitem__(self, row):
        name, label = self._listing[row]
        return self._files.read(name), label

    def label(self, row):
        return self._listing[row][1]

    def place(self, row):
        return self._files.place(self._listing[row][0])


def _files_of(labels, files):
    """The file of labels, if it lies in the folder of the images, as a set of names."""
    if not isinstance(labels, PATHS) or not isinstance(files, Folder):
        return set()
    path, folder = (os.path.realpath(path) for path in (labels, files.path))
    return {os.path.relpath(path, folder).replace(os.sep, "/")}


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
    """The images that are labelled by name, in the form of `labelled_files`.

    Returns:
        (`Labels`, dict from each part to a list of (name, label)). Parts are those that the labels
        name, or else the folders of parts in which the images lie, or else the one part `"all"`.
    """
    labels_read = read_labels(labels, problem)
    names = match_files(labels_read.values, files)
    images = [name for name in files.names if name in names]
    if labels_read.parts is None:
        prefixes = find_parts(files, images)
        if beside := [n for n in folders_below(images, prefixes.get("all", "")) if part_of(n)]:
            if "all" in prefixes:
                raise ValueError(
                    "The parts of a set must lie in folders of their own, such as train and test, "
                    "or a column 'split' must name the part of each file. Received: labelled "
                    f"images in {quoted(beside)} and in other places of {files.path}"
                )
        parts = {part: [n for n in images if n.startswith(p)] for part, p in prefixes.items()}
    else:
        parts = {part: [] for part in ("train", "test", "validation")}
        for name in images:
            parts[labels_read.parts[names[name]]].append(name)
    parts = {
        part: [(name, labels_read.values[names[name]]) for name in inside]
        for part, inside in parts.items()
        if inside
    }
    for head in labels_read.problem if isinstance(labels_read.problem, dict) else [None]:
        problem, listed = of_head(labels_read.problem, head), of_head(labels_read.listed, head)
        if problem == "regression" or listed or "train" not in parts:
            continue
        seen = {part: _classes_among(inside, head) for part, inside in parts.items()}
        if unknown := sorted(set().union(*seen.values()) - seen["train"]):
            names = of_head(labels_read.class_names, head)
            with errors_of(head, note=False):
                raise ValueError(
                    f"Each class must have a training image. Received: {len(parts['train'])} of "
                    f"{files.path}, none of {quoted(names[n] for n in unknown)}"
                )
    return labels_read, parts


def _classes_among(items, head):
    """The numbers of the classes that (name, label) pairs have, of one head or of the only one."""
    labels = np.array([of_head(label, head) for _, label in items])
    if labels.ndim == 1:
        return set(labels[labels >= 0].tolist())
    return set((labels == 1).nonzero()[1].tolist())


def match_files(labels, files):
    """{image: its name among the labels} for a folder or an archive of images.

    Names are paths in it, or in one folder in it, such as `images/`, or begin with its own path or
    name. If no name has the suffix of an image, those of the files do not count.

    Raises:
        ValueError: a name without a file, or with several.
    """
    images, names = images_among(files.names), list(labels)
    plain = {name: name.replace("\\", "/").removeprefix("./") for name in names}
    if not images_among(plain.values()):
        known = {}
        for image in images:
            known.setdefault(os.path.splitext(image)[0], []).append(image)
    else:
        known = {image: [image] for image in images}
    if not any(name in known for name in plain.values()):
        first = plain[names[0]]
        beginnings = (f"{files.path}/", f"{files.path.resolve()}/", f"{files.name}/")
        inside = [k.removesuffix(first) for k in known if k.endswith(f"/{first}")]
        if before := next(
            (p for p in beginnings if all(n.startswith(p) for n in plain.values())), ""
        ):
            plain = {name: path.removeprefix(before) for name, path in plain.items()}
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
