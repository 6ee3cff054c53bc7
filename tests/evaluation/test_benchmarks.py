"""ReaL accuracy in the authors' file format, and the mean of VTAB."""

import json
import re

import numpy as np
import pytest

from keras_vit.data import vtab
from keras_vit.evaluation import VTAB_GROUPS, real_accuracy, vtab_mean
from tests.support import refuses

pytestmark = pytest.mark.any_backend

TASKS = [task for tasks in VTAB_GROUPS.values() for task in tasks]
LISTS = [[65], [970, 795], [], [230, 231], [516, 520], [57], [], [334]]


@pytest.fixture
def path(tmp_path):
    (tmp_path / "real.json").write_text(json.dumps(LISTS))
    return tmp_path / "real.json"


def by_the_readme(predictions, labels):
    """The loop that the authors' README gives."""
    return np.mean([p in labels[i] for i, p in enumerate(predictions) if labels[i]])


def test_as_the_authors_compute_it(path):
    predictions = np.array([65, 795, 1, 230, 3, 57, 2, 0])
    for labels in (path, str(path), LISTS):
        found = real_accuracy(predictions, labels)
        assert found.accuracy == by_the_readme(predictions, LISTS) == 4 / 6
    assert (found.correct, found.examples, found.left_out) == (4, 6, 2)
    assert re.search(r"RealAccuracy\ncorrect +4\n.*\naccuracy +0\.6667$", str(found), re.DOTALL)
    assert json.loads(json.dumps(found.to_dict()))["correct"] == 4
    # Of random predictions and scores.
    rng = np.random.default_rng(0)
    labels = [list(map(int, rng.choice(10, rng.integers(0, 4), False))) for _ in range(200)]
    scores = rng.normal(size=(200, 10))
    expected = by_the_readme(scores.argmax(axis=1), labels)
    assert real_accuracy(scores, labels).accuracy == pytest.approx(expected, abs=1e-12)


def test_bad_input(tmp_path, path):
    refuses(r"Received: 3 predictions and labels of 8 images", real_accuracy, [1, 2, 3], path)
    refuses(r"Received: 9 predictions and labels of 8 images", real_accuracy, np.zeros(9), path)
    refuses(r"below the 10 classes.*label 970", real_accuracy, np.zeros((8, 10)), path)
    refuses("labels for at least one image", real_accuracy, [1, 2], [[], []])
    with pytest.raises(FileNotFoundError, match=r"reassessed-imagenet.*Received: .*absent"):
        real_accuracy([1], tmp_path / "absent.json")
    for content, received in (
        ('{"ILSVRC2012_val_00000001.JPEG": [65]}', "dict"),
        ("[]", "no labels"),
        ("[65, 970]", "65 for image 0"),
        ('[[65], ["tench"]]', r"\['tench'\] for image 1"),
        ("[[-1]]", r"\[-1\] for image 0"),
        ("[[true]]", r"\[True\] for image 0"),
    ):
        path.write_text(content)
        structure = rf"\[\[65\], \[970, 795\], \[\]\]. Received: {received}"
        refuses(structure, real_accuracy, [1], path)


def test_vtab_of_the_paper():
    """ViT-H/14 (JFT-300M), table 9 of the paper; its mean is 77.63."""
    natural, specialized = [95.3, 85.5, 75.2, 99.7, 97.2, 65.0, 88.9], [83.3, 96.7, 91.4, 76.6]
    structured = [91.7, 63.8, 53.1, 79.4, 63.3, 84.5, 33.2, 51.2]
    published = zip(TASKS, natural + specialized + structured)
    score = vtab_mean({task: accuracy / 100 for task, accuracy in published})
    assert round(100 * score.mean, 2) == 77.63
    assert score.groups["specialized"] == pytest.approx((0.833 + 0.967 + 0.914 + 0.766) / 4)
    counts = {group: len(tasks) for group, tasks in VTAB_GROUPS.items()}
    assert counts == {"natural": 7, "specialized": 4, "structured": 8}
    assert sorted(TASKS) == sorted(vtab.VTAB_TASKS), "the names by which the data are loaded"
    assert re.search(r"\nmean +0\.7763\nmissing +none$", str(score)) and score.missing == ()


def test_vtab_names_and_missing_tasks():
    given = {"Flowers102": 0.5, "clevr-count": 0.25, "clevr_distance": 0.75}
    refuses(r"19 tasks.* Received: 3; missing: caltech101, cifar100", vtab_mean, given)
    score = vtab_mean(given, allow_missing=True)
    assert score.mean == 0.5 and score.groups == {"natural": 0.5, "structured": 0.5}
    assert len(score.missing) == 16 and re.search("missing +caltech101, cifar100", str(score))
    assert json.loads(json.dumps(score.to_dict()))["tasks"]["oxford_flowers102"] == 0.5
    with pytest.raises(ValueError, match=r"Unknown VTAB task. Received: .*'cifar10'.*cifar100"):
        vtab_mean({"cifar10": 0.9}, allow_missing=True)
    refuses("sun397 twice", vtab_mean, {"vtab/sun397": 0.5, "Sun397": 0.5}, allow_missing=True)
    with pytest.raises(ValueError, match=r"lie in 0..1. Received: 95.3 for 'svhn'"):
        vtab_mean({"svhn": 95.3}, allow_missing=True)
    refuses("Received: 0; missing", vtab_mean, {}, allow_missing=True)
