"""The catalogue of published checkpoints: one by its name, all that fit, or a printed list.

One line of catalog.csv is one published file under one name. Lists inside a cell are separated by
`; ` and hold `key=value`; a preprocessing is written `resize crop_fraction interpolation library`,
and a name of `STATISTICS` where mean and std are not 0.5.

The accuracies are what the publishers measured with their own preprocessing, so numbers of
different families do not compare exactly. Several ports report that the 21 843-way head of the
original `imagenet21k/` files holds zeros: those files are for fine-tuning, the `augreg/…-i21k-…`
ones also predict. The parameters of BiT on VTAB-1k are those with 1000 classes, less their heads.

`tests/oracles/make_catalog_rows.py` writes timm's rows of later families from timm's own list.

Sources: google-research's vision_transformer, big_vision, big_transfer and (for VTAB's classes)
task_adaptation, timm, transformers, keras-hub, torchvision and facebookresearch/deit.
"""

import csv
import dataclasses
import functools
import importlib.resources
import re
import textwrap
from fractions import Fraction

from keras_vit.checks import check_choice
from keras_vit.preprocessing import Preprocessing
from keras_vit.text import unknown

STATISTICS = {  # (mean, std) of each channel
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "openai": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "satellite": ((0.43, 0.411, 0.296), (0.213, 0.156, 0.143)),
    "unit": ((0.0,) * 3, (1.0,) * 3),
}
NAME_WIDTH = 34  # of the first column of a list: longer names get a line of their own
# Who published weights.
FAMILIES = (*"google big_vision timm huggingface meta torchvision bit keras_hub keras_vit".split(),)


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """One published file of weights, and what has to be known to use it.

    Attributes:
        name: unique; what `weights=` takes.
        family: who published it: one of `FAMILIES`.
        url: where: `gs://`, `https://`, `hf://organisation/repository`, `kaggle://` or, in this
            package, `package://`; what follows a colon after `.npz` is the part of the file.
        variant: the architecture, such as `"B/16"`, `"R50+B/16"`, `"BiT-R50x1"` or `"mini/4"`.
        image_size: the resolution in pixels of the last training; `None` without a single one.
        num_classes: outputs of the head, 0 for a file without one.
        preprocessing: how its publishers prepare images; `None` where only a config says it.
        pretrained_on: the data set of the pre-training.
        finetuned_on: the data set that came after it, if any.
        licence: as stated by the publisher, or `"unstated"`.
        size: exact bytes, where published.
        approximate_mib: the published size, where it is a rounded one.
        parameters: how many numbers the model has; `None` where unknown.
        accuracy: published percentages by what was measured, best known first.
        label_set: whose order the classes follow, or `None` without classes.
        overrides: arguments of `VisionTransformer` that the file itself cannot say.
    """

    name: str
    family: str
    url: str
    variant: str
    image_size: int | None = None
    num_classes: int = 0
    preprocessing: Preprocessing | None = None
    pretrained_on: str = ""
    finetuned_on: str | None = None
    licence: str = "unstated"
    size: int | None = None
    approximate_mib: float | None = None
    parameters: int | None = None
    accuracy: tuple[tuple[str, float], ...] = ()
    label_set: str | None = None
    overrides: tuple[tuple[str, object], ...] = ()


