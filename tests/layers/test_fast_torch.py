"""What is PyTorch's alone: autocast, traces, compiled graphs, and constants."""

import copy
import pickle

import keras
import numpy as np
import pytest

from keras_vit import BiT, VisionTransformer
from keras_vit.layers import RotaryPosition, kernels
from keras_vit.layers.layer import FloatInputs
from tests.layers.test_fast_paths import CASES, SMOOTH, either_library, normal
from tests.support import BACKEND, assert_close, randomize, tiny_vit, to_numpy
from tests.test_one_path import MODELS, SIZE

if BACKEND != "torch":
    pytest.skip("of PyTorch's own functions", allow_module_level=True)

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from keras_vit.layers import fast_torch

__all__ = ["either_library"]  # a fixture


@pytest.mark.parametrize("name", ["linear", "linear_without_bias"])
def test_autocast_decides_the_type(name, either_library):
    function, *arrays = CASES[name]
    tensors = [torch.tensor(a, dtype=torch.float32, requires_grad=True) for a in arrays]
    with torch.autocast("cpu", torch.bfloat16):
        outputs = function(*tensors)
    assert outputs.dtype == torch.bfloat16
    assert_close(to_numpy(outputs.float()), to_numpy(function(*tensors)), 0.1)
    outputs.float().sum().backward()
    assert all(x.grad.dtype == torch.float32 for x in tensors)


@pytest.mark.parametrize("name", SMOOTH)
def test_a_trace_has_operations_of_pytorch_alone(name, either_library):
    function, *arrays = CASES[name]
    tensors = tuple(torch.tensor(a, dtype=torch.float32) for a in arrays)
    traced = torch.jit.trace(function, tensors)
    assert "mkldnn" not in str(traced.inlined_graph) and "PythonOp" not in str(traced.graph)
    other = tuple(2 * x for x in tensors)
    assert_close(to_numpy(traced(*other)), to_numpy(function(*other)), 1e-5)


@pytest.mark.parametrize("name", SMOOTH)
def test_one_compiled_graph(name, either_library):
    function, *arrays = CASES[name]
    tensors = [torch.tensor(a, dtype=torch.float32) for a in arrays]
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    assert_close(to_numpy(compiled(*tensors)), to_numpy(function(*tensors)), 1e-5)


@pytest.mark.parametrize("tokens, is_fused", [(5, False), (fast_torch.MANY_SCORES, True)])
def test_attention_by_products(tokens, is_fused, either_library, monkeypatch):
    """In bfloat16, of tokens whose weights take little memory, on CPUs where it is faster."""
    fused, fusions = F.scaled_dot_product_attention, []
    monkeypatch.setattr(
        F, "scaled_dot_product_attention", lambda *x: fusions.append(x[0].dtype) or fused(*x)
    )
    query, key, value = (torch.tensor(normal(1, n, 2, 4)) for n in (2, tokens, tokens))
    for dtype in (torch.float32, torch.bfloat16):
        kernels.attention(query.to(dtype), key.to(dtype), value.to(dtype))
    is_fused = is_fused or either_library != "amd_avx512"
    in_float32 = either_library == "avx2"  # which has no instruction for bfloat16
    assert len(fusions) == 1 + is_fused
    assert set(fusions) == {torch.float32, *([torch.bfloat16] * (is_fused and not in_float32))}


def test_a_kernel_keeps_its_values_where_it_is_laid_out():
    kernel = keras.Variable(normal(3, 3, 4, 6).astype("float32"))
    before = to_numpy(kernel).copy()
    kernels.lay_out(kernel)
    np.testing.assert_array_equal(to_numpy(kernel), before)
    moved = kernel.value.permute(3, 2, 0, 1)
    assert moved.is_contiguous(memory_format=torch.channels_last)


