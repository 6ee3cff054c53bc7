"""Confusion matrix, calibration and ranks against scikit-learn and closed forms."""

import json

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn import metrics

from keras_vit.evaluation import calibration, confusion_matrix, fit_temperature
from keras_vit.evaluation.evaluate import label_ranks
from keras_vit.evaluation.metrics import are_logits, confidences
from tests.support import refuses

pytestmark = pytest.mark.any_backend
CLASSES = 6


@pytest.fixture(scope="module")
def logits():
    return 2 * np.random.default_rng(0).normal(size=(500, CLASSES))


@pytest.fixture(scope="module")
def labels(logits):
    noise = np.random.default_rng(1).gumbel(size=logits.shape)
    return (logits + noise).argmax(axis=1)  # drawn from the softmax: calibrated


def test_confusion_matrix_is_that_of_scikit_learn(logits, labels):
    predictions = logits.argmax(axis=1)
    found = confusion_matrix(labels, predictions, CLASSES)
    np.testing.assert_array_equal(found.matrix, metrics.confusion_matrix(labels, predictions))
    assert found.matrix.dtype == np.int64
    assert found.accuracy == pytest.approx(metrics.accuracy_score(labels, predictions))
    mean = metrics.balanced_accuracy_score(labels, predictions)
    assert found.mean_per_class_accuracy == pytest.approx(mean)
    precision, recall, *_ = metrics.precision_recall_fscore_support(labels, predictions)
    np.testing.assert_allclose(found.precision, precision)
    np.testing.assert_allclose(found.recall, recall)


def test_most_confused_pairs():
    found = confusion_matrix([0, 0, 0, 1, 1, 3], [1, 1, 0, 1, 0, 0], 4, ["a", "b", "c", "d"])
    assert found.most_confused() == [("a", "b", 2), ("b", "a", 1), ("d", "a", 1)]
    assert found.most_confused(1) == [("a", "b", 2)]
    assert "4 of 6 images wrong" in str(found) and "a            b               2" in str(found)
    assert json.loads(json.dumps(found.to_dict()))["recall"] == [1 / 3, 0.5, None, 0.0]
    assert confusion_matrix([0, 1], [0, 1]).most_confused() == []


def test_confusion_of_bad_input():
    refuses(r"as many labels as predictions.*\(2,\) and \(1,\)", confusion_matrix, [0, 1], [0])
    refuses(r"predictions must be whole numbers in 0\.\.1", confusion_matrix, [0, 1], [0, 2], 2)
    refuses("of length 2", confusion_matrix, [0, 2], [0, 2], class_names=["a", "b"])
    with pytest.raises(ValueError, match=r"at most 30,000 .*numbers ids.*up to 1,000,000,000"):
        confusion_matrix([0, 10**9], [0, 1])
    refuses("at least one", confusion_matrix, [], [])


def test_calibration_by_its_definition(logits, labels):
    found = calibration(logits, labels, bins=15)
    p = softmax(logits, axis=1)
    confidence, right = p.max(axis=1), p.argmax(axis=1) == labels
    gaps, counts = [], []
    for m in range(15):
        inside = (confidence > m / 15) & (confidence <= (m + 1) / 15)
        counts.append(inside.sum())
        if inside.any():
            gaps.append(inside.mean() * abs(right[inside].mean() - confidence[inside].mean()))
    np.testing.assert_array_equal(found.counts, counts)
    assert found.expected_error == pytest.approx(sum(gaps), abs=1e-12)
    assert found.expected_error < 0.1, "the labels were drawn from the predictions"
    assert found.negative_log_likelihood == pytest.approx(metrics.log_loss(labels, p))
    brier = ((p - np.eye(CLASSES)[labels]) ** 2).sum(axis=1).mean()
    assert found.brier == pytest.approx(brier)


def test_logits_and_probabilities_agree_and_empty_bins_are_none(logits, labels):
    from_logits, given = calibration(logits, labels), calibration(softmax(logits, axis=1), labels)
    for name, value in from_logits.to_dict().items():
        assert given.to_dict()[name] == pytest.approx(value, abs=1e-6)
    empty = [from_logits.to_dict()[name][0] for name in ("counts", "confidence", "accuracy")]
    assert empty == [0, None, None]
    assert "0.933-1.000" in str(from_logits)


