"""Neighbours and linear probes on frozen features, and the mean of VTAB."""

import json
import sys

import numpy as np
import pytest
from sklearn import linear_model, neighbors

from keras_vit.data import vtab
from keras_vit.evaluation import VTAB_GROUPS, knn, linear_probe, vtab_mean

pytestmark = pytest.mark.any_backend

TASKS = [task for tasks in VTAB_GROUPS.values() for task in tasks]


def clusters(count, seed, spread=1.0):
    """Features around four centres that overlap."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, count)
    centres = np.random.default_rng(0).normal(size=(4, 10))
    return centres[labels] + spread * rng.normal(size=(count, 10)), labels


TRAIN, TEST = clusters(300, 1), clusters(101, 2)


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_plain_votes_are_those_of_scikit_learn(metric):
    found = knn(*TRAIN, *TEST, k=(1, 5, 20), temperature=None, metric=metric)
    for k, accuracy in found.accuracy.items():
        reference = neighbors.KNeighborsClassifier(k, metric=metric, algorithm="brute")
        assert accuracy == pytest.approx(reference.fit(*TRAIN).score(*TEST))


def test_weighted_votes_by_their_definition():
    similarity = unit(TEST[0]) @ unit(TRAIN[0]).T
    for k, accuracy in knn(*TRAIN, *TEST, k=(1, 10, 20), temperature=0.07).accuracy.items():
        right = 0
        for row, label in zip(similarity, TEST[1]):
            nearest = np.argsort(-row)[:k]
            votes = np.bincount(TRAIN[1][nearest], np.exp(row[nearest] / 0.07), minlength=4)
            right += votes.argmax() == label
        assert accuracy == right / len(TEST[1])


def test_the_result_of_neighbours_is_told():
    expected = knn(*TRAIN, *TEST)
    assert json.loads(json.dumps(expected.to_dict()))["accuracy"]["20"] == expected.accuracy[20]
    assert "k = 20" in str(expected) and "temperature 0.07" in str(expected)


def test_neighbours_of_bad_input():
    with pytest.raises(ValueError, match=r"none above the 300 training images. Received: k=301"):
        knn(*TRAIN, *TEST, k=301)
    with pytest.raises(ValueError, match="zeros in row 0 of test_features"):
        knn(*TRAIN, 0 * TEST[0], TEST[1])
    with pytest.raises(ValueError, match=r"temperature=None for plain votes"):
        knn(*TRAIN, *TEST, metric="euclidean")
    with pytest.raises(ValueError, match="Unknown metric"):
        knn(*TRAIN, *TEST, metric="hamming")
    with pytest.raises(ValueError, match="temperature must be a positive number"):
        knn(*TRAIN, *TEST, temperature=0)


def test_probe_with_one_c_is_that_of_scikit_learn():
    mean, std = TRAIN[0].mean(axis=0), TRAIN[0].std(axis=0)
    reference = linear_model.LogisticRegression(C=0.1, max_iter=1000)
    reference.fit((TRAIN[0] - mean) / std, TRAIN[1])
    found = linear_probe(*TRAIN, *TEST, c=0.1)
    assert found.accuracy == reference.score((TEST[0] - mean) / std, TEST[1])
    assert found.converged and found.validation == {} and found.c == 0.1
    np.testing.assert_allclose(
        found.classifier.decision_function(TEST[0]),
        reference.decision_function((TEST[0] - mean) / std),
        atol=1e-8,
    )


def test_probe_chooses_c_on_validation_images():
    found = linear_probe(*TRAIN, *TEST, c=(1e-6, 0.1, 1), validation=0.2)
    assert found.c in (0.1, 1) and set(found.validation) == {1e-6, 0.1, 1}
    assert found.validation[found.c] == max(found.validation.values())
    assert found.accuracy == linear_probe(*TRAIN, *TEST, c=found.c).accuracy
    given = linear_probe(*TRAIN, *TEST, c=(0.1, 1), validation=clusters(50, 3))
    assert set(given.to_dict()["validation"]) == {"0.1", "1.0"}
    assert "C = 0.1" in str(given) and json.dumps(given.to_dict())


def test_probe_of_two_classes_or_with_a_gap():
    train, test = (TRAIN[0], 2 * (TRAIN[1] > 1)), (TEST[0], 2 * (TEST[1] > 1))
    found = linear_probe(*train, *test, c=1.0)
    assert (found.classifier.predict(test[0]) == test[1]).mean() == found.accuracy > 0.8


def test_probe_of_bad_input(monkeypatch):
    with pytest.raises(ValueError, match=r"two classes in training. Received: only \[1\]"):
        linear_probe(TRAIN[0], np.ones(300), *TEST)
    with pytest.raises(ValueError, match=r"validation split.*Received: 4 images of 2 classes"):
        linear_probe(TRAIN[0][:4], [0, 1, 1, 1], *TEST)
    with pytest.raises(ValueError, match="c must be a positive number"):
        linear_probe(*TRAIN, *TEST, c=(0, 1.0))
    stopped = linear_probe(*TRAIN, *TEST, c=100.0, max_iter=1)
    assert not stopped.converged and "NOT converged" in str(stopped)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ImportError, match=r'scikit-learn\'s: pip install "keras3-vit\[data\]"'):
        linear_probe(*TRAIN, *TEST)


def test_vtab_of_the_paper():
    """ViT-H/14 (JFT-300M), table 9 of the paper; its mean is 77.63."""
    published = dict(
        zip(
            TASKS,
            [95.3, 85.5, 75.2, 99.7, 97.2, 65.0, 88.9]
            + [83.3, 96.7, 91.4, 76.6]
            + [91.7, 63.8, 53.1, 79.4, 63.3, 84.5, 33.2, 51.2],
        )
    )
    score = vtab_mean({task: accuracy / 100 for task, accuracy in published.items()})
    assert round(100 * score.mean, 2) == 77.63
    assert score.groups["specialized"] == pytest.approx((0.833 + 0.967 + 0.914 + 0.766) / 4)
    assert {group: len(tasks) for group, tasks in VTAB_GROUPS.items()} == {
        "natural": 7,
        "specialized": 4,
        "structured": 8,
    }
    assert sorted(TASKS) == sorted(vtab.VTAB_TASKS), "the names by which the data are loaded"
    assert "all, mean of 19" in str(score) and score.missing == ()


def test_vtab_names_and_missing_tasks():
    given = {"Flowers102": 0.5, "clevr-count": 0.25, "clevr_distance": 0.75}
    with pytest.raises(ValueError, match=r"19 tasks. Received: 3; missing: caltech101, cifar100"):
        vtab_mean(given)
    score = vtab_mean(given, allow_missing=True)
    assert score.mean == 0.5 and score.groups == {"natural": 0.5, "structured": 0.5}
    assert len(score.missing) == 16 and "missing: caltech101" in str(score)
    assert json.loads(json.dumps(score.to_dict()))["tasks"]["oxford_flowers102"] == 0.5
    with pytest.raises(ValueError, match=r"Unknown VTAB task. Received: .*'cifar10'.*cifar100"):
        vtab_mean({"cifar10": 0.9}, allow_missing=True)
    with pytest.raises(ValueError, match="sun397 twice"):
        vtab_mean({"vtab/sun397": 0.5, "Sun397": 0.5}, allow_missing=True)
    with pytest.raises(ValueError, match=r"lie in 0..1. Received: 95.3 for 'svhn'"):
        vtab_mean({"svhn": 95.3}, allow_missing=True)
    with pytest.raises(ValueError, match="Received: 0; missing"):
        vtab_mean({}, allow_missing=True)
