"""The 19 tasks of VTAB: their sets, their splits and how a label is made of what was annotated.

Source: Zhai et al., "A Large-scale Study of Representation Learning with the Visual Task Adaptation
Benchmark", arXiv:1910.04867, and the library published with it, google-research/task_adaptation
(task_adaptation/data/*.py; the tasks are those of scripts/run_all_tasks.sh). VTAB-1k, which the
ViT paper reports, trains on `train800val200` and tests on `test`.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from keras_vit.data.pixels import pixels_of
from keras_vit.data.sources import parse_split


def feature(name):
    """The label is the annotation of that name."""
    return lambda features: int(features[name])


_LABEL = feature("label")


@dataclasses.dataclass(frozen=True)
class Task:
    """One task of VTAB."""

    num_classes: int  # which may be fewer than are annotated
    parts: tuple[str, str, str]  # to train, validate and test on, as `parse_split` reads them
    dataset: str  # its name, and configuration if there are several, in TensorFlow Datasets
    major: int = 3  # the major version that the published splits belong to
    label: Callable[[dict], int] = _LABEL  # of the features of an example
    decode: Callable[[bytes], np.ndarray] | None = None  # to pixels, where not simply the image

    def splits(self, sizes):
        """VTAB's name of a split -> what `parse_split` reads, for parts of such sizes."""
        train, validation, test = self.parts
        part, start, _ = parse_split(validation, sizes)[0]
        val200 = f"{part}[{start}:{start + 200}]"
        names = {"train": train, "val": validation, "trainval": f"{train}+{validation}"}
        names |= {"train800": "train[:800]", "val200": val200, "test": test}
        return names | {"train800val200": f"train[:800]+{val200}"}


def grouped(name, annotated, num_classes):
    """Neighbouring values form one class: `annotated` values become `num_classes`."""
    width = np.float32(annotated / num_classes)
    return lambda features: int(np.float32(features[name]) // width)


def clevr_count(features):
    """The number of objects, 3 to 10, counted from 3."""
    return len(features["objects"]["size"]) - 3


def clevr_distance(features):
    """The distance of the nearest object, in six intervals."""
    distance = np.reshape(features["objects"]["pixel_coords"], (-1, 3))[:, 2].min()
    return _interval(distance, (0.0, 8.0, 8.5, 9.0, 9.5, 10.0, 100.0))


def kitti_distance(features):
    """The distance of the nearest car, van or truck, in metres: to 8, to 20, farther, or none."""
    ahead = np.reshape(features["objects"]["location"], (-1, 3))[:, 2]
    vehicles = ahead[np.asarray(features["objects"]["type"]) < 3]
    return _interval(min([1000.0, *vehicles.tolist()]), (-100.0, 8.0, 20.0, 999.0))


def _interval(value, bounds):
    """The last bound below the value; a value on a bound belongs to the interval before it."""
    return int(np.flatnonzero(np.array(bounds) < value).max())


def white_on_black(encoded):
    """dSprites stores pixels as 0 and 1."""
    return pixels_of(encoded, 1) * np.uint8(255)


_GIVEN = ("train", "validation", "test")
_CUT_90 = ("train[:90%]", "train[90%:]", "test")
_CUT_60_20 = ("train[:60%]", "train[60%:80%]", "train[80%:]")
_CLEVR = ("train[:90%]", "train[90%:]", "validation")
_DSPRITES = {"parts": ("train[:80%]", "train[80%:90%]", "train[90%:]"), "dataset": "dsprites"}
_DSPRITES |= {"major": 2, "decode": white_on_black}
_SMALLNORB = {"parts": ("train", "test[:50%]", "test[50%:]"), "dataset": "smallnorb", "major": 2}
VTAB_TASKS = {
    "caltech101": Task(102, _CUT_90, "caltech101"),
    "cifar100": Task(100, _CUT_90, "cifar100"),
    "dtd": Task(47, _GIVEN, "dtd"),
    "oxford_flowers102": Task(102, _GIVEN, "oxford_flowers102", major=2),
    "oxford_iiit_pet": Task(37, ("train[:80%]", "train[80%:]", "test"), "oxford_iiit_pet"),
    "sun397": Task(397, _GIVEN, "sun397/tfds", major=4),
    "svhn": Task(10, _CUT_90, "svhn_cropped"),
    "patch_camelyon": Task(2, _GIVEN, "patch_camelyon", major=2),
    "eurosat": Task(10, _CUT_60_20, "eurosat/rgb", major=2),
    "resisc45": Task(45, _CUT_60_20, "resisc45"),
    "diabetic_retinopathy": Task(5, _GIVEN, "diabetic_retinopathy_detection/btgraham-300"),
    "clevr_count": Task(8, _CLEVR, "clevr", label=clevr_count),
    "clevr_distance": Task(6, _CLEVR, "clevr", label=clevr_distance),
    "dmlab": Task(6, _GIVEN, "dmlab", major=2),
    "dsprites_location": Task(16, **_DSPRITES, label=grouped("label_x_position", 32, 16)),
    "dsprites_orientation": Task(16, **_DSPRITES, label=grouped("label_orientation", 40, 16)),
    "kitti_distance": Task(4, _GIVEN, "kitti", label=kitti_distance),
    "smallnorb_azimuth": Task(18, **_SMALLNORB, label=feature("label_azimuth")),
    "smallnorb_elevation": Task(9, **_SMALLNORB, label=feature("label_elevation")),
}
