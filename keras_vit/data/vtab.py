"""The 19 tasks of VTAB: their sets, their splits and how a label is made of what was annotated.

Source: Zhai et al., "A Large-scale Study of Representation Learning with the Visual Task Adaptation
Benchmark", arXiv:1910.04867, and the library published with it, google-research/task_adaptation
(task_adaptation/data/*.py; the tasks are those of scripts/run_all_tasks.sh). VTAB-1k, which the
ViT paper reports, trains on `train800val200` and tests on `test`.
"""

import dataclasses
import io
from collections.abc import Callable

import numpy as np
from PIL import Image

from keras_vit.data.sources import parse_split


def feature(name):
    """The label is the annotation of that name."""
    return lambda features: int(features[name])


_LABEL = feature("label")


@dataclasses.dataclass(frozen=True)
class Task:
    """One task of VTAB.

    Attributes:
        name: such as `"clevr_count"`.
        num_classes: how many classes the task has, which may be fewer than are annotated.
        parts: the splits to train on, to validate on and to test on, as `parse_split` reads them.
        dataset: name, and configuration if there are several, in TensorFlow Datasets; the task's
            by default.
        major: the major version that the published splits belong to.
        label: features of an example, as TensorFlow Datasets nests them -> class.
        decode: encoded image -> uint8 pixels, where they are not simply the image.
    """

    name: str
    num_classes: int
    parts: tuple[str, str, str]
    dataset: str = ""
    major: int = 3
    label: Callable[[dict], int] = _LABEL
    decode: Callable[[bytes], np.ndarray] | None = None

    def __post_init__(self):
        object.__setattr__(self, "dataset", self.dataset or self.name)

    def splits(self, sizes):
        """VTAB's name of a split -> what `parse_split` reads, for parts of such sizes."""
        train, validation, test = self.parts
        part, start, _ = parse_split(validation, sizes)[0]
        val200 = f"{part}[{start}:{start + 200}]"
        return {
            "train": train,
            "val": validation,
            "trainval": f"{train}+{validation}",
            "test": test,
            "train800": "train[:800]",
            "val200": val200,
            "train800val200": f"train[:800]+{val200}",
        }


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
    with Image.open(io.BytesIO(encoded)) as image:
        return np.asarray(image.convert("L"), dtype=np.uint8)[..., None] * np.uint8(255)


_GIVEN = ("train", "validation", "test")
_CUT_90 = ("train[:90%]", "train[90%:]", "test")
_CUT_60_20 = ("train[:60%]", "train[60%:80%]", "train[80%:]")
_CLEVR = ("train[:90%]", "train[90%:]", "validation")
_DSPRITES = {
    "parts": ("train[:80%]", "train[80%:90%]", "train[90%:]"),
    "dataset": "dsprites",
    "major": 2,
    "decode": white_on_black,
}
_SMALLNORB = {
    "parts": ("train", "test[:50%]", "test[50%:]"),
    "dataset": "smallnorb",
    "major": 2,
}
_TASKS = (
    Task("caltech101", 102, _CUT_90),
    Task("cifar100", 100, _CUT_90),
    Task("dtd", 47, _GIVEN),
    Task("oxford_flowers102", 102, _GIVEN, major=2),
    Task("oxford_iiit_pet", 37, ("train[:80%]", "train[80%:]", "test")),
    Task("sun397", 397, _GIVEN, "sun397/tfds", major=4),
    Task("svhn", 10, _CUT_90, "svhn_cropped"),
    Task("patch_camelyon", 2, _GIVEN, major=2),
    Task("eurosat", 10, _CUT_60_20, "eurosat/rgb", major=2),
    Task("resisc45", 45, _CUT_60_20),
    Task("diabetic_retinopathy", 5, _GIVEN, "diabetic_retinopathy_detection/btgraham-300"),
    Task("clevr_count", 8, _CLEVR, "clevr", label=clevr_count),
    Task("clevr_distance", 6, _CLEVR, "clevr", label=clevr_distance),
    Task("dmlab", 6, _GIVEN, major=2),
    Task("dsprites_location", 16, **_DSPRITES, label=grouped("label_x_position", 32, 16)),
    Task("dsprites_orientation", 16, **_DSPRITES, label=grouped("label_orientation", 40, 16)),
    Task("kitti_distance", 4, _GIVEN, "kitti", label=kitti_distance),
    Task("smallnorb_azimuth", 18, **_SMALLNORB, label=feature("label_azimuth")),
    Task("smallnorb_elevation", 9, **_SMALLNORB, label=feature("label_elevation")),
)
VTAB_TASKS = {task.name: task for task in _TASKS}
