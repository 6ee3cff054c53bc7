"""The tasks of VTAB against what its paper and library publish."""

import io

import numpy as np
import pytest
from PIL import Image

from keras_vit.data.sources import parse_split
from keras_vit.data.vtab import VTAB_TASKS

pytestmark = pytest.mark.any_backend


def parts(train, test=None, validation=None):
    """The parts that TensorFlow Datasets lists, with their sizes."""
    sizes = {"train": train, "validation": validation, "test": test}
    return {part: size for part, size in sizes.items() if size}


# Classes, parts as TensorFlow Datasets lists them, and the examples to train on, to validate and to
# test on that arXiv:1910.04867 lists in its appendix.
PUBLISHED = {
    "caltech101": (102, parts(3059, 6085), 2753, 306, 6085),
    "cifar100": (100, parts(50000, 10000), 45000, 5000, 10000),
    "dtd": (47, parts(1880, 1880, 1880), 1880, 1880, 1880),
    "oxford_flowers102": (102, parts(1020, 6149, 1020), 1020, 1020, 6149),
    "oxford_iiit_pet": (37, parts(3680, 3669), 2944, 736, 3669),
    "sun397": (397, parts(76128, 21750, 10875), 76128, 10875, 21750),
    "svhn": (10, parts(73257, 26032), 65931, 7326, 26032),
    "eurosat": (10, parts(27000), 16200, 5400, 5400),
    "resisc45": (45, parts(31500), 18900, 6300, 6300),
    "patch_camelyon": (2, parts(262144, 32768, 32768), 262144, 32768, 32768),
    "diabetic_retinopathy": (5, parts(35126, 42670, 10906), 35126, 10906, 42670),
    "clevr_count": (8, parts(70000, 15000, 15000), 63000, 7000, 15000),
    "clevr_distance": (6, parts(70000, 15000, 15000), 63000, 7000, 15000),
    "dmlab": (6, parts(65550, 22735, 22628), 65550, 22628, 22735),
    "kitti_distance": (4, parts(6347, 711, 423), 6347, 423, 711),
    "dsprites_location": (16, parts(737280), 589824, 73728, 73728),
    "dsprites_orientation": (16, parts(737280), 589824, 73728, 73728),
    "smallnorb_azimuth": (18, parts(24300, 24300), 24300, 12150, 12150),
    "smallnorb_elevation": (9, parts(24300, 24300), 24300, 12150, 12150),
}


def chosen(task, split, sizes):
    """Which examples of the parts, one after another, are in a split: bool, shape (all,)."""
    starts = dict(zip(sizes, np.cumsum([0, *sizes.values()])))
    mask = np.zeros(sum(sizes.values()), bool)
    for part, start, stop in parse_split(VTAB_TASKS[task].splits(sizes)[split], sizes):
        mask[starts[part] + start : starts[part] + stop] = True
    return mask


@pytest.mark.parametrize("task", VTAB_TASKS)
def test_splits_and_classes(task):
    classes, sizes, *counts = PUBLISHED[task]
    assert VTAB_TASKS[task].num_classes == classes
    found = {split: chosen(task, split, sizes) for split in VTAB_TASKS[task].splits(sizes)}
    assert [found[split].sum() for split in ("train", "val", "test")] == counts
    np.testing.assert_array_equal(found["train"] | found["val"], found["trainval"])
    assert not (found["train"] & found["val"]).any()
    assert not (found["trainval"] & found["test"]).any()
    for small, whole, size in (("train800", "train", 800), ("val200", "val", 200)):
        assert found[small].sum() == size and not (found[small] & ~found[whole]).any()
    both = found["train800"] | found["val200"]
    np.testing.assert_array_equal(found["train800val200"], both)


def test_there_are_nineteen_and_the_1000_examples_of_cifar100_are_known():
    assert set(VTAB_TASKS) == set(PUBLISHED) and len(PUBLISHED) == 19
    assert VTAB_TASKS["cifar100"].splits({"train": 50000, "test": 10000})["train800val200"] == (
        "train[:800]+train[45000:45200]"
    )


def test_labels_made_of_annotations():
    def label(task, **features):
        return VTAB_TASKS[task].label(features)

    assert [label("clevr_count", objects={"size": [0] * n}) for n in (3, 10)] == [0, 7]
    for distance, expected in ((7.0, 0), (8.0, 0), (8.1, 1), (9.9, 4), (10.1, 5), (50.0, 5)):
        coordinates = np.array([[1, 1, 60.0], [1, 1, distance]], np.float32)
        assert label("clevr_distance", objects={"pixel_coords": coordinates}) == expected
    for kinds, expected in (([0, 5], 0), ([1, 0], 0), ([5, 2], 1), ([5, 4], 3)):
        places = [np.array([0, 0, 7.0]), np.array([0, 0, 15.0])]
        assert label("kitti_distance", objects={"location": places, "type": kinds}) == expected
    assert label("kitti_distance", objects={"location": [], "type": []}) == 3
    places = [label("dsprites_location", label_x_position=x) for x in (0, 1, 2, 31)]
    assert places == [0, 0, 1, 15]
    turns = [label("dsprites_orientation", label_orientation=x) for x in (0, 2, 3, 5, 39)]
    assert turns == [0, 0, 1, 2, 15]
    assert label("smallnorb_azimuth", label_azimuth=17) == 17
    assert label("smallnorb_elevation", label_elevation=8) == 8


def test_dsprites_become_visible():
    buffer = io.BytesIO()
    Image.fromarray(np.array([[0, 1]], np.uint8)).save(buffer, "PNG")
    pixels = VTAB_TASKS["dsprites_location"].decode(buffer.getvalue())
    assert pixels.tolist() == [[[0], [255]]]
