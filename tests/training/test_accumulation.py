"""Gradient accumulation: small batches, one after the other, are the big batch."""

import keras
import numpy as np
import pytest

from keras_vit.training import SGDM, AdamW, EvaluateAverages, SoftmaxLoss, WarmupCosine
from tests.support import assert_close, to_numpy

PARTS, UPDATES, SIZE = 3, 4, 2


def linear_model():
    dense = keras.layers.Dense
    model = keras.Sequential([keras.Input((5,)), dense(4, name="norm"), dense(3, name="head")])
    rng = np.random.default_rng(0)
    for v in model.variables:
        v.assign(rng.normal(size=v.shape))
    return model


def data(examples):
    rng = np.random.default_rng(1)
    return rng.normal(size=(examples, 5)).astype("float32"), np.arange(examples) % 3


def run(make, batch_size, parts, epochs=1, examples=PARTS * UPDATES * SIZE):
    model = linear_model()
    options = {"weight_decay": 0.1, "global_clipnorm": 0.1, "use_ema": True, "ema_momentum": 0.5}
    schedule = WarmupCosine(0.5, UPDATES, 2)
    optimizer = make(schedule, gradient_accumulation_steps=parts, **options)
    model.compile(optimizer, SoftmaxLoss())
    (images, labels), keep = data(examples), Keep()
    options = {"shuffle": False, "verbose": 0, "callbacks": [keep, EvaluateAverages()]}
    model.fit(images, labels, batch_size=batch_size, epochs=epochs, **options)
    return model, keep.weights


class Keep(keras.callbacks.Callback):
    """The weights at the end of an epoch, before the averages are put there."""

    def on_epoch_end(self, epoch, logs=None):
        self.weights = {v.path: to_numpy(v).copy() for v in self.model.trainable_variables}


@pytest.mark.parametrize("make", [AdamW, SGDM])
def test_parts_of_a_batch_equal_the_batch(make):
    """Weights and averages, with clipping, decay, a schedule and momentum: all count updates."""
    whole, weights = run(make, PARTS * SIZE, None)
    parts, weights_of_parts = run(make, SIZE, PARTS)
    assert int(parts.optimizer.iterations) == UPDATES
    averages = zip(whole.variables, parts.variables)
    for one, other in [*zip(weights.values(), weights_of_parts.values()), *averages]:
        assert_close(other, one, 3e-6)


def test_an_incomplete_group_goes_on_in_the_next_epoch():
    """Two epochs of four small batches are eight: two updates, and two batches that wait."""
    model, _ = run(AdamW, SIZE, PARTS, epochs=2, examples=4 * SIZE)
    assert int(model.optimizer.iterations) == 2
    waiting = [to_numpy(v) for v in model.optimizer._accumulated_gradients]
    assert any(np.any(gradient != 0) for gradient in waiting)


def rates(optimizer):
    """The learning rates of four batches."""
    variable = keras.Variable(np.zeros(2, "float32"), name="kernel")
    for _ in range(4):
        yield float(to_numpy(keras.ops.convert_to_tensor(optimizer.learning_rate)))
        optimizer.apply([keras.ops.ones(2)], [variable])


def test_schedules_do_not_move_within_a_group():
    """A schedule that is set later does not, either, and is the one that is saved."""
    optimizer = AdamW(WarmupCosine(1.0, 10, 5), gradient_accumulation_steps=2)
    np.testing.assert_allclose([*rates(optimizer)], [0.0, 0.0, 0.2, 0.2], rtol=1e-6)
    optimizer = AdamW(WarmupCosine(1.0, 10, 5), gradient_accumulation_steps=2)
    optimizer.learning_rate = WarmupCosine(3.0, 10, 5)
    np.testing.assert_allclose([*rates(optimizer)], [0.0, 0.0, 0.6, 0.6], rtol=1e-6)
    loaded = AdamW.from_config(optimizer.get_config())
    np.testing.assert_allclose([*rates(loaded)], [0.0, 0.0, 0.6, 0.6], rtol=1e-6)
    optimizer = AdamW(lambda: 0.5, gradient_accumulation_steps=2)
    assert [*rates(optimizer)] == [0.5] * 4
