"""Calls of layers within layers: without Keras's work around them, and with it where it matters."""

import keras
import numpy as np
import pytest

from keras_vit.layers import nested as module
from keras_vit.layers.linear import Linear
from keras_vit.layers.nested import nested
from keras_vit.layers.transformer_block import TransformerBlock
from tests.support import assert_close, images, tiny_vit, to_numpy


@pytest.fixture
def layer():
    layer = Linear("btd,df->btf", (None, 3), bias_axes="f")
    layer.build((None, 4, 5))
    return layer


@pytest.fixture
def calls(layer, monkeypatch):
    """Counts the calls that Keras sees."""
    seen = []
    original = keras.layers.Layer.__call__

    def count(self, *args, **kwargs):
        seen.append(self)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(keras.layers.Layer, "__call__", count)
    return seen


def x(dtype="float32"):
    return keras.ops.ones((2, 4, 5), dtype)


is_direct = keras.backend.backend() == "torch"
on_pytorch = pytest.mark.skipif(not is_direct, reason="other backends have no calls of this kind")


def test_a_plain_layer_is_called_directly_on_pytorch_alone(layer, calls):
    direct = nested(layer, x())
    assert len(calls) == (0 if is_direct else 1)
    assert_close(direct, layer(x()), 0.0)


@pytest.mark.parametrize(
    "change", ["dtype", "quantised", "unbuilt", "remat", "regularised", "distributed"]
)
def test_what_keras_does_is_done_where_it_matters(change, layer, calls, monkeypatch):
    given = x()
    if change == "dtype":
        given = x("bfloat16")
    elif change == "quantised":
        layer.quantize("int8")
    elif change == "unbuilt":
        layer = Linear("btd,df->btf", (None, 3))
    elif change == "remat":
        with keras.RematScope(mode="full"):
            layer = Linear("btd,df->btf", (None, 3))
            layer.build((None, 4, 5))
            nested(layer, given)
    elif change == "distributed":
        monkeypatch.setattr(keras.distribution, "distribution", lambda: "of a test")
    else:
        layer = Linear("btd,df->btf", (None, 3), activity_regularizer="l2")
        layer.build((None, 4, 5))
    before = len(calls)
    if change != "remat":
        outputs = nested(layer, given)
        assert keras.backend.standardize_dtype(outputs.dtype) == "float32"
    assert layer in calls and (change == "remat" or len(calls) == before + 1)
    assert change != "regularised" or len(layer.losses) == 1


@on_pytorch
@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize("part", ["block", "part"])
def test_hooks_of_pytorch_see_their_layer(part, everywhere):
    import torch

    model, seen = tiny_vit(depth=1), []
    layer = model.get_layer("block_0")
    layer = layer if part == "block" else layer.mlp.dense_1
    hook = lambda module, inputs, output: seen.append(module)  # noqa: E731
    register = torch.nn.modules.module.register_module_forward_hook
    handle = register(hook) if everywhere else layer.register_forward_hook(hook)
    try:
        model(images((1, *model.input_shape[1:])))
    finally:
        handle.remove()
    assert layer in seen and (everywhere or seen == [layer])


@on_pytorch
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "bfloat16"])
def test_models_compute_the_same_either_way(dtype, monkeypatch):
    model = tiny_vit(depth=2, dtype=dtype)
    batch = images((2, *model.input_shape[1:]))
    direct = to_numpy(model(batch, training=False))
    monkeypatch.setattr(module, "_needs_nothing", lambda *_: False)
    np.testing.assert_array_equal(direct, to_numpy(model(batch, training=False)))


@pytest.fixture
def block():
    block = TransformerBlock(num_heads=1, mlp_dim=8, stochastic_depth=0.9)
    block.build((None, 4, 5))
    return block


def test_a_model_calls_its_blocks_directly_on_pytorch_alone(calls):
    model = tiny_vit(depth=2)
    calls.clear()
    model(images((2, *model.input_shape[1:])), training=False)
    assert any(isinstance(one, TransformerBlock) for one in calls) != is_direct


@on_pytorch
def test_a_block_takes_arrays(block, calls):
    array = np.ones((2, 4, 5), "float32")
    outputs = block(array, training=False)
    assert block in calls
    assert_close(outputs, block(keras.ops.convert_to_tensor(array), training=False), 0.0)


def test_a_block_is_told_by_the_layer_around_it_whether_it_trains(block):
    class Around(keras.layers.Layer):
        def call(self, x, training=False):
            return self.block(x)

    around = Around()
    around.block = block
    alone = to_numpy(block(x(), training=False))
    assert_close(around(x(), training=False), alone, 0.0)
    assert np.abs(to_numpy(around(x(), training=True)) - alone).max() > 0


def test_a_float32_block_keeps_its_weights_in_a_model_of_mixed_precision(block):
    class Mixed(keras.layers.Layer):
        def call(self, x, training=False):
            return self.block(keras.ops.cast(x, "float32"), training=training)

    for weight in block.weights:
        weight.assign(keras.random.uniform(weight.shape, -1, 1, seed=1))
    around = Mixed(dtype="mixed_bfloat16")
    around.block = block
    assert_close(around(x(), training=False), block(x(), training=False), 1e-6)


def test_a_rematerialised_block_casts_its_weights_in_both_passes():
    """PyTorch computes the block again after Keras has left its scope for mixed precision."""
    model = tiny_vit(depth=1, remat=True, dtype="mixed_bfloat16")
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    loss = model.train_on_batch(images((2, *model.input_shape[1:])), np.zeros(2, int))
    assert np.isfinite(loss)
