"""What stands in the place of a part of a block is what runs: subclasses, and calls replaced."""

import functools

import keras
import numpy as np
import pytest

from keras_vit.layers import MLP, LayerNorm, Linear, MultiHeadSelfAttention, TransformerBlock
from tests.support import randomize, to_numpy
from tests.test_one_path import CHANGE, built, difference, edited, in_inference, in_training


class HalvedMLP(MLP):
    def call(self, x, training=False):
        return 0.5 * super().call(x, training=training)


class BoundedLinear(Linear):
    def call(self, inputs, training=None):
        return keras.ops.tanh(super().call(inputs))


class HalvedNorm(LayerNorm):
    def call(self, inputs):
        return super().call(inputs) * 0.5


class HalvedAttention(MultiHeadSelfAttention):
    def call(self, x, *args, **options):
        return 0.5 * super().call(x, *args, **options)


SUBCLASSES = {
    "mlp": HalvedMLP,
    "norm_1": HalvedNorm,
    "norm_2": HalvedNorm,
    "attention": HalvedAttention,
    "attention/query": BoundedLinear,
    "attention/out": BoundedLinear,
    "mlp/dense_1": BoundedLinear,
    "mlp/dense_2": BoundedLinear,
}


@pytest.mark.parametrize("name", ["token", "remat", "bfloat16"])
def test_a_subclass_or_a_call_in_the_place_of_a_part_changes_the_block(name):
    """As calibration, and hooks that users write, replace `call`."""
    model = built(name)
    before = in_inference(model), in_training(model)

    def assert_changed(path):
        after = in_inference(model), in_training(model)
        assert min(map(difference, before, after)) > CHANGE, path

    for path, subclass in SUBCLASSES.items():
        part = functools.reduce(getattr, path.split("/"), model.get_layer("block_0"))
        original, call = type(part), part.call
        part.__class__ = subclass  # with the weights that it has
        assert_changed(path)
        part.__class__ = original
        part.call = lambda *args, call=call, **options: edited(call(*args, **options))
        assert_changed(path)
        del part.call


def test_a_part_that_was_replaced_before_building_is_used():
    """And compiled prediction of a model of such a block uses it too."""
    x = np.random.default_rng(0).normal(size=(2, 5, 32)).astype("float32")
    results = []
    for kind in (MLP, HalvedMLP):
        block = TransformerBlock(2, 32)
        block.mlp = kind(32, name="mlp")
        inputs = keras.Input(x.shape[1:])
        model = randomize(keras.Model(inputs, block(inputs)))
        results.append((to_numpy(model(x)), model.predict(x, verbose=0)))
    for plain, halved in zip(*results):
        assert difference(plain, halved) > CHANGE
