"""The losses and the accuracy, against their formulas in NumPy."""

import json

import keras
import numpy as np
import pytest

from keras_vit.training import Accuracy, SigmoidLoss, SoftmaxLoss, sigmoid_head_bias
from keras_vit.training.feed import check_labels
from keras_vit.training.losses import DistillationLoss
from tests.support import dtype_of, precision, refuses, to_numpy

CLASSES = 7


def case(dtype="float32", seed=0):
    rng = np.random.default_rng(seed)
    logits = (5 * rng.normal(size=(4, CLASSES))).astype(dtype)
    mixed = rng.dirichlet(np.ones(CLASSES), size=4).astype(dtype)
    return logits, mixed, np.array([0, 3, 6, 3])


def sigmoid_xent(labels, logits):
    """big_vision's: summed over the classes."""
    log_p, log_not_p = -np.logaddexp(0, -logits), -np.logaddexp(0, logits)
    return np.mean(-np.sum(labels * log_p + (1 - labels) * log_not_p, axis=-1))


def softmax_xent(labels, logits):
    log_p = logits - np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))
    return np.mean(-np.sum(labels * log_p, axis=-1))


BOTH = pytest.mark.parametrize(
    "make, formula", [(SigmoidLoss, sigmoid_xent), (SoftmaxLoss, softmax_xent)]
)


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-6), ("float64", 1e-13)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@BOTH
def test_losses_equal_their_formulas(make, formula, smoothing, dtype, tolerance):
    logits, mixed, integers = case(dtype)
    with precision(dtype):
        loss = make(label_smoothing=smoothing, dtype=dtype)
        for labels, one_hot in ((mixed, mixed), (integers, np.eye(CLASSES)[integers])):
            smooth = one_hot * (1 - smoothing) + smoothing / CLASSES
            found = loss(labels, logits)
            assert dtype_of(found) == dtype
            found = float(to_numpy(found))
            assert found == pytest.approx(formula(smooth, logits.astype("float64")), rel=tolerance)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@BOTH
def test_weights_of_classes(make, formula, smoothing):
    """Of a mixed label each part has the loss of its class, times the weight of that."""
    logits, mixed, integers = case()
    weights = np.linspace(0.25, 3.0, CLASSES)
    loss = make(smoothing, class_weights=weights.tolist())
    for labels, one_hot in ((mixed, mixed), (integers, np.eye(CLASSES)[integers])):
        smooth = one_hot * (1 - smoothing) + smoothing / CLASSES
        expected = 0
        for k, one_class in enumerate(np.eye(CLASSES)):
            for row, scores in zip(smooth, logits.astype("float64")):
                expected += row[k] * weights[k] * formula(one_class[None], scores[None]) / 4
        assert float(to_numpy(loss(labels, logits))) == pytest.approx(expected, rel=1e-5)
    same = make(smoothing, class_weights=[1.0] * CLASSES)(mixed, logits)
    assert to_numpy(same) == pytest.approx(to_numpy(make(smoothing)(mixed, logits)), rel=1e-5)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    assert again.class_weights == loss.class_weights == tuple(weights)
    assert "class_weights" not in vars(make()) and "class_weights" not in make().get_config()
    refuses("class_weights must be a positive number", make, class_weights=[1.0, 0.0])
    with pytest.raises(ValueError, match=r"one for each logit.*Received: 2 weights for logits"):
        make(class_weights=[1.0, 2.0])(mixed, logits)


@pytest.mark.parametrize("make", [SigmoidLoss, SoftmaxLoss, DistillationLoss])
@pytest.mark.parametrize("reduction", ["sum", "mean", "mean_with_sample_weight"])
def test_every_mean_is_taken_in_float64(make, reduction):
    logits, mixed, _ = case("float64")
    weights = np.array([0.5, 1.0, 0.0, 1.5])
    with precision("float64"):
        each = to_numpy(make(reduction=None, dtype="float64")(mixed, logits))
        found = make(reduction=reduction, dtype="float64")(mixed, logits, weights)
        assert dtype_of(found) == "float64"
        count = {"sum": 1.0, "mean": 4.0, "mean_with_sample_weight": 3.0}[reduction]
        assert float(to_numpy(found)) == pytest.approx((each * weights).sum() / count, rel=1e-13)


