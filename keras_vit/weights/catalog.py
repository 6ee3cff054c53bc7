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
import functools
import importlib.resources
import re
from fractions import Fraction

from keras_vit.checks import check_choice
from keras_vit.preprocessing import BIT, Preprocessing
from keras_vit.text import unknown

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
    found = [_checkpoint(row) for row in rows]
    parameters = {c.variant: c.parameters for c in found if c.num_classes == 1000}
    aliases = {alias: row["name"] for row in rows for alias in row["aliases"].split("; ") if alias}
    return (*found, *_vtab(parameters)), aliases


def _checkpoint(row):
    """The record of a row; an empty cell is the default of its field."""
    readers = {
        "preprocessing": _preprocessing,
        "accuracy": lambda cell: tuple((what, float(value)) for what, value in _pairs(cell)),
        "overrides": lambda cell: tuple((n, _number_or_text(v)) for n, v in _pairs(cell)),
        **dict.fromkeys(("image_size", "num_classes", "size", "parameters"), int),
        "approximate_mib": float,
    }
    names = [field.name for field in dataclasses.fields(Checkpoint) if row[field.name]]
    return Checkpoint(**{name: readers.get(name, str)(row[name]) for name in names})


def _pairs(cell):
    return [tuple(item.rsplit("=", 1)) for item in cell.split("; ")]


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
                    num_classes=num_classes,
                    preprocessing=BIT,
                    pretrained_on="imagenet-21k",
                    finetuned_on=f"vtab-1k/{task}",
                    licence="Apache-2.0",
                    parameters=parameters[f"BiT-{model}"] + (num_classes - 1000) * per_class,
                    label_set=f"vtab-1k/{task}",
                )


# ---- one by its name


def find(name):
    """The checkpoint of a name.

    Besides the exact name these lead to it: its URL (for a file of Google's buckets with `gs://`
    or `https://storage.googleapis.com/`, with or without the part after the colon), the name of
    the file where no other checkpoint shares it, each with or without `.npz`; `timm/…` or
    `hf://timm/…`; `hf://…` for Hugging Face; a Kaggle handle without its version; and
    big_vision's own short names, such as `"howto-i21k-B/16"`. One file may be published under
    two names (Google's and timm's): its URL stands for Google's.

    Args:
        name: the name, such as `"imagenet21k/ViT-B_16"` or `"vit_base_patch16_224.augreg_in21k"`.

    Returns:
        A `Checkpoint`.

    Raises:
        ValueError: no such checkpoint, with the closest names, or several.
    """
    found = lookup(name)
    if len(found) == 1:
        return found[0]
    if found:
        raise ValueError(
            f"Several checkpoints have a file of this name. Received: name={name!r}; choose one "
            f"of {[checkpoint.name for checkpoint in found]}."
        )
    if len(variants := _variants_like(str(name))) == 1:
        raise ValueError(
            f"Unknown checkpoint. Received: name={name!r}; that is an architecture: "
            f"list_weights(variant={variants[0]!r}) prints its checkpoints."
        )
    raise unknown("checkpoint", name, _index(), "name", "list_weights()")


def lookup(name):
    """The checkpoints that a name may mean: none, one, or several with the same file name."""
    return _index().get(_place(str(name)), ())


@functools.cache
def _index():
    """Dict to lists of checkpoints from names, from places, and from names of files.

    Google's records come first, so that theirs are the URLs that timm's share.
    """
    everything, others = read_tables()
    index = {c.name: [c] for c in everything}
    index.update({alias: index[name] for alias, name in others.items()})
    for c in everything:
        for place in _places(c):
            index.setdefault(place, [c])
    files = {}
    for c in everything:
        if c.family in ("google", "big_vision", "bit"):
            files.setdefault(_place(c.url).split("/")[-1], []).append(c)
    return {**files, **index}


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


# ---- many


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
    check_choice("family", family, (None, *FAMILIES))
    check_choice("data", data, (None, *dict.fromkeys(map(_last_data, everything))))
    if variant is not None:
        like = _variants_like(str(variant))
        if len(like) != 1:
            raise unknown("variant", variant, sorted({c.variant for c in everything}))
        variant = like[0]
    return tuple(
        c
        for c in everything
        if variant in (None, c.variant)
        and family in (None, c.family)
        and data in (None, _last_data(c))
        and image_size in (None, c.image_size)
    )


def _last_data(checkpoint):
    return checkpoint.finetuned_on or checkpoint.pretrained_on


def _variants_like(text):
    """The variants that differ from `text` in punctuation only, or else in case too."""
    letters = lambda text: re.sub(r"(?i)vit|bit|[^0-9a-z]", "", text)  # noqa: E731
    known = dict.fromkeys(checkpoint.variant for checkpoint in read_tables()[0])
    exact = [variant for variant in known if letters(variant) == letters(text)]
    # The case decides between names such as g/14 and G/14, and is ignored where it need not.
    return exact or [v for v in known if letters(v).lower() == letters(text).lower()]
