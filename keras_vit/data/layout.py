"""The layout of a folder or an archive of images: its parts and its classes."""

import pathlib
import warnings
from collections import Counter

from keras_vit.checks import require
from keras_vit.data.files import Folder, images_among, listed, refuse
from keras_vit.data.sources import part_of

_WORDS = ("train", "valid")  # names of parts that are names of classes as well
_NO_CLASS = ("images", "image", "imgs", "img", "jpegimages")  # beside masks or annotations


def labelled_files(files, problem=None):
    """The images of class folders, or of such folders in the folders of parts.

    A single folder around everything is stepped into. Images count at any depth below their class
    folder, unless the folders of two levels could be the classes. `files` is a `Folder` or an
    `Archive`; `problem="single_label"` allows a single class.

    Returns (class names, {part: list of (name, label)}), classes and files in sorted order. A set
    without parts has the part `"all"`.

    Raises:
        ValueError: the layout is another one, or could be read in two ways.
    """
    rule = f"Class folders give each image one class; problem={problem!r} needs labels=, a file or "
    rule += "a mapping that names the labels of each"
    require(problem in (None, "single_label"), rule, received=str(files.path))
    images = images_among(files.names)
    parts, class_names, classes = find_parts(files, images), (), {}
    for part, prefix in parts.items():
        classes[part] = _class_images(files, images, prefix, known=class_names)
        class_names = class_names or tuple(classes[part])
    first, *others = parts
    empty = [f"none in {name!r}" for name, inside in classes[first].items() if not inside]
    rule = f"Every class folder in {files.path} must hold an image; add some, or remove the others"
    refuse(empty, rule)
    if len(class_names) == 1 and problem is None:
        raise ValueError(
            f"Images of at least two classes must lie in {files.path}, each class in a folder of "
            f"its own. Received: one folder, {class_names[0]!r}, of "
            f"{len(classes[first][class_names[0]])} images; pass the folder that holds all class "
            "folders, or say problem='single_label' if one class is meant"
        )
    for part in others:
        unknown = [n for n, inside in classes[part].items() if inside and n not in class_names]
        places = [files.place(parts[each]) for each in (part, first)]
        rule = f"The classes in {places[0]} must be among those in {places[1]} "
        refuse([f"unknown {n}" for n in unknown], f"{rule}({', '.join(class_names)})")
    return class_names, {
        part: [(file, n) for n, name in enumerate(class_names) for file in inside.get(name, ())]
        for part, inside in classes.items()
    }


def find_parts(files, images):
    """{part: the beginning of its names}: the folders of parts, or `"all"` where there are none."""
    prefix = ""
    while True:
        called = {}
        for name in _subfolders(files.folders, prefix):
            if part := part_of(name):
                called.setdefault(part, []).append(name)
        classes = [name for name in folders_below(images, prefix) if name and not part_of(name)]
        if called and (("train" in called and len(called) > 1) or not classes):
            break
        deeper = _step_into(images, prefix)
        if deeper == prefix:
            return {"all": prefix}
        prefix = deeper
    for part, names in called.items():
        if len(names) > 1:
            raise ValueError(
                f"Each part of {files.place(prefix)} must be one folder. Received: "
                f"{', '.join(map(repr, names))}, which all mean {part!r}; rename or merge them"
            )
    order = [part for part in ("train", "test", "validation") if part in called]
    return {part: f"{prefix}{called[part][0]}/" for part in order}


def folders_below(names, prefix):
    """{folder: names below it} directly below a prefix; "" has the files beside the folders."""
    below = {}
    for name in names:
        if name.startswith(prefix):
            folder, slash, _ = name[len(prefix) :].partition("/")
            below.setdefault(folder if slash else "", []).append(name)
    return below


def _subfolders(folders, prefix):
    """The names of the folders directly below a prefix, with or without images, sorted."""
    return sorted({n[len(prefix) :].split("/")[0] for n in folders if n.startswith(prefix)})