class Travels(TorchDispatchMode):
    """Notes operations that take a tensor to another device, or make one of float64."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        outputs = function(*args, **(kwargs or {}))
        tensors = [x for x in keras.tree.flatten(args) if isinstance(x, torch.Tensor)]
        for y in keras.tree.flatten(outputs):
            if isinstance(y, torch.Tensor):
                is_wide = y.dtype == torch.float64
                if is_wide or any(x.device != y.device for x in tensors):
                    self.found.append((str(function), y.dtype, y.device))
        return outputs


ROTARY = {"rotary": "dinov3", "position": "none", "width": 16}
FREE = {"variable_size": True}


@pytest.mark.parametrize(
    "options",
    [
        {"position": "sincos_2d"},
        {"position": "relative_2d"},
        ROTARY,
        {**ROTARY, "rotary": "mixed"},
        FREE,
        {**FREE, "position": "learned_2d"},
        {**FREE, "position": "sincos_2d"},
        {**FREE, **ROTARY},
        {"token_merging": 1, "dtype": "mixed_bfloat16"},
        {"pool": "mean", "stem": (1,), "stem_width": 0.5, "patch_size": 2},
    ],
    ids=str,
)
def test_constants_stay_on_the_device(options):
    """On the device without values, which a computer without an accelerator has too."""
    with keras.device("meta"):
        model = tiny_vit(depth=1, **options)
        side = 24 if "variable_size" in options else 16
        x = torch.zeros((2, side, 16, 3), device="meta")
        model(x)
        with Travels() as travels:
            assert model(x).device.type == "meta"
    assert not travels.found


def test_float64_does_not_leave_numpy():
    model = tiny_vit(depth=1, position="sincos_2d", rotary="dinov3", width=16)
    with Travels() as travels:
        model(torch.zeros(2, 16, 16, 3))
    assert not travels.found


def test_a_constant_is_kept_and_no_copy_of_a_layer_carries_it():
    constant, x = kernels.Constant(np.linspace(0, 1, 5)), torch.ones(5)
    kept = constant.tensor(x, "bfloat16")
    assert kept is constant.tensor(x, "bfloat16") and kept.dtype == torch.bfloat16
    assert constant.tensor(x).dtype == torch.float64
    assert_close(kept, np.linspace(0, 1, 5).astype("float32"), 2e-3)
    layer = RotaryPosition("dinov3", 2, 8, (2, 2))
    layer(torch.zeros(1, 4, 3))
    assert layer.fixed._copies
    for twin in (copy.deepcopy(layer).fixed, pickle.loads(pickle.dumps(layer.fixed))):
        assert not twin._copies
        np.testing.assert_array_equal(twin.array, layer.fixed.array)


def test_a_constant_outlives_how_it_was_first_asked_for():
    """`inference_mode`, a transformation, a compiler or a mode without values."""

    def first_in(run):
        constant = kernels.Constant(np.linspace(0, 1, 5))
        run(lambda x: (x * constant.tensor(x, "float32")).sum())
        for kept in constant._copies.values():
            assert type(kept) is torch.Tensor and not kept.is_inference()
            kept.untyped_storage()
        x = torch.ones(5, requires_grad=True)
        (grad,) = torch.autograd.grad((x * constant.tensor(x, "float32")).square().sum(), x)
        assert_close(grad, 2 * np.linspace(0, 1, 5) ** 2, 1e-6)

    def with_inference_mode(f):
        with torch.inference_mode():
            f(torch.ones(5))

    def with_fake_tensors(f):
        with FakeTensorMode():
            f(torch.ones(5))

    first_in(with_inference_mode)
    first_in(with_fake_tensors)
    first_in(lambda f: torch.func.grad(f)(torch.ones(5)))
    first_in(lambda f: torch.func.jacfwd(torch.func.grad(f))(torch.ones(5)))
    first_in(lambda f: torch.func.vmap(f)(torch.ones(2, 5)))
    first_in(lambda f: torch.compile(f, fullgraph=True, backend="eager")(torch.ones(5)))
    first_in(lambda f: torch.jit.trace(f, torch.ones(5)))


def test_computed_constants_are_kept():
    def numbers(last):
        return np.arange(last, dtype="float64")

    x = torch.ones(1)
    kept = kernels.computed(numbers, 3, like=x, dtype="float32")
    assert kept is kernels.computed(numbers, 3, like=x, dtype="float32")
    np.testing.assert_array_equal(kept, [0, 1, 2])


HOOKS = ("forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook")


@pytest.mark.parametrize("is_global", [False, True])
@pytest.mark.parametrize("hook", HOOKS)
def test_hooks_on_the_parts_of_a_model_are_called(hook, is_global):
    """Which skip Keras's call otherwise; also those of all modules, as counters register them."""
    model = tiny_vit(depth=1)
    block, seen = model.get_layer("block_0"), []
    x = torch.ones(1, *model.input_shape[1:], requires_grad=True)
    for part in (block, block.mlp):
        register = getattr(part, f"register_{hook}")
        if is_global:
            register = getattr(torch.nn.modules.module, f"register_module_{hook}")
        handle = register(lambda module, *_: seen.append(module.name))
        try:
            model(x).sum().backward()
        finally:
            handle.remove()
        assert part.name in seen
        seen.clear()
        model(x).sum().backward()
        assert not seen


def each_way(model, x, monkeypatch):
    """What a model gives as it is and with every layer called by Keras, and the layers called."""
    called, call = [], keras.layers.Layer.__call__

    def counted(layer, *args, **kwargs):
        called.append(layer.name)
        return call(layer, *args, **kwargs)

    def results():
        called.clear()
        torch.manual_seed(0)
        for layer in model._flatten_layers():
            for variable in layer.non_trainable_variables:
                if "seed_generator_state" in variable.path:
                    variable.assign(keras.ops.zeros_like(variable))
        return [to_numpy(model(x)), to_numpy(model(x, training=True))], {*called}

    with monkeypatch.context() as patch:
        patch.setattr(keras.layers.Layer, "__call__", counted)
        yield results()
        patch.setattr(FloatInputs, "adds_nothing", lambda *_: False)
        yield results()


@pytest.mark.parametrize("images", ["uint8", "float32", "float64"])
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "bfloat16", "float64"])
def test_blocks_skip_the_call_of_keras_and_images_are_cast(policy, images, monkeypatch):
    model = randomize(tiny_vit(depth=2, dropout=0.1, dtype=policy))
    x = np.random.default_rng(0).uniform(-1, 3, (2, *model.input_shape[1:])).astype(images)
    (skipped, few), (through_keras, all_layers) = each_way(model, x, monkeypatch)
    assert {"block_0", "block_1", "mlp"} <= all_layers - few
    np.testing.assert_array_equal(skipped, through_keras)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("name", MODELS)
def test_every_model_equals_its_layers_called_by_keras(name, policy, monkeypatch):
    """Also where Keras's call casts what a block gets beside tokens, such as rotations."""
    options = {"dtype": policy, **MODELS[name], "num_classes": 3}
    options.pop("freeze", None)
    model = randomize((BiT if "blocks" in options else VisionTransformer)(**options))
    x = normal(2, SIZE, SIZE, 3)
    (skipped, _), (through_keras, _) = each_way(model, x, monkeypatch)
    np.testing.assert_array_equal(skipped, through_keras)
