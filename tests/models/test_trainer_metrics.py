"""Losses and metrics of probabilities, which `compile` names for models that give logits."""

import functools
import warnings

import keras
import numpy as np
import pytest

from keras_vit import training
from tests.support import refuses, tiny_vit

pytestmark = pytest.mark.any_backend
M, LOSSES = keras.metrics, keras.losses
READINGS = {
    "sigmoid": LOSSES.BinaryCrossentropy(from_logits=True),
    "softmax": LOSSES.SparseCategoricalCrossentropy(from_logits=True),
}


class OfLogits(M.BinaryAccuracy):
    def update_state(self, y_true, y_pred, sample_weight=None):
        return super().update_state(y_true, keras.ops.sigmoid(y_pred), sample_weight)


def binary_crossentropy(y_true, y_pred):
    """Of the name that Keras's has, which a user's own function may have."""
    return LOSSES.binary_crossentropy(y_true, y_pred, from_logits=True)


@pytest.mark.parametrize("reading", READINGS)
def test_metrics_of_keras_that_take_logits_for_probabilities_are_warned_of(reading):
    """In each form that `compile` takes; Keras's own defaults and their meaning count."""
    wrong = ["binary_crossentropy", "bce", "sparse_categorical_crossentropy", "AUC", "auc"]
    wrong += ["Precision", "binary_accuracy", M.Recall, M.binary_accuracy, M.KLDivergence()]
    wrong += [LOSSES.sparse_categorical_crossentropy, M.PrecisionAtRecall(0.5), M.AUC()]
    wrong += [M.SensitivityAtSpecificity(0.5), M.BinaryAccuracy(threshold=0.3), M.TruePositives()]
    wrong += [M.Precision([0.0, 0.5]), M.FBetaScore(threshold=0.4), M.BinaryIoU()]
    wrong += [M.MeanMetricWrapper(LOSSES.binary_crossentropy), LOSSES.BinaryCrossentropy()]
    for metric in wrong:
        with pytest.warns(UserWarning, match="gives logits.*from_logits=True"):
            tiny_vit().compile(loss=READINGS[reading], weighted_metrics=[metric])


@pytest.mark.parametrize("reading", [*READINGS, "values", None])
def test_metrics_that_take_logits_or_that_nobody_knows_are_not_warned_of(reading):
    right = [M.AUC(from_logits=True), M.BinaryAccuracy(threshold=0), M.Precision(0.0), "mse"]
    right += [M.Precision(top_k=1), M.Recall(top_k=2), M.F1Score(), "f1_score", "R2Score", None]
    right += [M.TopKCategoricalAccuracy(2), M.SparseCategoricalAccuracy(), M.CategoricalAccuracy()]
    right += [M.BinaryCrossentropy(from_logits=True), M.MeanIoU(3), "hinge", "nobody's"]
    right += [functools.partial(LOSSES.binary_crossentropy, from_logits=True), M.Mean()]
    right += [M.MeanMetricWrapper(LOSSES.binary_crossentropy, from_logits=True), OfLogits(), max]
    right += [M.MeanMetricWrapper(functools.partial(M.binary_accuracy, threshold=0))]
    right += [binary_crossentropy, M.MeanMetricWrapper(binary_crossentropy), training.Accuracy()]
    if reading == "values":  # which are no logits
        right += [M.AUC(), M.Precision(), "accuracy"]
    unknown = functools.partial(lambda y_true, y_pred: keras.ops.mean(y_pred, -1))
    loss = READINGS.get(reading, "mse" if reading else unknown)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for metric in right:
            tiny_vit().compile(loss=loss, metrics=[metric])


def test_the_cross_entropy_that_keras_chooses_takes_probabilities():
    for classes, reading in ((1, "sigmoid"), (3, "softmax")):
        model = tiny_vit(num_classes=classes)
        with pytest.warns(UserWarning, match=r"gives logits.*'crossentropy'"):
            model.compile(loss="crossentropy")
        assert model.reading == reading


@pytest.mark.parametrize("argument", ["metrics", "weighted_metrics"])
def test_metrics_of_another_form_of_labels_are_refused_before_the_first_batch(argument):
    """Of class numbers Keras's would tell an accuracy that has nothing to do with the model."""
    images, numbers = np.zeros((4, *tiny_vit().input_shape[1:]), "float32"), np.array([0, 1, 2, 0])
    wrong = ["categorical_accuracy", M.CategoricalAccuracy, M.CategoricalAccuracy()]
    wrong += [M.categorical_accuracy, M.MeanMetricWrapper(M.categorical_accuracy)]
    right = ["sparse_categorical_accuracy", M.sparse_categorical_accuracy, "accuracy"]
    for labels in (numbers, numbers[:, None]):
        for metric in wrong:
            model = tiny_vit(num_classes=3)
            model.compile("sgd", READINGS["softmax"], **{argument: [metric]})
            for call in (model.fit, model.evaluate, model.test_on_batch):
                refuses("is Keras's [cC]ategorical.*one form.*training.Acc", call, images, labels)
        for metric in right:
            model = tiny_vit(num_classes=3)
            model.compile("sgd", READINGS["softmax"], **{argument: [metric]})
            model.evaluate(images, labels, verbose=0)