def _step_into(images, prefix, known=()):
    """A prefix, and the single folder below it if it is no class but holds folders of images."""
    below = folders_below(images, prefix)
    only = next(iter(below), "")
    inside = f"{prefix}{only}/"
    if len(below) != 1 or not only or only in known or "" in folders_below(images, inside):
        return prefix
    return inside


def _class_images(files, images, prefix, known):
    """{class name: sorted image names} of the folders below a prefix."""
    while (deeper := _step_into(images, prefix, known)) != prefix:
        prefix = deeper
    below = folders_below(images, prefix)
    classes = {name: below.get(name, []) for name in _subfolders(files.folders, prefix)}
    if not any(classes.values()):
        raise _no_classes(files, prefix, classes, below.get("", []))
    levels = {name: folders_below(classes[name], f"{prefix}{name}/") for name in classes}
    _check_levels(files, prefix, levels)
    if len(classes) > 1 and (no_class := [n for n in classes if n.lower() in _NO_CLASS]):
        raise ValueError(
            f"The folders in {files.place(prefix)} must be the classes. Received: "
            f"{quoted(no_class)} beside {quoted(set(classes) - set(no_class))}; pass a folder of "
            "class folders, or name the class of each file with labels="
        )
    for name in filter(part_of, below):
        others = quoted(set(classes) - {name})
        if name.lower() not in _WORDS or "" not in levels[name]:
            raise ValueError(
                f"The parts of a set must lie in folders of their own, such as train and test, and "
                f"nothing beside them. Received: {name!r} beside {others} in "
                f"{files.place(prefix)}; move it, or rename it if it is a class"
            )
        warnings.warn(
            f"The folder {name!r} in {files.place(prefix)} is read as a class, since {others} lie "
            "beside it and no other part",
            stacklevel=2,
        )
    return classes


def _check_levels(files, prefix, levels):
    """Refuses folders within class folders that could be the classes instead.

    `levels` is {class name: {folder in it, "" for none: image names}}.
    """
    inside = {name: {*folders} - {""} for name, folders in levels.items() if folders}
    counts = Counter(folder for folders in inside.values() for folder in folders)
    repeated = [folder for folder, count in counts.items() if count > 1]
    no_class_has_images = all("" not in levels[name] for name in inside)
    two_levels = no_class_has_images and any(len(folders) > 1 for folders in inside.values())
    if {*counts} & {*inside} or len(repeated) > 1 or two_levels or any(map(part_of, counts)):
        nested = [(files.place(prefix + name), inside[name]) for name in inside if inside[name]]
        lines = [f"{place}: {quoted(folders)}" for place, folders in nested]
        raise ValueError(
            f"One level of folders must name the classes. Received: two, which both could:\n"
            f"{listed(lines)}\nIf the upper folders are parts of the set, call them train, "
            "validation and test; if they are the classes, move the images up into them, and parts "
            "above them, as in train/cat; if the lower ones are the classes, move these out, or "
            "name the class of each file with labels="
        )


def _no_classes(files, prefix, classes, beside):
    """The error for images that do not lie in class folders, or no images at all."""
    inside = [name for name in files.names if name.startswith(prefix)]
    suffixes = Counter(pathlib.Path(name).suffix.lower() or "no suffix" for name in inside)
    counts = ", ".join(f"{suffix} x{count}" for suffix, count in suffixes.most_common())
    advice = ""
    if beside:
        advice = "; labels= takes a file or a mapping that names the label of each image"
    if beside and isinstance(files, Folder) and not prefix:
        advice += f"; if this folder is one class of several, pass {files.path.resolve().parent}"
    return ValueError(
        "Images (what Pillow opens, such as .jpg and .png) must lie in one subfolder per class, "
        f"beside or below train/, validation/ and test/. Received: {files.place(prefix)} with "
        f"{len(classes)} subfolders and {f'files {counts}' if inside else 'no files at all'}"
        f"{advice}"
    )


def quoted(names, most=5):
    """The first of the names, sorted, for a message."""
    names = sorted(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more