@pytest.mark.parametrize("make", [SigmoidLoss, SoftmaxLoss])
def test_extreme_logits_have_a_finite_loss(make):
    logits = np.array([[1e4, -1e4, 0.0]], "float32")
    assert float(make()(np.array([0]), logits)) == pytest.approx(np.log(2) * (make is SigmoidLoss))
    assert np.isfinite(float(make()(np.array([1]), logits)))


def test_half_precision_is_summed_in_float32_and_tokens_have_a_loss_each():
    logits, _, integers = case()
    half = keras.ops.cast(logits, "bfloat16")
    expected = softmax_xent(np.eye(CLASSES)[integers], to_numpy(half).astype("float64"))
    assert float(SoftmaxLoss()(integers, half)) == pytest.approx(expected, rel=1e-6)
    logits = np.zeros((2, 3, CLASSES), "float32")
    labels = np.zeros((2, 3), "int32")
    assert float(SoftmaxLoss()(labels, logits)) == pytest.approx(np.log(CLASSES), rel=1e-6)


def test_labels_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"labels of shape \(4, 5\) for logits of shape \(4, 7\)"):
        SoftmaxLoss()(np.zeros((4, 5)), np.zeros((4, 7)))
    refuses("label_smoothing must be a number in", SoftmaxLoss, label_smoothing=1.0)


@pytest.mark.parametrize("shape", [(6, 3), (2, 2, 1), ()])
def test_labels_of_a_single_logit_are_one_for_each_example(shape):
    for labels in (np.ones(6), np.ones((6, 1), "int32")):
        loss = float(SigmoidLoss()(labels, np.zeros((6, 1), "float32")))
        assert loss == pytest.approx(np.log(2), rel=1e-6)
    with pytest.raises(ValueError, match=r"Received: labels of shape .* of shape \(6, 1\)"):
        SigmoidLoss().call(np.ones(shape), np.zeros((6, 1), "float32"))


def test_masked_outputs_do_not_count():
    logits, _, integers = case()
    tensor = keras.ops.convert_to_tensor(logits)
    tensor._keras_mask = keras.ops.convert_to_tensor(np.arange(len(logits)) < 2)
    expected = softmax_xent(np.eye(CLASSES)[integers[:2]], logits[:2].astype("float64"))
    for dtype in ("float32", "float64"):
        with precision(dtype):
            loss = SoftmaxLoss(dtype=dtype)(integers, tensor)
        assert float(loss) == pytest.approx(expected, rel=1e-5)


def test_the_bias_for_rare_positives_is_what_the_authors_write():
    assert round(sigmoid_head_bias(1000), 1) == -6.9
    assert round(sigmoid_head_bias(21_843), 0) == -10
    logits = np.full((1, 1000), sigmoid_head_bias(1000), "float32")
    assert float(SigmoidLoss()(np.array([3]), logits)) == pytest.approx(np.log(1000) + 1, rel=1e-3)


def test_accuracy_takes_labels_of_both_kinds_in_turns():
    logits = np.array([[3, 2, 1], [1, 2, 3], [1, 3, 2], [1, 2, 3]], "float32")
    accuracy, top_2 = Accuracy(name="accuracy"), Accuracy(top=2)
    integers = np.array([0, 2, 2, 0])
    for labels in (integers, np.eye(3, dtype="float32")[integers]):
        accuracy.update_state(labels, logits)
        top_2.update_state(labels, logits)
    assert float(accuracy.result()) == 0.5 and float(top_2.result()) == 0.75
    assert top_2.name == "top_2_accuracy"


