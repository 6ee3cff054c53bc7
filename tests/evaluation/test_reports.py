"""Reports of several labels at once and of values, against scikit-learn."""

import json

import keras
import numpy as np
import pytest
from sklearn import metrics

import keras_vit
from keras_vit.evaluation import MultiLabelReport, RegressionReport, evaluate
from keras_vit.evaluation.metrics import average_precision
from tests.support import images, refuses, tiny_vit

COUNT, CLASSES = 40, 4


@pytest.fixture(scope="module")
def model():
    model = tiny_vit(num_classes=CLASSES)
    kernel = model.get_layer("head").kernel
    kernel.assign(np.random.default_rng(1).normal(size=kernel.shape))
    model.class_names = tuple("abcd")
    return model


@pytest.fixture(scope="module")
def x():
    return images((COUNT, 16, 16, 3))


@pytest.fixture(scope="module")
def outputs(model, x):
    return keras.ops.convert_to_numpy(model.predict(x, verbose=0)).astype("float64")


def test_several_labels_as_scikit_learn(model, x, outputs, tmp_path):
    labels = (np.random.default_rng(2).random((COUNT, CLASSES)) < 0.4).astype("float32")
    labels[:, 3] = 0  # a class that no image shows
    labels[0] = 0  # an image that shows nothing
    report = evaluate(model, (x, labels), batch_size=16, reading="sigmoid")
    assert isinstance(report, MultiLabelReport) and report.problem == "multi_label"
    p = 1 / (1 + np.exp(-outputs))
    guessed = p >= 0.5
    expected = [metrics.average_precision_score(labels[:, i], p[:, i]) for i in range(3)]
    found = list(report.average_precision.values())
    np.testing.assert_allclose(found[:3], expected, atol=1e-6)
    assert np.isnan(found[3]) and list(report.average_precision) == list("abcd")
    assert report.mean_average_precision == pytest.approx(np.mean(expected))
    assert report.micro_f1 == pytest.approx(metrics.f1_score(labels, guessed, average="micro"))
    f1 = metrics.f1_score(labels, guessed, average=None, zero_division=0)[:3]
    assert report.macro_f1 == pytest.approx(f1.mean())
    assert report.exact == metrics.accuracy_score(labels, guessed)
    loss = metrics.log_loss(labels.ravel(), p.ravel(), normalize=False) / COUNT
    assert report.loss == pytest.approx(loss, 1e-5)
    shown = labels.any(axis=1)
    best = labels[np.arange(COUNT), p.argmax(axis=1)]
    assert report.top1 == pytest.approx(best[shown].mean())
    report.save(tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text())["average_precision"]["d"] is None
    assert "mean average precision" in str(report) and "F1" in str(report)
    ended = keras.Sequential([model, keras.layers.Activation("sigmoid")])
    again = evaluate(ended, (x, labels), batch_size=16)
    assert again.mean_average_precision == pytest.approx(report.mean_average_precision)
    assert again.loss == pytest.approx(report.loss, 1e-4) and not again.from_logits


@pytest.mark.any_backend
def test_equal_scores_make_one_step():
    rng = np.random.default_rng(0)
    for _ in range(20):
        scores, labels = rng.integers(0, 4, 12) / 4, rng.integers(0, 2, 12)
        labels[0] = 1
        expected = metrics.average_precision_score(labels, scores)
        assert average_precision(scores, labels) == pytest.approx(expected)


def test_values_as_scikit_learn(model, x, outputs):
    labels = np.random.default_rng(3).normal(size=(COUNT, CLASSES)).astype("float32")
    report = evaluate(model, (x, labels), batch_size=16, reading="values")
    assert isinstance(report, RegressionReport)
    expected = metrics.mean_absolute_error(labels, outputs)
    assert report.mean_absolute_error == pytest.approx(expected, 1e-5)
    expected = metrics.mean_squared_error(labels, outputs) ** 0.5
    assert report.root_mean_squared_error == pytest.approx(expected, 1e-5)
    assert report.r2 == pytest.approx(metrics.r2_score(labels, outputs), 1e-4)
    own = report.outputs["b"]
    assert own["r2"] == pytest.approx(metrics.r2_score(labels[:, 1], outputs[:, 1]), 1e-4)
    assert "mean absolute error" in str(report)
    constant = evaluate(model, (x, np.zeros_like(labels)), reading="values")
    assert np.isnan(constant.r2) and constant.to_dict()["r2"] is None


@pytest.mark.any_backend
def test_labels_that_do_not_fit(model, x):
    ones = np.ones((COUNT, CLASSES))
    for labels, options, message in (
        (np.zeros(COUNT), {"reading": "values"}, r"shape \(images, 4\), one for each output"),
        (2 * ones, {"reading": "sigmoid"}, "0 or 1 in each column.*2 to 2"),
        (ones, {"reading": "sigmoid", "threshold": 1.0}, r"threshold must be a number in \(0, 1\)"),
        (ones, {}, r"rows with a single 1.*reading='sigmoid'"),
    ):
        refuses(message, evaluate, model, (x, labels), **options)


@pytest.mark.any_backend
def test_the_card_of_such_a_model(model, x, tmp_path):
    model = type(model).from_config(model.get_config())
    model.reading = "sigmoid"
    report = evaluate(model, (x, np.ones((COUNT, CLASSES))))
    card = keras_vit.model_card(model, report=report, test_data="photos")
    assert "4 classes, each by itself (sigmoid)" in card.text
    assert "| mean average precision | 1.0000 |" in card.text
    types = {each.metric_type for each in card.data.eval_results}
    assert types == {"mean_average_precision", "micro_f1", "loss"}
    model.reading = "values"
    report = evaluate(model, (x, np.ones((COUNT, CLASSES))))
    card = keras_vit.model_card(model, report=report)
    assert "into 4 values" in card.text and "put into one of its classes" not in card.text
    other = tiny_vit(num_classes=3)
    refuses("report is of another model", keras_vit.model_card, other, report=report)
    keras_vit.save_weights(model, tmp_path / "model.npz", force=True)
    card = keras_vit.model_card(model, file=tmp_path / "model.npz")
    assert "model.reading = 'values'" in card.text
