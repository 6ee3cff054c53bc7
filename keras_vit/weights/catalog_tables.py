"""The published checkpoints as data: the columns of catalog.csv, and the VTAB files of BiT.

One line of catalog.csv is one published file under one name. Lists inside a cell are separated by
`; ` and hold `key=value`; a preprocessing is written `resize crop_fraction interpolation library`.
"""

import csv
import dataclasses
import functools
import importlib.resources
from fractions import Fraction

from keras_vit.preprocessing import BIT, Preprocessing

FAMILIES = ("google", "big_vision", "timm", "huggingface", "bit", "keras_hub")

# The tasks of VTAB-1k under their names in BiT's files, and how many classes each has: those of
# the data set, and for the tasks built from CLEVR, dSprites and KITTI those of the benchmark's
# own code (google-research/task_adaptation).
VTAB_TASKS = {
    "caltech101": 102,
    "cifar100": 100,
    "clevr-count": 8,
    "clevr-distance": 6,
    "diabetic_retinopathy": 5,
    "dmlab": 6,
    "dsprites-orientation": 16,
    "dsprites-xpos": 16,
    "dtd": 47,
    "eurosat": 10,
    "kitti-distance": 4,
    "oxford_flowers102": 102,
    "oxford_iiit_pet": 37,
    "patch_camelyon": 2,
    "resisc45": 45,
    "smallnorb-azimuth": 18,
    "smallnorb-elevation": 9,
    "sun397": 397,
    "svhn": 10,
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
    """All checkpoints, and the further names of some.

    Returns:
        A tuple of `Checkpoint`, and a dict from alias to name: big_vision's short names for files
        of other families, and second places of a file.
    """
    text = importlib.resources.files("keras_vit.weights").joinpath("catalog.csv").read_text("utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    found = [_checkpoint(row) for row in rows]
    parameters = {c.variant: c.parameters for c in found if c.num_classes == 1000}
    aliases = {alias: row["name"] for row in rows for alias in _items(row["aliases"])}
    return (*found, *_vtab(parameters)), aliases


def _checkpoint(row):
    return Checkpoint(
        **{name: row[name] for name in ("name", "family", "url", "variant")},
        image_size=_optional(int, row["image_size"]),
        num_classes=int(row["num_classes"]),
        preprocessing=_preprocessing(row["preprocessing"]),
        pretrained_on=row["pretrained_on"],
        finetuned_on=row["finetuned_on"] or None,
        licence=row["licence"],
        size=_optional(int, row["size"]),
        approximate_mib=_optional(float, row["approximate_mib"]),
        parameters=_optional(int, row["parameters"]),
        accuracy=tuple((what, float(value)) for what, value in _pairs(row["accuracy"])),
        label_set=row["label_set"] or None,
        overrides=tuple((name, _value(value)) for name, value in _pairs(row["overrides"])),
    )


@functools.cache
def _preprocessing(text):
    resize, crop_fraction, interpolation, library = text.split()
    return Preprocessing(
        resize=resize,
        crop_fraction=float(Fraction(crop_fraction)),
        interpolation=interpolation,
        library=library,
    )


def _vtab(parameters):
    """BiT-M fine-tuned three times on each task: a grammar of 285 names.

    Args:
        parameters: of a model with 1000 classes, by variant.
    """
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


def _items(cell):
    return [item for item in cell.split("; ") if item]


def _pairs(cell):
    return [tuple(item.rsplit("=", 1)) for item in _items(cell)]


def _optional(kind, cell):
    return kind(cell) if cell else None


def _value(cell):
    try:
        return float(cell)
    except ValueError:
        return cell
