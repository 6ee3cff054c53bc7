"""Dropout by value and stochastic depth by example."""

import keras
import numpy as np
import pytest

from keras_vit.layers import AttentionPool, Dropout, StochasticDepth, TransformerBlock
from keras_vit.layers.layer import Layer
from keras_vit.layers.linear import Linear
from tests.support import assert_close, largest, refuses, to_numpy

ONES = np.ones((2000, 3, 4), "float32")
RATE = 0.3


def test_stochastic_depth_keeps_or_drops_whole_examples():
    outputs = to_numpy(StochasticDepth(RATE, seed=1)(ONES, training=True))
    np.testing.assert_array_equal(outputs, np.broadcast_to(outputs[:, :1, :1], outputs.shape))
    kept = outputs[:, 0, 0] != 0
    np.testing.assert_allclose(outputs[kept], 1 / (1 - RATE), rtol=1e-6)
    sigma = np.sqrt(RATE * (1 - RATE) / len(ONES))
    assert abs((1 - kept.mean()) - RATE) < 4 * sigma


def test_dropout_drops_single_values():
    outputs = to_numpy(Dropout(RATE, seed=1)(ONES, training=True))
    kept = outputs != 0
    np.testing.assert_allclose(outputs[kept], 1 / (1 - RATE), rtol=1e-6)
    sigma = np.sqrt(RATE * (1 - RATE) / ONES.size)
    assert abs((1 - kept.mean()) - RATE) < 4 * sigma
    assert 0 < kept[:, 0, 0].mean() < 1
    assert (kept != kept[:, :1, :1]).any(), "values of an example are independent"


both = pytest.mark.parametrize("layer", [Dropout, StochasticDepth])


@both
def test_identity_in_inference_and_at_rate_zero(layer):
    assert_close(layer(RATE)(ONES), ONES, 0)
    assert_close(layer(RATE)(ONES, training=False), ONES, 0)
    assert_close(layer(0.0)(ONES, training=True), ONES, 0)


@both
def test_a_seed_repeats_the_masks_and_each_call_has_its_own(layer):
    def draw():
        dropout = layer(RATE, seed=7)
        return [to_numpy(dropout(ONES, training=True)) for _ in range(2)]

    (first, second), (first_again, second_again) = draw(), draw()
    np.testing.assert_array_equal(first, first_again)
    np.testing.assert_array_equal(second, second_again)
    assert (first != second).any()
    assert (first != to_numpy(layer(RATE, seed=8)(ONES, training=True))).any()


@both
@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_rates_outside_the_range(layer, rate):
    refuses(rf"rate.*1.*Received: rate={rate}", layer, rate)


@both
def test_the_rate_can_change(layer):
    dropout = layer(RATE, seed=3)
    dropout.rate = 0.9
    kept = to_numpy(dropout(ONES, training=True))
    np.testing.assert_allclose(kept[kept != 0], 10, rtol=1e-5)
    assert (kept != 0).mean() < 0.2


@both
def test_a_new_rate_is_looked_at_and_zero_drops_nothing(layer):
    dropout = layer(RATE)
    refuses(r"rate.*Received: rate=1.0", setattr, dropout, "rate", 1.0)
    dropout.rate = 0.0
    assert_close(dropout(ONES, training=True), ONES, 0)


class Block(TransformerBlock):
    """A user's block, whose `call` leaves it to Keras to hand `training` on."""

    def call(self, x):
        x = x + self.attention(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))


class Half(Linear):
    def call(self, inputs, training=None):
        return super().call(inputs) * (0.5 if training else 1.0)


class Halves(Layer):
    def build(self, input_shape):
        self.dense = Half.built("btd,df->btf", (None, 3), input_shape)

    def call(self, x):
        return self.dense(x)


def test_a_linear_layer_that_looks_at_training_asks_too():
    halves, x = Halves(), np.ones((1, 2, 3), "float32")
    assert_close(halves(x, training=True), to_numpy(halves(x)) * 0.5, 1e-6)


def test_what_stands_behind_an_attention_pool_still_drops():
    pool, inputs = AttentionPool(2, 16), keras.Input((5, 8))

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner, self.drop = keras.Model(inputs, pool(inputs)), keras.layers.Dropout(0.9)

        def call(self, x):
            return self.drop(self.inner(x))

    x = np.random.default_rng(0).normal(size=(40, 5, 8)).astype("float32")
    assert (to_numpy(Model()(x, training=True)) == 0).mean() > 0.5


@pytest.mark.parametrize("option", ["dropout", "attention_dropout"])
def test_parts_that_are_not_told_of_training_ask_the_layer_around(option):
    block, inputs = Block(2, 16, **{option: 0.5}), keras.Input((5, 8))
    model = keras.Model(inputs, block(inputs))
    x = np.random.default_rng(0).normal(size=(4, 5, 8)).astype("float32")
    for each in (block, model):
        assert_close(each(x, training=False), each(x), 0)
        assert largest(to_numpy(each(x, training=True)) - to_numpy(each(x))) > 0.01