def test_accuracy_of_a_single_logit_and_of_tokens():
    logits = np.array([[2.0], [-1.0], [3.0], [-2.0]], "float32")
    for labels in ([1, 0, 0, 0], [[1], [0], [0], [0]], [0.9, 0.1, 0.2, 0.4], [[0.6]] + 3 * [[0.4]]):
        accuracy = Accuracy()
        accuracy.update_state(np.array(labels), logits)
        assert float(accuracy.result()) == 0.75
    # Weights of images count for each of their tokens.
    accuracy, labels = Accuracy(), np.array([[0, 0], [1, 1]])
    accuracy.update_state(labels, np.eye(3, dtype="float32")[0 * labels], sample_weight=[3.0, 1.0])
    assert float(accuracy.result()) == 0.75


def test_accuracy_of_ties_and_nan():
    """A fresh head of zeros guesses class 0; NaN is never right."""
    labels, zeros = np.array([0, 1, 2, 0]), np.zeros((4, 3), "float32")
    for top, expected in ((1, 0.5), (2, 0.75), (3, 1.0)):
        accuracy = Accuracy(top)
        accuracy.update_state(labels, zeros)
        assert float(accuracy.result()) == expected
    broken = np.array([[np.nan] * 3, [1, 2, np.nan], [0, 0, np.inf], [1, 0, -np.inf]], "float32")
    accuracy = Accuracy()
    accuracy.update_state(labels, broken)
    assert float(accuracy.result()) == 0.5


def classifier(loss):
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(3)])
    model.compile("sgd", loss)
    return model


@pytest.mark.any_backend
def test_labels_without_a_class_are_refused():
    x, model = np.zeros((2, 2)), classifier(SoftmaxLoss())
    for labels, message in (
        ([0, 3], "from 0 to 2.*Received: .*3"),
        ([-1, 2], "from 0 to 2.*Received: .*-1"),
        ([0.0, 2.5], r"from 0 to 2.*Received: .*2\.5"),
        ([[2.5], [0.0]], r"Received: .*2\.5"),
        (np.eye(8)[:2], "from 0 to 2.*Received: 8 classes"),
    ):
        refuses(message, check_labels, model, (x, np.array(labels)))
    check_labels(classifier("mse"), (x, 5 * np.eye(3)[:2]))
    several = np.array([[0, 1, 1], [1, 0, 0]], "int64")
    for loss in (SoftmaxLoss(), "categorical_crossentropy", "kl_divergence"):
        for labels in (np.eye(3)[:2], np.full((2, 3), 1 / 3, "float16"), 0 * several):
            check_labels(classifier(loss), (x, labels))
        refuses("sum is 1.*2.0; for several", check_labels, classifier(loss), (x, several))


@pytest.mark.any_backend
@pytest.mark.parametrize("loss", ["binary_crossentropy", "kl_divergence", SigmoidLoss(), "mse"])
def test_labels_that_a_loss_would_take_for_others_are_refused(loss):
    """-1 and 1, as CelebA has attributes, masks of 0 and 255, gaps, columns that are repeated."""
    x, rows = np.zeros((2, 2)), np.array([[0, 1, 0.5], [1, 1, 0]])
    rows = rows / 2 if loss == "kl_divergence" else rows  # which compares rows of sum 1
    for labels in (rows, rows.astype("float16"), 1.0001 * rows):
        check_labels(classifier(loss), (x, labels))
    names = np.array([["a", "b", "c"]] * 2)
    wrong = [names, rows[:, :2], rows[..., None]] + [rows[:, 0], rows[:, :1]] * (loss == "mse")
    wrong += [2 * rows - 1, 255 * rows, np.where(rows, rows, np.nan)] * (loss != "mse")
    for labels in wrong:
        refuses("one value .*for each.*Received", check_labels, classifier(loss), (x, labels))


@pytest.mark.parametrize("thing", [SigmoidLoss(0.1), SoftmaxLoss(0.2), Accuracy(5)])
def test_losses_and_metrics_survive_json(thing):
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(thing)))
    again = keras.saving.deserialize_keras_object(config)
    assert type(again) is type(thing) and again.get_config() == thing.get_config()
