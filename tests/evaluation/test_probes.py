"""Neighbours and linear probes on frozen features."""

import functools
import json
import sys
import warnings

import numpy as np
import pytest
from sklearn import exceptions, linear_model, neighbors

from keras_vit.evaluation import fewshot, knn, linear_probe
from tests.support import refuses

pytestmark = pytest.mark.any_backend


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


def test_weighted_votes_by_their_definition_and_what_is_told_of_them():
    similarity = unit(TEST[0]) @ unit(TRAIN[0]).T
    for k, accuracy in knn(*TRAIN, *TEST, k=(1, 10, 20), temperature=0.07).accuracy.items():
        right = 0
        for row, label in zip(similarity, TEST[1]):
            nearest = np.argsort(-row)[:k]
            votes = np.bincount(TRAIN[1][nearest], np.exp(row[nearest] / 0.07), minlength=4)
            right += votes.argmax() == label
        assert accuracy == right / len(TEST[1])
    expected = knn(*TRAIN, *TEST)
    assert json.loads(json.dumps(expected.to_dict()))["accuracy"]["20"] == expected.accuracy[20]
    assert all(f"accuracy {k} " in str(expected) for k in (1, 10, 20))


def test_neighbours_of_bad_input():
    refuses(r"n_neighbors = 301, n_samples_fit = 300", knn, *TRAIN, *TEST, k=301)
    with pytest.raises(ValueError, match="in 0 rows of train_features and 101 of test_features"):
        knn(*TRAIN, 0 * TEST[0], TEST[1])
    refuses(r"temperature=None for plain votes", knn, *TRAIN, *TEST, metric="euclidean")
    refuses("Unknown metric", knn, *TRAIN, *TEST, metric="hamming")
    refuses("temperature must be a positive number", knn, *TRAIN, *TEST, temperature=0)


def test_probe_with_one_c_is_that_of_scikit_learn():
    white, test = ((x - TRAIN[0].mean(axis=0)) / TRAIN[0].std(axis=0) for x in (TRAIN[0], TEST[0]))
    reference = linear_model.LogisticRegression(C=0.1, max_iter=1000).fit(white, TRAIN[1])
    found = linear_probe(*TRAIN, *TEST, c=0.1)
    assert found.accuracy == reference.score(test, TEST[1])
    assert found.converged and found.validation == {} and found.c == 0.1
    scores = found.classifier.decision_function(TEST[0])
    np.testing.assert_allclose(scores, reference.decision_function(test), atol=1e-8)


def test_probe_chooses_c_on_validation_images():
    found = linear_probe(*TRAIN, *TEST, c=(1e-6, 0.1, 1), validation=0.2)
    assert found.c in (0.1, 1) and set(found.validation) == {1e-6, 0.1, 1}
    assert found.validation[found.c] == max(found.validation.values())
    assert found.accuracy == linear_probe(*TRAIN, *TEST, c=found.c).accuracy
    given = linear_probe(*TRAIN, *TEST, c=(0.1, 1), validation=clusters(50, 3))
    assert set(given.to_dict()["validation"]) == {"0.1", "1.0"}
    assert "validation 0.1 " in str(given) and json.dumps(given.to_dict())
    # Of two classes, with a gap between their numbers.
    train, test = (TRAIN[0], 2 * (TRAIN[1] > 1)), (TEST[0], 2 * (TEST[1] > 1))
    found = linear_probe(*train, *test, c=1.0)
    assert (found.classifier.predict(test[0]) == test[1]).mean() == found.accuracy > 0.8


@pytest.mark.parametrize("method", [knn, linear_probe])
def test_train_and_test_features_fit_one_another(method):
    refuses(r"as many train_features as labels.*\(299,\)", method, TRAIN[0], TRAIN[1][1:], *TEST)
    refuses("test_features must be finite", method, *TRAIN, np.nan * TEST[0], TEST[1])
    refuses("the same length. Received: 10 and 9", method, *TRAIN, TEST[0][:, 1:], TEST[1])
    refuses("must have shape", method, *TRAIN, TEST[0].reshape(101, 2, 5), TEST[1])
    known = TRAIN[1] < 3
    with pytest.warns(UserWarning, match=r"counts as wrong. Received: \d+ of 101, .* of class 3"):
        method(TRAIN[0][known], TRAIN[1][known], *TEST)


@pytest.mark.parametrize("method", [knn, linear_probe, functools.partial(fewshot, None)])
def test_images_that_are_learned_from_and_tested_on_are_told_of(method):
    sets = (TRAIN, TEST) if isinstance(method, functools.partial) else (*TRAIN, *TEST)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        method(*sets)
    both = np.concatenate([TEST[0], TRAIN[0][3:7]]), np.concatenate([TEST[1], TRAIN[1][3:7]])
    sets = (TRAIN, both) if isinstance(method, functools.partial) else (*TRAIN, *both)
    with pytest.warns(UserWarning, match="Received: 4 of 105 test features .*first in row 101"):
        method(*sets)


def test_probe_of_bad_input(monkeypatch):
    with pytest.raises(ValueError, match=r"at least 2 classes in the data.*only one class: .*1"):
        linear_probe(TRAIN[0], np.ones(300), *TEST)
    few = r"4 images and validation=0\.1\..*only 1 member.*too few members are: \[0\].*c=1\.0"
    refuses(few, linear_probe, TRAIN[0][:4], [0, 1, 1, 1], *TEST)
    with pytest.raises(ValueError, match=r"10 images.*test_size = 1 .*classes = 2.*c=1\.0"):
        linear_probe(TRAIN[0][:10], [0, 1] * 5, *TEST)
    linear_probe(TRAIN[0][:10], [0, 1] * 5, *TEST, validation=0.2)
    linear_probe(TRAIN[0][:10], [0, 1] * 5, *TEST, c=1.0)
    refuses("c must be a positive number", linear_probe, *TRAIN, *TEST, c=(0, 1.0))
    with pytest.warns(exceptions.ConvergenceWarning):
        assert not linear_probe(*TRAIN, *TEST, c=100.0, max_iter=1).converged
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ImportError, match=r'scikit-learn\'s: pip install "keras3-vit\[data\]"'):
        linear_probe(*TRAIN, *TEST)
