"""The catalogue of published checkpoints: find one by name, or list what there is.

One line of catalog.csv is one published file under one name. Lists inside a cell are separated by
`; ` and hold `key=value`; a preprocessing is written `resize crop_fraction interpolation library`.

The accuracies are what the publishers measured with their own preprocessing, so numbers of
different families do not compare exactly. Several ports report that the 21 843-way head of the
original `imagenet21k/` files holds zeros: those files are for fine-tuning, the `augreg/…-i21k-…`
ones also predict.

Sources: the README, notebooks and configurations of google-research's vision_transformer,
big_vision and big_transfer, of timm, transformers, keras-hub and facebookresearch/deit.
"""

import csv
import dataclasses
import difflib
import functools
import importlib.resources
import re
from fractions import Fraction

from keras_vit.checks import check_choice
from keras_vit.preprocessing import BIT, Preprocessing

FAMILIES = ("google", "big_vision", "timm", "huggingface", "bit", "keras_hub")

# The tasks of VTAB-1k under their names in BiT's files, and how many classes each has: those of
# the data set, and for the tasks built from CLEVR, dSprites and KITTI those of the benchmark's
# own code (google-research/task_adaptation).
VTAB_TASKS = {
    name: int(classes)
    for name, classes in re.findall(
        r"(\S+)=(\d+)",
        """
        caltech101=102 cifar100=100 clevr-count=8 clevr-distance=6 diabetic_retinopathy=5 dmlab=6
        dsprites-orientation=16 dsprites-xpos=16 dtd=47 eurosat=10 kitti-distance=4
        oxford_flowers102=102 oxford_iiit_pet=37 patch_camelyon=2 resisc45=45 smallnorb-azimuth=18
        smallnorb-elevation=9 sun397=397 svhn=10
        """,
    )
}
VTAB_MODELS = ("R50x1", "R101x1", "R50x3", "R101x3", "R152x4")
VTAB_RUNS = (0, 1, 2)
_RAISE = object()


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """One published file of weights, and what has to be known to use it.

    Attributes:
        name: unique; what `weights=` takes.
        family: who published it: one of `FAMILIES`.
        url: where, as published: `gs://`, `https://`, `hf://organisation/repository` or
            `kaggle://`; what follows a colon after `.npz` is the part of the file.
        variant: the architecture, such as `"B/16"`, `"R50+B/16"` or `"BiT-R50x1"`.
        image_size: the resolution in pixels that the weights were last trained at, or `None`
            where there is no single one or it was not published.
        num_classes: outputs of the head, 0 for a file without one.
        preprocessing: how its images are prepared by those who published it.
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
    image_size: int | None
    num_classes: int
    preprocessing: Preprocessing
    pretrained_on: str
    finetuned_on: str | None
    licence: str
    size: int | None
    approximate_mib: float | None
    parameters: int | None
    accuracy: tuple[tuple[str, float], ...]
    label_set: str | None
    overrides: tuple[tuple[str, object], ...]


@functools.cache
def read_tables():
    """All checkpoints, and a dict from further names of some to their names."""
    text = importlib.resources.files("keras_vit.weights").joinpath("catalog.csv").read_text("utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    found = [_checkpoint(row) for row in rows]
    parameters = {c.variant: c.parameters for c in found if c.num_classes == 1000}
    aliases = {alias: row["name"] for row in rows for alias in row["aliases"].split("; ")}
    aliases.pop("", None)
    return (*found, *_vtab(parameters)), aliases


def _checkpoint(row):
    """The record of a row: a cell is read as the type of the field, `None` where it is empty."""
    readers = {
        "preprocessing": _preprocessing,
        "accuracy": lambda cell: tuple((what, float(value)) for what, value in _pairs(cell)),
        "overrides": lambda cell: tuple((n, _number_or_text(v)) for n, v in _pairs(cell)),
        **dict.fromkeys(("image_size", "num_classes", "size", "parameters"), int),
        "approximate_mib": float,
    }
    values = {}
    for field in dataclasses.fields(Checkpoint):
        cell, is_list = row[field.name], field.name in ("accuracy", "overrides")
        values[field.name] = readers.get(field.name, str)(cell) if cell or is_list else None
    return Checkpoint(**values)


def _number_or_text(cell):
    return float(cell) if cell[0].isdigit() else cell


@functools.cache
def _preprocessing(text):
    resize, crop, interpolation, library = text.split()
    crop = float(Fraction(crop))
    return Preprocessing((0.5,) * 3, (0.5,) * 3, resize, crop, interpolation, library)


def _vtab(parameters):
    """BiT-M fine-tuned three times on each task: `parameters` are those with 1000 classes."""
    for model in VTAB_MODELS:
        per_class = 2048 * int(model.partition("x")[2]) + 1  # features of the head and its bias
        for run in VTAB_RUNS:
            for task, num_classes in VTAB_TASKS.items():
                stem = f"BiT-M-{model}-run{run}-{task}"
                yield Checkpoint(
                    name=f"vtab/{stem}",
                    family="bit",
                    url=f"https://storage.googleapis.com/bit_models/vtab/{stem}.npz",
                    variant=f"BiT-{model}",
                    image_size=None,
                    num_classes=num_classes,
                    preprocessing=BIT,
                    pretrained_on="imagenet-21k",
                    finetuned_on=f"vtab-1k/{task}",
                    licence="Apache-2.0",
                    size=None,
                    approximate_mib=None,
                    parameters=parameters[f"BiT-{model}"] + (num_classes - 1000) * per_class,
                    accuracy=(),
                    label_set=f"vtab-1k/{task}",
                    overrides=(),
                )


def _pairs(cell):
    return [tuple(item.rsplit("=", 1)) for item in cell.split("; ") if item]


def find(name, missing=_RAISE):
    """The checkpoint of a name.

    Besides the exact name these lead to it: its URL (for a file of Google's buckets with `gs://`
    or `https://storage.googleapis.com/`, with or without the part after the colon), the name of
    the file where no other checkpoint shares it, each with or without `.npz`; `timm/…` or
    `hf://timm/…`; `hf://…` for Hugging Face; a Kaggle handle without its version; and
    big_vision's own short names, such as `"howto-i21k-B/16"`. One file may be published under
    two names (Google's and timm's): its URL stands for Google's.

    Args:
        name: the name, such as `"imagenet21k/ViT-B_16"` or `"vit_base_patch16_224.augreg_in21k"`.
        missing: what to return where there is no such checkpoint, instead of raising.

    Returns:
        A `Checkpoint`.

    Raises:
        ValueError: no such checkpoint, with the closest names, or several.
    """
    text = str(name)
    names, places, files = _index()
    for key in (text, text.removesuffix(".npz")):
        if key in names:
            return names[key]
    if _place(text) in places:
        return places[_place(text)]
    found = files.get(_place(text), ())
    if len(found) == 1:
        return found[0]
    if missing is not _RAISE:
        return missing
    if found:
        raise ValueError(
            f"Several checkpoints have a file of this name. Received: name={name!r}; choose one "
            f"of {[checkpoint.name for checkpoint in found]}."
        )
    raise ValueError(_unknown(text, [*names, *places, *files]))


def checkpoints(variant=None, family=None, data=None, image_size=None):
    """The checkpoints of an architecture, of a family, of a data set, or all.

    Args:
        variant: such as `"B/16"`, also written `"B16"`, `"ViT-B/16"`, `"ViT_B16"` or `"vit_b16"`;
            `None` for every one.
        family: one of `FAMILIES`, or `None` for every one.
        data: the data set that the weights were trained on last, such as `"imagenet-1k"` or
            `"imagenet-21k"`, or `None` for every one.
        image_size: the resolution in pixels, or `None` for every one.

    Returns:
        A tuple of `Checkpoint`, in the order of the catalogue.

    Raises:
        ValueError: a variant or data set that no checkpoint has, or an unknown family.
    """
    everything, _ = read_tables()
    if family is not None:
        check_choice("family", family, FAMILIES)
    if data is not None:
        check_choice("data", data, list(dict.fromkeys(map(_last_data, everything))))
    wanted = None if variant is None else _variant(variant)
    return tuple(
        c
        for c in everything
        if wanted in (None, c.variant)
        and family in (None, c.family)
        and data in (None, _last_data(c))
        and image_size in (None, c.image_size)
    )


def _last_data(checkpoint):
    return checkpoint.finetuned_on or checkpoint.pretrained_on


@functools.cache
def _index():
    """Three dicts to checkpoints: from names, from places, and from file names to all of them.

    Google's records come first, so that theirs are the URLs that timm's share.
    """
    everything, others = read_tables()
    names = {checkpoint.name: checkpoint for checkpoint in everything}
    names.update({alias: names[name] for alias, name in others.items()})
    places, files = {}, {}
    for checkpoint in everything:
        for place in _places(checkpoint):
            places.setdefault(place, checkpoint)
        if checkpoint.family in ("google", "big_vision", "bit"):
            files.setdefault(_place(checkpoint.url).split("/")[-1], []).append(checkpoint)
    return names, places, files


def _places(checkpoint):
    yield _place(checkpoint.url)
    if checkpoint.family == "timm":
        yield from (f"timm/{checkpoint.name}", f"hf://timm/{checkpoint.name}")
    if checkpoint.family == "keras_hub":
        yield checkpoint.url.rpartition("/")[0]


def _place(text):
    """One spelling for all URLs of a file in Google's buckets."""
    text = re.sub(r"(?<=\.npz):\w+$", "", text)
    text = re.sub(r"^https://storage\.googleapis\.com/", "gs://", text)
    return text.removesuffix(".npz")


