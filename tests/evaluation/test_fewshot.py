"""The few-shot regression against the authors' code, and the protocol around it."""

import dataclasses
import itertools
import json
import re

import numpy as np
import pytest

from keras_vit.data import ImageDataset, preprocess
from keras_vit.evaluation import extract_features, fewshot, least_squares, pick_shots, probe
from keras_vit.evaluation.fewshot import features_to_compare
from tests.support import ORACLES, images, read_arrays, refuses, tiny_vit

pytestmark = pytest.mark.any_backend

ORACLE = read_arrays(ORACLES / "fewshot" / "fewshot_lsr.npz")
CASES = json.loads((ORACLES / "fewshot" / "index.json").read_text())["cases"]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c['key']}-{c['l2']:g}")
def test_equal_to_the_authors_code(case):
    x, y, test_x, test_y = (
        ORACLE[f"{case['key']}/{name}"] for name in ("x_train", "y_train", "x_test", "y_test")
    )
    found = least_squares(x, y, case["classes"], case["l2"])
    expected = f"{case['key']}/l2_{case['l2']:g}"
    # A weak penalty leaves the problem ill-conditioned: the oracle is no better than this itself.
    tolerance = max(1e-10, 10 * case["max_diff_to_normal_equations"])
    weights, scores = ORACLE[f"{expected}/W_f64"], ORACLE[f"{expected}/scores_f64"]
    np.testing.assert_allclose(found.weights, weights, rtol=0, atol=tolerance)
    np.testing.assert_allclose(found.scores(test_x), scores, rtol=0, atol=100 * tolerance)
    assert found.accuracy(test_x, test_y) == pytest.approx(case["acc_f64"], abs=1e-7)
    if case["l2"] >= 1:  # and in the precision of the authors
        found = least_squares(x, y, case["classes"], case["l2"], dtype="float32")
        assert found.weights.dtype == found.scores(test_x).dtype == np.float32
        theirs = np.abs(ORACLE[f"{expected}/scores_f32"] - scores).max()
        assert np.abs(found.scores(test_x) - scores).max() <= 20 * theirs + 1e-6
        assert found.accuracy(test_x, test_y) == pytest.approx(case["acc_f64"], abs=0.011)


