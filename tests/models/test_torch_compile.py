"""`torch.compile` of models: one graph, without a return to Python."""

import functools

import keras
import numpy as np
import pytest

from tests.support import assert_close, images, tiny_vit, to_numpy

if keras.backend.backend() != "torch":
    pytest.skip("PyTorch's compiler", allow_module_level=True)

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.utils import counters


@pytest.fixture(autouse=True)
def nothing_compiled():
    torch.compiler.reset()
    counters.clear()


def batch(model):
    return torch.as_tensor(images((2, *model.input_shape[1:])))


@pytest.mark.parametrize(
    "options, training, dtype",
    [
        pytest.param({}, False, "float32", marks=pytest.mark.slow),
        (
            {"pool": "mean", "position": "sincos_2d", "rotary": "dinov3", "width": 16},
            False,
            "float32",
        ),
        pytest.param({}, False, "mixed_bfloat16", marks=pytest.mark.slow),
        pytest.param({}, True, "float32", marks=pytest.mark.slow),
        ({}, True, "mixed_bfloat16"),
    ],
    ids=str,
)
def test_a_model_is_one_graph(options, training, dtype):
    """Compiled before it was ever called, with the loss and gradients of a training step."""
    model = tiny_vit(**{"depth": 1, **options}, dtype=dtype)
    x = batch(model)

    def loss(x):
        outputs = model(x, training=training)
        return outputs, outputs.square().sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    with torch.set_grad_enabled(training):
        found, expected = compiled(x), loss(x)
    for a, b in zip(found, expected):
        np.testing.assert_allclose(to_numpy(a), to_numpy(b), rtol=1e-2, atol=1e-3)
    if training:
        kernel = model.get_layer("block_0").mlp.dense_1.kernel.value
        of_both = [torch.autograd.grad(y, kernel)[0] for _, y in (expected, found)]
        np.testing.assert_allclose(*map(to_numpy, of_both), rtol=0.1, atol=1e-3)


def test_arrays_and_further_calls_are_the_same_graph():
    """What a layer learns in its first call, such as its path, would compile the second anew."""
    model = tiny_vit(depth=1, dropout=0.1)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    for _ in range(2):
        compiled(batch(model))
    assert counters["stats"]["unique_graphs"] == 1
    of_arrays = torch.compile(lambda x: model(x), fullgraph=True, backend="eager")
    assert_close(of_arrays(to_numpy(batch(model))), model(batch(model)), 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_jit_compile_in_keras(dtype, monkeypatch):
    """Prediction is one graph; a training step ends one at Keras's call of `backward`, no other."""
    compilers = functools.partial(torch.compile, backend="eager")
    monkeypatch.setattr(torch, "compile", compilers)
    model = tiny_vit(depth=1, dtype=dtype)
    model.compile(
        keras.optimizers.AdamW(1e-3),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=True,
    )
    model.predict_on_batch(batch(model))
    assert not counters["graph_break"] and counters["stats"]["unique_graphs"] == 1
    model.train_on_batch(batch(model), torch.tensor([0, 1]))
    breaks = [r for r in counters["graph_break"] if "Tensor.backward()" not in r]
    assert not breaks, breaks


@pytest.mark.slow
def test_later_epochs_compile_nothing(monkeypatch):
    """Nor does validation, after the first time."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    model = tiny_vit(depth=1)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(1e-3), loss, jit_compile=True)
    x, y = images((6, *model.input_shape[1:])), np.arange(6) % 2
    how = {"batch_size": 2, "validation_data": (x, y), "validation_batch_size": 2, "verbose": 0}
    model.fit(x, y, epochs=1, **how)
    seen = counters["stats"]["unique_graphs"]
    model.fit(x, y, epochs=3, initial_epoch=1, **how)
    assert counters["stats"]["unique_graphs"] == seen > 0


def test_only_head_and_loss_are_float32_in_a_compiled_step():
    """In mixed_bfloat16, forwards and backwards; norms and attention keep their sums within."""
    graphs = []

    def keep(graph, _):
        graphs.append(graph)
        return make_boxed_func(graph.forward)

    model = tiny_vit(depth=2, dtype="mixed_bfloat16")
    x, y = batch(model), torch.tensor([0, 1])

    def loss_of(x):
        return torch.nn.functional.cross_entropy(model(x, training=True), y)

    torch.compile(loss_of, backend=aot_autograd(fw_compiler=keep, bw_compiler=keep))(x).backward()
    assert len(graphs) == 2
    found = [
        (str(node.target), node.meta["val"])
        for graph in graphs
        for node in graph.graph.nodes
        if isinstance(node.meta.get("val"), torch.Tensor) and "_to_copy" not in str(node.target)
        if node.op == "call_function"
    ]
    of_tokens = 2 * 5 * 8  # images, tokens, width
    wide = [
        (name, tuple(value.shape))
        for name, value in found
        if value.dtype == torch.float32 and value.numel() >= of_tokens
    ]
    assert not wide
    assert sum("mm" in name and value.dtype == torch.bfloat16 for name, value in found) > 30