@functools.cache
def read_tables():
    """All checkpoints, and a dict from further names of some to their names."""
    text = importlib.resources.files("keras_vit.weights").joinpath("catalog.csv").read_text("utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    aliases = {alias: row["name"] for row in rows for alias in row["aliases"].split("; ") if alias}
    return tuple(map(_checkpoint, rows)), aliases


def _checkpoint(row):
    """The record of a row; an empty cell is the default of its field."""
    readers = {"preprocessing": _preprocessing, "approximate_mib": float}
    readers |= dict.fromkeys(("image_size", "num_classes", "size", "parameters"), int)
    readers |= dict.fromkeys(("accuracy", "overrides"), _pairs)
    names = [field.name for field in dataclasses.fields(Checkpoint) if row[field.name]]
    return Checkpoint(**{name: readers.get(name, str)(row[name]) for name in names})


def _pairs(cell):
    pairs = (item.rsplit("=", 1) for item in cell.split("; "))
    return tuple((name, float(x) if x[0].isdigit() else x) for name, x in pairs)


@functools.cache
def _preprocessing(text):
    resize, crop, interpolation, library, *named = text.split()
    mean, std = STATISTICS[named[0]] if named else ((0.5,) * 3, (0.5,) * 3)
    return Preprocessing(mean, std, resize, float(Fraction(crop)), interpolation, library)


def find(name):
    """The `Checkpoint` of a name.

    Besides the exact name these lead to it: its URL (`gs://` or `https://`), the name of the file
    where no other checkpoint shares it, each with or without `.npz`; `timm/…` or `hf://timm/…`; a
    Kaggle handle without its version; and big_vision's short names, such as `"howto-i21k-B/16"`.

    Raises:
        ValueError: no such checkpoint, with the closest names, or several.
    """
    records, variants = lookup(name), _variants_named(str(name))
    if len(records) == 1:
        return records[0]
    if records:
        raise ValueError(
            f"Several checkpoints have a file of this name. Received: name={name!r}; choose one "
            f"of {[checkpoint.name for checkpoint in records]}."
        )
    if len(variants) == 1:
        raise ValueError(
            f"Unknown checkpoint. Received: name={name!r}; that is an architecture: "
            f"`keras-vit list --variant {variants[0]}` or list_weights(variant={variants[0]!r}) "
            "prints its checkpoints."
        )
    raise unknown("checkpoint", name, _index(), "name", "`keras-vit list` or list_weights()")


def lookup(name):
    """The checkpoints that a name may mean: none, one, or several with the same file name."""
    name = str(name)  # digits.npz is somebody's own file: the checkpoint digits is no npz
    records = _index().get(_place(name), ())
    return [c for c in records if ".npz" in c.url or not name.endswith(".npz")]


@functools.cache
def _index():
    """Dict to lists of checkpoints from names, from places, and from names of files.

    Google's records come first, so that theirs are the URLs that timm's share.
    """
    everything, others = read_tables()
    index = {c.name: [c] for c in everything}
    index |= {alias: index[name] for alias, name in others.items()}
    files = {}
    for c in everything:
        places = [_place(c.url)]
        if c.family == "timm":
            places += [f"timm/{c.name}", f"hf://timm/{c.name}"]
        elif c.family == "keras_hub":
            places.append(c.url.rpartition("/")[0])
        elif c.family in ("google", "big_vision", "meta", "bit"):
            files.setdefault(places[0].split("/")[-1], []).append(c)
        for place in places:
            index.setdefault(place, [c])
    return {**files, **index}


def _place(text):
    """One spelling for all URLs of a file in Google's buckets."""
    text = text.replace("https://storage.googleapis.com/", "gs://")
    return re.sub(r"(?<=\.npz):\w+$", "", text).removesuffix(".npz")


def checkpoints(
    variant: str | None = None,
    family: str | None = None,
    data: str | None = None,
    image_size: int | None = None,
) -> tuple[Checkpoint, ...]:
    """The published checkpoints that fit all of the arguments, in the order of the catalogue.

    Args:
        variant: such as `"B/16"`, also written `"B16"`, `"ViT-B/16"`, `"ViT_B16"` or `"vit_b16"`.
        family: what architectures are called, such as `"dino"` or `"mae"`; or one of `FAMILIES`.
        data: the data set that the weights were trained on last, such as `"imagenet-1k"`.
        image_size: the resolution in pixels.

    Raises:
        ValueError: a variant, a family or a data set that no checkpoint has.
    """
    everything, _ = read_tables()
    of_family = _of_family(family, everything)
    last = {c: c.finetuned_on or c.pretrained_on for c in everything}
    check_choice("data", data, (None, *dict.fromkeys(last.values())))
    if variant is not None:
        named = _variants_named(str(variant))
        if len(named) != 1:
            raise unknown("variant", variant, sorted({c.variant for c in everything}))
        variant = named[0]
    return tuple(
        c
        for c in everything
        if variant in (None, c.variant)
        and c in of_family
        and data in (None, last[c])
        and image_size in (None, c.image_size)
    )


def _of_family(family, everything):
    """The checkpoints of a publisher, or of architectures of a name; all where `family` is `None`.

    A name is a part of those of variant or checkpoint, perhaps with a version after it; or else
    what the variant begins with.
    """
    if family is None or family in FAMILIES:
        return {c for c in everything if family in (None, c.family)}
    letters = lambda text: re.sub(r"[^0-9a-z]", "", str(text).lower())  # noqa: E731
    wanted = letters(family)
    word = re.compile(re.escape(wanted) + r"(v?\d+)?")
    parts = lambda c: re.split(r"[^0-9a-z]+", f"{c.variant} {c.name}".lower())  # noqa: E731
    named = {c for c in everything if any(map(word.fullmatch, parts(c)))}
    named = named or {c for c in everything if letters(c.variant).startswith(wanted)}
    if not named or not wanted:
        first = {re.split(r"[-/+]|v?\d", c.variant)[0] for c in everything}
        known = sorted(name for name in first - {"mini"} if len(name) > 2)
        raise unknown("family", family, [*known, *FAMILIES])
    return named


def _variants_named(text):
    """The variants that differ from `text` in punctuation only, or else in case too."""
    text = re.sub(r"\+(?=\W?\d)", "plus", text)  # of a size, not between two parts of a name
    letters = lambda text: re.sub(r"(?i)vit|bit|[^0-9a-z]", "", text.replace("+/", "plus"))  # noqa: E731
    known = {checkpoint.variant: letters(checkpoint.variant) for checkpoint in read_tables()[0]}
    exact = [variant for variant, short in known.items() if short == letters(text)]
    # The case decides between names such as g/14 and G/14, and is ignored where it need not.
    return exact or [v for v, short in known.items() if short.lower() == letters(text).lower()]


# ---- as a printed list


def list_weights(
    variant: str | None = None,
    family: str | None = None,
    data: str | None = None,
    image_size: int | None = None,
) -> None:
    """Prints a table of checkpoints; `keras_vit.weights.checkpoints` gives their records.

    The columns are the name for `weights=`, the architecture, the resolution (px), the number of
    classes, the data sets (pre-training → fine-tuning), the size in MiB (after `~` computed from
    the number of float32 parameters), the published ImageNet top-1 accuracy, and the licence. The
    285 files of BiT on VTAB-1k share one line per model. Arguments and errors as in `checkpoints`.
    """
    fitting = checkpoints(variant, family, data, image_size)
    print(_line(("name", "variant", "px", "classes", "trained on", "MiB", "top-1", "licence")))
    for family in FAMILIES:
        rows = {row[0]: row for row in (_cells(c) for c in fitting if c.family == family)}
        if rows:
            print(f"\n{family}:", *map(_line, rows.values()), sep="\n")
    names = {c.name for c in fitting}
    if tasks := ", ".join(sorted({c.label_set[8:] for c in fitting if c.name[:5] == "vtab/"})):
        text = f"The * of vtab/BiT-M-…-run*-* are the runs 0, 1, 2 and the tasks {tasks}."
        print("\n" + textwrap.fill(text, 116, break_on_hyphens=False))
    others = {a: name for a, name in read_tables()[1].items() if name in names and "://" not in a}
    if others:
        print("\nother names:", *(f"{a:<18}  {name}" for a, name in others.items()), sep="\n")


def _cells(c):
    vtab = c.name.startswith("vtab/")
    data_sets = (c.pretrained_on, "vtab-1k" if vtab else c.finetuned_on)
    mib = f"~{c.parameters * 4 / 2**20:.0f}" if c.parameters else "-"
    mib = f"{c.size / 2**20:.1f}" if c.size else mib
    top_1 = dict(c.accuracy).get("imagenet top-1")
    return (
        f"{c.name.partition('-run')[0]}-run*-*" if vtab else c.name,
        c.variant,
        c.image_size or "-",
        "*" if vtab else c.num_classes or "-",
        " → ".join(d.replace("imagenet-", "i") for d in data_sets if d),
        f"{c.approximate_mib:.0f}" if c.approximate_mib else mib,
        "-" if top_1 is None else f"{top_1:.2f}",
        c.licence,
    )


def _line(cells):
    name, *others = cells
    text = "{:<20}  {:>4}  {:>7}  {:<14}  {:>5}  {:>5}  {:<10}".format(*others).rstrip()
    separator = "  " if len(name) <= NAME_WIDTH else "\n" + " " * (NAME_WIDTH + 2)
    return f"{name:<{NAME_WIDTH}}{separator}{text}"
