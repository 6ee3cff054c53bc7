"""Labels, weights of images and metrics that a model and its loss cannot take."""

import keras
import numpy as np
import pytest

from keras_vit import training
from keras_vit.evaluation import evaluate
from tests.arrays import assert_same, images, to_numpy
from tests.class_cases import LABELS, PIXELS, SIZE, fed
from tests.support import refuses, tiny_vit

IMAGES = images((12, SIZE, SIZE, 3))


@pytest.mark.any_backend
def test_outputs_and_weights_of_other_classes_are_refused():
    for outputs in (2, 5):
        model = tiny_vit(depth=1, num_classes=outputs)
        model.compile("sgd", keras.losses.CategoricalCrossentropy(from_logits=True))
        message = f"Received: {outputs} of 'vision_transformer.*' for 3 classes; give the model"
        refuses(message, model.fit, fed(training=True), verbose=0)
    # Keras would give weights to other classes.
    x, y = images((4, 16, 16, 3)), np.array([0, 1, 2, 0])
    several = keras.losses.BinaryCrossentropy(from_logits=True)
    for loss, labels, weights, message in (
        (training.SoftmaxLoss(), y, {"cat": 2.0}, "numbers of classes, 0..2.*Received: 'cat'"),
        (training.SoftmaxLoss(), y, {1: 2.0, 3: 1.0}, "Received: 3"),
        (training.SoftmaxLoss(), y, {1: 2.0, 2: -1.0}, "class_weight must.*Received: -1"),
        (several, np.ones((4, 3)), {0: 1.0, 1: 2.0}, "one class of several.*sample_weight"),
        ("mse", np.ones((4, 3)), {0: 1.0, 1: 2.0}, "one class of several"),
    ):
        model = tiny_vit()
        model.compile("sgd", loss=loss)
        refuses(message, model.fit, x, labels, class_weight=weights, verbose=0)
    model.compile("sgd", loss=training.SoftmaxLoss())
    model.fit(x, y, class_weight={1: 2.0}, verbose=0)


@pytest.mark.any_backend
def test_data_of_the_user_s_own_may_know_its_problem_alone():
    class Data(keras.utils.PyDataset):
        problem = "single_label"

        def __len__(self):
            return 1

        def __getitem__(self, step):
            return images((4, 16, 16, 3)), np.array([0, 1, 2, 0])

    model = tiny_vit()
    model.compile("sgd", training.SoftmaxLoss())
    assert "loss" in model.fit(Data(), verbose=0).history


@pytest.mark.any_backend
def test_values_and_images_that_are_no_numbers_are_told_of():
    x, y, model = images((4, 16, 16, 3)), np.array([1.0, 2.0, 3.0, np.inf]), tiny_vit(num_classes=1)
    model.compile("sgd", "mse")
    refuses("one value for each.*Received: inf; values must be fin", model.fit, x, y, verbose=0)
    y = y * np.nan
    refuses(
        "one value for each.*Received: nan; values must be fin", model.evaluate, x, y, verbose=0
    )
    x[2, 3, 4, 1] = np.nan
    with pytest.warns(UserWarning, match="Received: values from nan to nan"):
        model.predict(x, verbose=0)


@pytest.mark.any_backend
def test_a_metric_of_labels_of_another_form_is_refused(tmp_path):
    """Images to train on have rows, as they are mixed, and those of a validation set numbers."""
    named = tiny_vit(depth=1, num_classes=3)
    data, held_out = fed(training=True), fed()
    around = keras.Sequential([named, keras.layers.Dense(3)])
    around.compile("sgd", training.SoftmaxLoss(), metrics=["accuracy"])
    run, options = training.fit, {"epochs": 1, "validation": held_out}
    refuses("'accuracy'.*Received.*Accuracy", run, around, data, tmp_path / "run", **options)
    named.compile("sgd", training.SoftmaxLoss(), metrics=["accuracy"])
    fit = named.fit
    refuses("'accuracy'.*Received.*Accuracy", fit, data, validation_data=held_out, verbose=0)
    named.compile("sgd", training.SoftmaxLoss(), metrics=[training.Accuracy()])
    history = fit(data, validation_data=held_out, verbose=0).history
    report = evaluate(named, held_out, progress=False)
    assert history["val_top_1_accuracy"] == [pytest.approx(report.top1)]
    named.compile("sgd", training.SoftmaxLoss(), metrics=["accuracy"])
    images = PIXELS / np.float32(127.5) - 1
    named.evaluate(images, LABELS, verbose=0)
    refuses("'accuracy'.*Received.*Accuracy", named.evaluate, images, np.eye(3)[LABELS], verbose=0)


def test_weights_of_half_precision_and_rows_for_a_loss_of_the_user_s_are_taken():
    model, rows = tiny_vit(depth=1), np.eye(3, dtype="float32")[LABELS]
    model.compile("sgd", loss=lambda labels, outputs: (labels - outputs) ** 2)
    model.fit(IMAGES, rows, sample_weight=rows, verbose=0)
    model.compile("sgd", training.SoftmaxLoss())
    model.train_on_batch(IMAGES, LABELS, keras.ops.ones(len(LABELS), "bfloat16"))


def test_weights_that_are_no_weights_are_refused():
    model, right = tiny_vit(depth=1), np.arange(12.0)[:, None]
    model.compile("sgd", training.SoftmaxLoss())
    held_out = (IMAGES, LABELS, right)
    model.fit(IMAGES, LABELS, sample_weight=right, validation_data=held_out, verbose=0)
    before = to_numpy(model.get_layer("head").kernel)
    wrong = np.array([1, 1, 1, -1] * 3), np.array([1, np.nan, 1, 1] * 3), np.ones((12, 3))
    for weights, message in zip(wrong, ("-1", "nan", r"shape \((12|4), 3\)")):
        message = f"sample_weight must have.*Received: {message}"
        batches = ((IMAGES[i : i + 4], LABELS[i : i + 4], weights[i : i + 4]) for i in (0, 4, 8))
        refuses(message, model.fit, IMAGES, LABELS, sample_weight=weights, verbose=0)
        refuses(message, model.fit, batches, verbose=0)
        refuses(message, model.train_on_batch, IMAGES, LABELS, weights)
        refuses(message, model.evaluate, IMAGES, LABELS, sample_weight=weights, verbose=0)
    assert_same(to_numpy(model.get_layer("head").kernel), before)
    held_out = (IMAGES, LABELS, weights)
    refuses(message, model.fit, IMAGES, LABELS, validation_data=held_out, verbose=0)