def test_two_bins_by_hand_and_what_is_perfect_or_perfectly_wrong():
    sure = np.eye(3)[[0, 1, 2]]
    assert calibration(sure, [0, 1, 2]).to_dict()["expected_error"] == 0
    wrong = calibration(sure, [1, 2, 0])
    assert wrong.expected_error == 1 and wrong.brier == 2
    assert wrong.negative_log_likelihood == pytest.approx(-np.log(1e-7)), "Keras's epsilon"
    p = [[0.9, 0.1], [0.9, 0.1], [0.5, 0.5], [0.4, 0.6]]
    found = calibration(p, [0, 1, 0, 1], bins=2)
    assert found.counts.tolist() == [1, 3], "0.5 belongs to the bin below it"
    assert found.confidence.tolist() == [0.5, pytest.approx(0.8)]
    assert found.accuracy.tolist() == [1.0, pytest.approx(2 / 3)]
    gaps = (0.5, 0.8 - 2 / 3)
    assert found.expected_error == pytest.approx((gaps[0] + 3 * gaps[1]) / 4)
    assert found.maximum_error == pytest.approx(0.5)
    assert found.brier == pytest.approx((0.02 + 1.62 + 0.5 + 0.32) / 4)


def test_temperature_repairs_overconfidence(logits, labels):
    before = fit_temperature(logits, labels)
    assert fit_temperature(3 * logits, labels) == pytest.approx(3 * before, rel=1e-9)
    assert before == pytest.approx(1, abs=0.15), "the labels were drawn at temperature 1"
    overconfident = calibration(3 * logits, labels)
    repaired = calibration(3 * logits / fit_temperature(3 * logits, labels), labels)
    assert repaired.expected_error < overconfident.expected_error / 2
    for t in (0.97, 1.03):
        near = calibration(logits / (t * before), labels).negative_log_likelihood
        assert near > calibration(logits / before, labels).negative_log_likelihood


def test_a_temperature_of_probabilities_is_refused(logits, labels):
    """It would be that of a softmax of them."""
    p = softmax(logits, axis=1)
    for scores in (p, p.astype("float16")):
        refuses(r"divides logits.*np\.log\(p\)", fit_temperature, scores, labels)
    assert fit_temperature(np.log(p), labels) == pytest.approx(fit_temperature(logits, labels))


def test_ranks_are_those_of_top_k(logits, labels):
    for k in (1, 2, 5):
        expected = metrics.top_k_accuracy_score(labels, logits, k=k)
        assert (label_ranks(logits, labels) < k).mean() == pytest.approx(expected)
    ties = label_ranks(np.zeros((3, 3)), np.array([0, 1, 2]))
    assert ties.tolist() == [0, 1, 2], "as argmax: of equals the lower number first"


def test_what_counts_as_logits(logits):
    p = softmax(logits, axis=1)
    assert are_logits(logits) and not are_logits(p) and are_logits(np.log(p))
    assert not are_logits(p.astype("float16").astype("float64"))
    assert are_logits(np.zeros((2, 3))), "a fresh head"
    huge = confidences(np.array([[1e4, -1e4]]), np.array([1]), True)[1]
    assert huge == pytest.approx(2e4)


def test_calibration_of_bad_input(logits, labels):
    damaged = logits.copy()
    damaged[7, 2] = np.nan
    refuses("1 NaN or infinite values, the first for its image 7", calibration, damaged, labels)
    refuses(r"sum to 1.*from_logits=True", calibration, expit(logits), labels, from_logits=False)
    refuses(r"whole numbers in 0\.\.5", calibration, logits, labels + 1)
    refuses(r"shapes \(500, 6\) and \(3,\)", calibration, logits, labels[:3])
    refuses("bins must be a positive integer", calibration, logits, labels, bins=0)
    refuses("Unknown from_logits", calibration, logits, labels, from_logits="yes")