@pytest.mark.parametrize("images_", [9, 200])
def test_the_closed_form_is_the_solution_of_the_normal_equations(images_):
    """On both sides of n = d, where the system changes."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(images_, 30)), np.arange(images_) % 3
    found = least_squares(x, y, l2=7.0)
    white = np.c_[(x - x.mean(0)) / (x.std(0) + 1e-5), np.full(images_, 100.0)]
    targets = 2 * np.eye(3)[y] - 1
    expected = np.linalg.solve(white.T @ white + 7.0 * np.eye(31), white.T @ targets)
    np.testing.assert_allclose(found.weights, expected, atol=1e-10)


def test_the_authors_pick_of_images_and_that_of_a_class_with_fewer():
    for seed, shots in itertools.product((0, 1, 2), (1, 5, 10)):
        expected = ORACLE[f"sampling/seed{seed}_shots{shots}"]
        np.testing.assert_array_equal(pick_shots(ORACLE["sampling/labels"], shots, seed), expected)
    picked = pick_shots([0, 1, 0, 1, 1, 0, 0], shots=4, seed=3)
    assert sorted(picked[:4]) == [0, 2, 5, 6] and sorted(picked[4:]) == [1, 3, 4]
    data = np.random.default_rng(0).normal(size=(7, 3)), [0, 1, 0, 1, 1, 0, 0]
    result = fewshot(None, data, data, shots=(1, 4))
    assert result.examples == {1: 2, 4: 7}


def data(count, seed):
    """Images of three classes, each brighter in another colour."""
    labels = np.arange(count) % 3
    noise = images((count, 16, 16, 3), seed)
    return noise / 8 + np.eye(3)[labels][:, None, None].astype("float32"), labels


def test_a_frozen_model(tmp_path):
    model, train, test = tiny_vit(), data(31, 0), data(20, 1)
    result = fewshot(model, train, test, shots=(1, 5), seeds=(0, 7), batch_size=8)
    x, y = extract_features(model, train)
    test_features = extract_features(model, test)
    for position, seed in enumerate((0, 7)):
        rows = pick_shots(y, 5, seed)
        expected = least_squares(x[rows], y[rows]).accuracy(*test_features)
        assert result.accuracy[5][position] == pytest.approx(expected, abs=0.051)  # one image
    assert result.mean[5] == pytest.approx(np.mean(result.accuracy[5]))
    assert result.mean[5] > 0.8 and result.test_examples == 20
    assert fewshot(None, (x, y), test_features, (1, 5), (0, 7)).mean[5] > 0.8
    assert fewshot(None, (x, y), test_features, 5, seeds=7).accuracy[5] == result.accuracy[5][1:]
    result.save(tmp_path / "fewshot.json")
    assert json.loads((tmp_path / "fewshot.json").read_text()) == result.to_dict()
    assert re.search(r"accuracy 5 .*\nexamples 1 .*\nseeds +0, 7\n", str(result), re.DOTALL)


def test_a_dataset_is_learned_from_by_its_training_images():
    model, train, test = tiny_vit(), data(31, 0), data(20, 1)
    in_range = ((x.clip(-1, 1) + 1) / 2 for x, _ in (train, test))
    (x, y), (test_x, test_y) = zip(in_range, (train[1], test[1]))
    toy = ImageDataset("toy", x, y, test_x, test_y, ("red", "green", "blue"))
    for other in (toy, (preprocess(test_x, model), test_y)):
        learned, tested = features_to_compare(model, toy, other)
        for found, expected in ((learned, (x, y)), (tested, (test_x, test_y))):
            features = extract_features(model, (preprocess(expected[0], model), expected[1]))
            np.testing.assert_array_equal(found[1], features[1])
            np.testing.assert_allclose(found[0], features[0], atol=1e-5)
    assert probe(model, toy, toy, shots=2).examples == {2: 6}
    ages = dataclasses.replace(toy, class_names=None, problem="regression")
    refuses("and not values to estimate", probe, model, ages, ages, shots=2)


def test_bad_input():
    x, y = np.zeros((4, 2)), np.array([0, 1, 0, 1])
    refuses(r"l2 must be a positive number. Received: l2=0", least_squares, x, y, l2=0)
    refuses(r"same length. Received: 2 and 3", fewshot, None, (x, y), (np.zeros((4, 3)), y))
    with pytest.raises(ValueError, match=r"as many train_features as labels.*\(4, 2\) and \(3,\)"):
        fewshot(None, (x, y[:3]), (x, y))
    refuses(r"test_features must be finite.*row 0", fewshot, None, (x, y), (x + np.nan, y))
    refuses(r"in 0\.\.1. Received: 2 others, the first 2", least_squares, x, y + 1, num_classes=2)
    with pytest.raises(ValueError, match=r"training image. Received: none of 1 classes.* as 2"):
        fewshot(None, (x, y), (x, y + 1))
    ids = np.array([0, 1, 0, 10**9])
    many = r"numbers ids. Received: labels up to 1,000,000,000"
    refuses(many, fewshot, None, (x, y), (x, ids))
    refuses(many, least_squares, x, ids)
    refuses(many, pick_shots, ids, 1, 0)
    few = r"more than 2 training images. Received: shots=\[500\]"
    refuses(few, fewshot, None, (x, y), (x, y), shots=500)
    for empty in ({"shots": []}, {"seeds": ()}):
        refuses(r"must be shots and seeds", fewshot, None, (x, y), (x, y), **empty)
    refuses(r"Unknown dtype", least_squares, x, y, dtype="float16")
