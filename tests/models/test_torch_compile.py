"""`torch.compile` of models: one graph, without a return to Python."""

import functools

import keras
import numpy as np
import pytest

from tests.support import assert_close, images, refuses, tiny_vit, to_numpy
from tests.test_one_path import MODELS

if keras.backend.backend() != "torch":
    pytest.skip("PyTorch's compiler", allow_module_level=True)

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.utils import counters

from keras_vit.layers import fast_torch_products as products


@pytest.fixture(autouse=True)
def nothing_compiled():
    torch.compiler.reset()
    counters.clear()


def batch(model):
    return torch.as_tensor(images((2, *model.input_shape[1:])))


ROTARY = {"pool": "mean", "position": "sincos_2d", "rotary": "dinov3", "width": 16}


@pytest.mark.parametrize(
    "options, training, dtype",
    [
        pytest.param({}, False, "float32", marks=pytest.mark.slow),
        (ROTARY, False, "float32"),
        ({"position": "relative"}, False, "float32"),
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


@pytest.fixture
def without_code(monkeypatch):
    """Lets the compiler read graphs as ever, and run them as they are."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))


def compiled(model, jit_compile=True):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss, jit_compile=jit_compile)
    return model


OTHERS = [
    {},
    {"dtype": "mixed_bfloat16"},
    {"rotary": "dinov3", "position": "none", "mlp": "swiglu", "layer_scale": 0.1, "width": 16},
    {"dropout": 0.1, "pool": "mean"},
    {"position": "relative"},
    {"remat": True},
]


@pytest.mark.parametrize("options", OTHERS, ids=str)
def test_one_program_serves_all_blocks_of_a_model(options, without_code):
    """In Keras's steps, for another number of images too; they learn what they learn without."""
    options = {"depth": 3, "num_classes": 4, **options}
    model, as_it_is = compiled(tiny_vit(**options)), compiled(tiny_vit(**options), False)
    as_it_is.set_weights(model.get_weights())
    x, y = images((9, *model.input_shape[1:])), np.arange(9) % 4
    assert_close(model.predict(x, batch_size=6, verbose=0), as_it_is.predict(x, verbose=0), 1e-2)
    assert counters["stats"]["unique_graphs"] == 1 and not counters["graph_break"]
    fit = functools.partial(keras.Model.fit, x=x, y=y, batch_size=6, shuffle=False, verbose=0)
    losses = [fit(each, epochs=3).history["loss"] for each in (model, as_it_is)]
    assert counters["stats"]["unique_graphs"] == 2 and not counters["graph_break"]
    assert model.jit_compile
    if "dropout" not in options:  # of which the two draw other masks
        np.testing.assert_allclose(*losses, rtol=1e-2)


WITH_BLOCKS = [name for name in MODELS if name not in ("bit", "frozen")]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ("dropout", "merging") else pytest.mark.slow)
        for name in WITH_BLOCKS
    ],
)
def test_a_block_is_one_program_that_is_compiled_once(name, without_code):
    """Whatever it is made of, for a smaller batch at the end and in later epochs too."""
    model = compiled(tiny_vit(**MODELS[name], num_classes=3))
    x, y = images((5, 16, 16, 3)), np.arange(5) % 3
    merges = "token_merging" in MODELS[name]  # by operations that PyTorch compiles for each batch
    for part in (slice(3), slice(3, 5))[: 1 + merges]:
        model.train_on_batch(x[part], y[part])
        model.predict_on_batch(x[part])
    programs = counters["stats"]["unique_graphs"]
    for _ in range(2):
        model.fit(x, y, batch_size=3, verbose=0)
        model.predict(x, batch_size=3, verbose=0)
    assert not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] == programs > 0


@pytest.mark.parametrize("remat", [False, True])
def test_rates_of_stochastic_depth_share_a_program(remat, without_code):
    """The first block, which drops nothing, has one of its own."""
    model = compiled(tiny_vit(depth=5, num_classes=4, stochastic_depth=0.3, remat=remat))
    model.train_on_batch(images((3, *model.input_shape[1:])), np.arange(3))
    assert counters["stats"]["unique_graphs"] == 2


def test_outside_of_steps_nothing_is_compiled(without_code):
    """Nor after an error, and a layer with a hook runs as Keras calls it."""
    model = compiled(tiny_vit(depth=2))
    x, seen = images((2, *model.input_shape[1:])), []
    model.get_layer("block_1").mlp.register_forward_hook(lambda *_: seen.append("mlp"))
    model.predict_on_batch(x)
    assert seen
    refuses(r"shape|size|expected", model.predict_on_batch, x[:, :-1], error=Exception)
    graphs = counters["stats"]["unique_graphs"]
    for layer in model._flatten_layers():
        assert not getattr(layer, "calls_directly", False) and "call" not in vars(layer)
    model(x, training=True)
    assert counters["stats"]["unique_graphs"] == graphs


def test_later_epochs_compile_nothing(without_code):
    """Nor does validation, after the first time."""
    model = compiled(tiny_vit(depth=1))
    x, y = images((6, *model.input_shape[1:])), np.arange(6) % 2
    data = {"batch_size": 2, "validation_data": (x, y), "validation_batch_size": 2, "verbose": 0}
    model.fit(x, y, epochs=1, **data)
    seen = counters["stats"]["unique_graphs"]
    model.fit(x, y, epochs=3, initial_epoch=1, **data)
    assert counters["stats"]["unique_graphs"] == seen > 0


def test_only_head_and_loss_are_float32_in_a_compiled_step(monkeypatch):
    """In mixed_bfloat16, forwards and backwards; norms and attention keep their sums within.

    On a CPU with an instruction for bfloat16, that is; others multiply in float32.
    """
    monkeypatch.setattr(products, "EMULATED", set())
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
    wide = [(name, x) for name, x in found if x.dtype == torch.float32 and x.numel() >= of_tokens]
    assert not wide
    assert sum("mm" in name and value.dtype == torch.bfloat16 for name, value in found) > 30
