"""Polyak averaging: what is averaged, what is evaluated, and whose weights the model has when."""

import warnings

import keras
import numpy as np
import pytest

from keras_vit.training import SGDM, EvaluateAverages, SoftmaxLoss, averaged_weights, return_weights
from tests.support import assert_close, assert_same, refuses, to_numpy
from tests.training.test_accumulation import data, linear_model

MOMENTUM = 0.8


def compiled(**options):
    model = linear_model()
    options = {"use_ema": True, "ema_momentum": MOMENTUM, **options}
    model.compile(SGDM(0.1, **options), SoftmaxLoss())
    return model


def weights(model):
    return [to_numpy(v).copy() for v in model.trainable_variables]


class Steps(keras.callbacks.Callback):
    """The weights after each update, and at the end of each epoch."""

    def __init__(self):
        super().__init__()
        self.batches, self.epochs = [], []

    def on_train_batch_end(self, batch, logs=None):
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()
        self.batches.append(weights(self.model))

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append(weights(self.model))


def fit(model, callbacks, epochs=2, **options):
    options = {"batch_size": 4, "shuffle": False, "verbose": 0, "callbacks": callbacks, **options}
    options |= {"validation_data": data(8), "validation_batch_size": 4}
    return model.fit(*data(8), epochs=epochs, **options)


def loss_of(arrays):
    model = linear_model()
    model.set_weights(arrays)
    model.compile(loss=SoftmaxLoss())
    return model.evaluate(*data(8), batch_size=4, verbose=0)


def test_the_average_is_the_closed_form_and_is_what_fit_evaluates():
    model, steps = compiled(), Steps()
    history = fit(model, [EvaluateAverages(), steps]).history
    average = steps.batches[0]  # no weight of the start, and none of zero
    averages = [average]
    for now in steps.batches[1:]:
        average = [MOMENTUM * a + (1 - MOMENTUM) * w for a, w in zip(average, now)]
        averages.append(average)
    for found, expected in zip(weights(model), averages[-1]):
        assert_close(found, expected, 1e-6)  # the end of `fit` leaves the averages
    expected = [loss_of(averages[1]), loss_of(averages[3])]
    np.testing.assert_allclose(history["val_loss"], expected, rtol=1e-5)
    for found, batch in zip(steps.epochs, (1, 3)):
        assert_same(found, steps.batches[batch])  # in between training goes on with its own


class Broken(keras.callbacks.Callback):
    """Interrupts the first evaluation."""

    def on_test_batch_end(self, batch, logs=None):
        raise KeyboardInterrupt


def interrupted(model, *callbacks):
    with pytest.raises(KeyboardInterrupt):
        fit(model, [*callbacks, Broken()])


def test_an_interrupted_evaluation_gives_the_weights_back():
    model, steps = compiled(), Steps()
    interrupted(model, EvaluateAverages(), steps)
    begin = []
    keep = keras.callbacks.LambdaCallback(on_train_begin=lambda logs: begin.extend(weights(model)))
    fit(model, [EvaluateAverages(), keep], epochs=1)  # it trains on with its own
    assert_same(begin, steps.batches[-1])
    interrupted(model, EvaluateAverages(), steps)
    return_weights(model)
    assert_same(weights(model), steps.batches[-1])
    own = model.evaluate(*data(8), batch_size=4, verbose=0)
    assert own == pytest.approx(loss_of(weights(model)), rel=1e-5)  # nothing was left behind


def test_the_averages_can_be_saved_and_the_weights_come_back(tmp_path):
    model, steps = compiled(), Steps()
    interrupted(model, steps)
    own = weights(model)
    with averaged_weights(model):
        averages = weights(model)
        model.save(tmp_path / "averaged.keras")
    assert any(np.any(a != w) for a, w in zip(averages, own))
    assert_same(weights(model), own)
    saved = keras.saving.load_model(tmp_path / "averaged.keras", compile=False)
    assert_same(weights(saved), averages)
    with pytest.raises(RuntimeError), averaged_weights(model):
        raise RuntimeError
    np.testing.assert_array_equal(weights(model)[0], own[0])


def test_what_gets_no_gradient_keeps_its_weights():
    inputs = keras.Input((8,))
    float8 = keras.layers.Dense(8, dtype="float8_from_float32", name="float8")
    hidden = float8(inputs)
    heads = {name: keras.layers.Dense(2, name=name)(hidden) for name in ("a", "b")}
    model = keras.Model(inputs, heads)
    optimizer = SGDM(0.1, use_ema=True, ema_momentum=MOMENTUM)
    model.compile(optimizer, {"a": "mse", "b": None})
    before = model.get_layer("b").get_weights()
    images = np.random.default_rng(0).normal(size=(8, 8)).astype("float32")
    labels = {name: images[:, :2] for name in heads}
    with warnings.catch_warnings(action="ignore"):  # of Keras, that there is no gradient
        model.fit(images, labels, verbose=0, epochs=2)
    own = to_numpy(float8.inputs_scale).copy()
    with averaged_weights(model):
        assert_same(model.get_layer("b").get_weights(), before)
        assert to_numpy(float8.inputs_scale) == own != 1


def test_there_may_be_no_averages_yet_or_none_at_all():
    model = compiled()
    before = weights(model)
    with averaged_weights(model):
        np.testing.assert_array_equal(weights(model)[0], before[0])
    model = compiled(use_ema=False)
    refuses(r"use_ema=True\), or with a recipe that has ema", fit, model, [EvaluateAverages()])


def test_what_is_frozen_later_has_its_averages_too():
    model = compiled()
    fit(model, [])
    own = model.get_weights()
    with averaged_weights(model):
        averages = model.get_weights()
    assert all(np.any(a != w) for a, w in zip(averages, own))
    for part in (model.layers[0], model):
        part.trainable = False
        with averaged_weights(model):
            assert_same(model.get_weights(), averages)
        assert_same(model.get_weights(), own)
