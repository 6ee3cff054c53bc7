"""The Transformer block by one function of tensors, and where it must not be taken."""

import keras
import numpy as np
import pytest

from keras_vit.layers import transformer_block, whole_block
from keras_vit.layers.linear import Linear
from keras_vit.layers.transformer_block import TransformerBlock
from tests.support import to_numpy

if keras.backend.backend() != "torch":
    pytest.skip("PyTorch's function", allow_module_level=True)

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from keras_vit.layers import fast_torch


def make_block(**options):
    block = TransformerBlock(num_heads=2, mlp_dim=12, **options)
    block.build((None, 5, 8))
    for seed, weight in enumerate(block.weights):
        if "seed" not in weight.path:
            weight.assign(keras.random.uniform(weight.shape, -1, 1, seed=seed))
    return block


@pytest.fixture
def x():
    return torch.rand(3, 5, 8, generator=torch.Generator().manual_seed(0), requires_grad=True)


@pytest.fixture
def taken(monkeypatch):
    """The calls of the function."""
    calls, function = [], fast_torch.block

    def count(*arguments):
        calls.append(arguments)
        return function(*arguments)

    key = "torch", "block"
    monkeypatch.setitem(whole_block.kernels._FOUND, key, count)
    return calls


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("options", [{}, {"qkv_bias": False, "gelu": "erf"}, {"epsilon": 0.1}])
def test_says_the_same_as_the_layers(options, training, x, taken, monkeypatch):
    block = make_block(**options)
    weights = [weight.value for weight in block.trainable_weights]

    def outputs_and_gradients():
        y = block(x, training=training)
        return [y, *torch.autograd.grad(y.square().sum(), [x, *weights])]

    whole = outputs_and_gradients()
    assert len(taken) == 1
    monkeypatch.setattr(transformer_block, "whole_block", lambda *_: None)
    for one, other in zip(whole, outputs_and_gradients(), strict=True):
        np.testing.assert_allclose(to_numpy(one), to_numpy(other), rtol=1e-5, atol=1e-5)
    assert len(taken) == 1


@pytest.mark.parametrize("frozen", ["norms", "kernels", "all but the biases", "all but the input"])
def test_gradients_of_what_is_not_frozen(frozen, x, taken, monkeypatch):
    block = make_block()
    for weight in block.trainable_weights:
        is_norm, is_bias = "norm" in weight.path, weight.name == "bias"
        weight.trainable = {
            "norms": not is_norm,
            "kernels": weight.name != "kernel",
            "all but the biases": is_bias,
            "all but the input": False,
        }[frozen]
    x = x.requires_grad_(frozen != "all but the biases")
    asked = [x] if frozen == "all but the input" else []
    asked += [weight.value for weight in block.trainable_weights]

    def gradients():
        return torch.autograd.grad(block(x, training=True).square().sum(), asked)

    whole = gradients()
    assert len(taken) == 1 and len(whole) >= 1
    monkeypatch.setattr(transformer_block, "whole_block", lambda *_: None)
    for one, other in zip(whole, gradients(), strict=True):
        np.testing.assert_allclose(to_numpy(one), to_numpy(other), rtol=1e-5, atol=1e-5)


@sdpa_kernel(SDPBackend.MATH)  # PyTorch's other attention for CPUs has no second derivatives
def test_gradients_of_gradients(x, taken, monkeypatch):
    block = make_block()
    weights = [weight.value for weight in block.trainable_weights]

    def penalty():
        (dx,) = torch.autograd.grad(block(x).sin().sum(), x, create_graph=True)
        return torch.autograd.grad(dx.square().sum(), [x, *weights], materialize_grads=True)

    whole = penalty()
    assert len(taken) == 1
    monkeypatch.setattr(transformer_block, "whole_block", lambda *_: None)
    layers = penalty()
    scale = max(float(values.abs().max()) for values in layers)  # the bias of the keys has zeros
    for one, other in zip(whole, layers, strict=True):
        np.testing.assert_allclose(to_numpy(one), to_numpy(other), rtol=1e-4, atol=1e-6 * scale)


def test_gradients_keep_less(x, taken, monkeypatch):
    block, kept = make_block(), {}

    def keep(tensor):
        kept[tensor.data_ptr()] = tensor.numel()
        return tensor

    def kept_by_a_call():
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            y = block(x, training=True)
        del y
        return sum(kept.values())

    whole = kept_by_a_call()
    assert len(taken) == 1
    monkeypatch.setattr(transformer_block, "whole_block", lambda *_: None)
    assert kept_by_a_call() - whole >= 2 * x.numel()  # both norms, and what they divide by


@pytest.mark.parametrize("part", ["query", "out", "dense_2"])
def test_activations_that_were_set_are_kept(part, x, taken, monkeypatch):
    block = make_block()
    layer = getattr(block.mlp if part == "dense_2" else block.attention, part)
    before = to_numpy(block(x, training=False))
    layer.activation = keras.activations.relu
    whole = to_numpy(block(x, training=False))
    assert len(taken) == 2 and np.abs(whole - before).max() > 0
    monkeypatch.setattr(transformer_block, "whole_block", lambda *_: None)
    np.testing.assert_array_equal(whole, to_numpy(block(x, training=False)))


class Doubled(Linear):
    def call(self, inputs):
        return 2 * super().call(inputs)


def replace(block):
    block.mlp.dense_2.__class__ = Doubled


def calibrate(block):
    original = block.mlp.dense_1.call
    block.mlp.dense_1.call = lambda x: 2 * original(x)


def add_lora(block):
    block.mlp.dense_1.enable_lora(2)
    block.mlp.dense_1.lora_kernel_b.assign(np.ones(block.mlp.dense_1.lora_kernel_b.shape))


def quantize(block):
    block.attention.out.quantize("int8")


def watch(block):
    block.norm_2.register_forward_hook(lambda module, inputs, output: 2 * output)


@pytest.mark.parametrize("change", [replace, calibrate, add_lora, quantize, watch])
def test_is_left_where_a_layer_does_more(change, x, taken):
    block = make_block()
    before = to_numpy(block(x, training=False))
    assert len(taken) == 1
    change(block)
    after = to_numpy(block(x, training=False))
    assert len(taken) == 1 and np.abs(after - before).max() > 0


def test_is_left_where_something_is_dropped(x, taken):
    block = make_block(stochastic_depth=0.5)
    block(x, training=True)
    assert not taken
    block(x, training=False)
    assert len(taken) == 1


def test_is_left_with_relative_positions(x, taken):
    block = make_block()
    alone = to_numpy(block(x, training=False))
    related = block(x, relative_position=torch.ones(9, 4) * torch.arange(9.0)[:, None])
    assert len(taken) == 1 and np.abs(to_numpy(related) - alone).max() > 0


def test_is_left_for_rematerialisation_and_for_flash_attention(x, taken, monkeypatch):
    make_block(remat=True)(x, training=True)
    monkeypatch.setattr(keras.config, "is_flash_attention_enabled", lambda: True)
    assert whole_block.whole_block(make_block(), x) is None
    assert not taken


def test_is_left_for_float64(taken):
    block = make_block(dtype="float64")
    y = block(torch.zeros(1, 5, 8, dtype=torch.float64), training=False)
    assert y.dtype == torch.float64 and not taken