def _unknown(text, known):
    spelled = {key.lower(): key for key in reversed(known)}
    close = difflib.get_close_matches(text.lower(), spelled, n=5, cutoff=0.6)
    message = f"Unknown checkpoint. Received: name={text!r}; "
    variants = _variants_like(text)
    if len(variants) == 1:
        message += f"that is an architecture: list_weights(variant={variants[0]!r}) prints its "
        return message + "checkpoints."
    if close:
        message += f"did you mean one of {[spelled[key] for key in close]}? "
    return message + "list_weights() prints all names."


def _variant(text):
    found = _variants_like(str(text))
    if len(found) == 1:
        return found[0]
    raise ValueError(
        f"No checkpoint of such a variant is published. Received: variant={text!r}; expected one "
        f"of {sorted({c.variant for c in read_tables()[0]})}, however punctuated."
    )


def _variants_like(text):
    """The variants that differ from `text` in punctuation only, or else in case too."""
    letters = lambda text: re.sub(r"(?i)vit|bit|[^0-9a-z]", "", text)  # noqa: E731
    known = dict.fromkeys(checkpoint.variant for checkpoint in read_tables()[0])
    exact = [variant for variant in known if letters(variant) == letters(text)]
    # The case decides between names such as g/14 and G/14, and is ignored where it need not.
    return exact or [v for v in known if letters(v).lower() == letters(text).lower()]
