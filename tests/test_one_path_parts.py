"""What stands in the place of a part of a block is what runs: subclasses, and calls replaced."""

import functools

import keras
import numpy as np
import pytest

from keras_vit.layers import MLP, LayerNorm, Linear, MultiHeadSelfAttention, TransformerBlock
from tests.support import randomize, to_numpy
from tests.test_one_path import CHANGE, built, difference, edited, in_inference, in_training


def changed(cls, change):
    """A subclass whose `call` gives another result."""

    class Changed(cls):
        @functools.wraps(cls.call)
        def call(self, *args, **options):
            return change(super().call(*args, **options))

    return Changed


def halved(cls):
    return changed(cls, lambda outputs: 0.5 * outputs)


SUBCLASSES = {"mlp": halved(MLP), "attention": halved(MultiHeadSelfAttention)}
SUBCLASSES |= dict.fromkeys(("norm_1", "norm_2"), halved(LayerNorm))
PROJECTIONS = ("attention/query", "attention/out", "mlp/dense_1", "mlp/dense_2")
SUBCLASSES |= dict.fromkeys(PROJECTIONS, changed(Linear, keras.ops.tanh))


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
    for kind in (MLP, halved(MLP)):
        block = TransformerBlock(2, 32)
        block.mlp = kind(32, name="mlp")
        inputs = keras.Input(x.shape[1:])
        model = randomize(keras.Model(inputs, block(inputs)))
        results.append((to_numpy(model(x)), model.predict(x, verbose=0)))
    for plain, other in zip(*results):
        assert difference(plain, other) > CHANGE
