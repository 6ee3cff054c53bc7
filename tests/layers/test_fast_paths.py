"""What a backend computes in its own words equals its twin in `keras.ops`, gradients too."""

import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_vit.layers import kernels
from keras_vit.layers.linear import Linear, project
from tests.support import assert_close, largest, precision, to_numpy

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape)


CASES = {
    "linear": (lambda x, w, b: kernels.linear(x, w, b), normal(6, 5), normal(5, 7), normal(7)),
    "linear_without_bias": (lambda x, w: kernels.linear(x, w), normal(6, 5), normal(5, 7)),
    **{
        f"linear_{name}": (
            lambda x, w, b, gelu=gelu: kernels.linear(x, w, b, gelu),
            normal(6, 5),
            normal(5, 7),
            normal(7),
        )
        for name, gelu in (("gelu_tanh", kernels.gelu_tanh), ("gelu_erf", kernels.gelu_erf))
    },
    "gelu_tanh": (lambda x: kernels.gelu(3 * x, True), normal(6, 5)),
    "gelu_erf": (lambda x: kernels.gelu(3 * x, False), normal(6, 5)),
    "layer_norm": (
        lambda x, g, b: kernels.layer_norm(x, g, b, 1e-6),
        3 + normal(2, 5, 8),
        normal(8),
        normal(8),
    ),
    "attention": (
        lambda q, k, v: kernels.attention(q, k, v),
        3 * normal(2, 5, 3, 4),
        normal(2, 6, 3, 4),
        normal(2, 6, 3, 4),
    ),
    "remat": (
        lambda x, y: kernels.remat(lambda x, y: x * keras.ops.sin(y))(x, y),
        normal(6),
        normal(6),
    ),
    "group_norm": (
        lambda x, g, b: kernels.group_norm(x, 4, g, b, 1e-6),
        3 + normal(2, 5, 3, 8),
        normal(8),
        normal(8),
    ),
    "max_pool_same": (lambda x: kernels.max_pool(x, 3, 2, True), normal(2, 8, 7, 3)),
    "max_pool_valid": (lambda x: kernels.max_pool(x, 3, 2, False), normal(2, 9, 8, 3)),
    **{
        f"conv_{size}_{strides}_{explicit}": (
            lambda x, k, s=strides, e=explicit: kernels.conv(x, k, s, e),
            normal(2, 8, 7, 3),
            normal(size, size, 3, 4),
        )
        for size, strides, explicit in (
            *((1, 1, False), (1, 2, True), (3, 1, False), (3, 2, False), (3, 2, True)),
            (7, 2, True),
        )
    },
}


def outputs_and_gradients(function, arrays, dtype):
    """The value, and the gradients of a weighted sum of it with respect to every argument."""
    variables = [keras.Variable(array, dtype=dtype) for array in arrays]

    def compute():
        return function(*map(keras.ops.convert_to_tensor, variables))

    def loss():
        outputs = compute()
        weights = np.cos(np.arange(np.prod(outputs.shape))).reshape(outputs.shape)
        return keras.ops.sum(outputs * keras.ops.convert_to_tensor(weights.astype(dtype)))

    return [to_numpy(compute()), *gradients_of(loss, variables)]


def gradients_of(loss, variables):
    backend = keras.backend.backend()
    if backend == "torch":
        loss().backward()
        return [to_numpy(v.value.grad) for v in variables]
    if backend == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            value = loss()
        return [to_numpy(g) for g in tape.gradient(value, [v.value for v in variables])]
    import jax

    def of(values):
        with keras.StatelessScope(state_mapping=list(zip(variables, values))):
            return loss()

    # Compiled at once, which is much faster than each operation by itself.
    return [to_numpy(g) for g in jax.jit(jax.grad(of))([v.value for v in variables])]


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("float64", 1e-12)])
@pytest.mark.parametrize("name", CASES)
def test_equals_its_twin(name, dtype, tolerance, monkeypatch):
    function, *arrays = CASES[name]
    with precision(dtype):
        mine = outputs_and_gradients(function, arrays, dtype)
        monkeypatch.setattr(kernels, "FAST", ())
        twins = outputs_and_gradients(function, arrays, dtype)
    for a, b in zip(mine, twins, strict=True):
        assert a.dtype == b.dtype == dtype
        assert_close(a, b, tolerance * max(largest(b), 1))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["linear", "linear_gelu_tanh", "gelu_tanh", "attention"])
def test_keeps_a_short_type(name, dtype):
    function, *arrays = CASES[name]
    short = [keras.ops.cast(array, dtype) for array in arrays]
    outputs = function(*short)
    assert keras.backend.standardize_dtype(outputs.dtype) == dtype
    exact = function(*(keras.ops.cast(array, "float32") for array in short))
    assert_close(to_numpy(keras.ops.cast(outputs, "float32")), to_numpy(exact), 0.05)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_layer_norm_computes_short_types_in_float32(dtype):
    function, x, *scale = CASES["layer_norm"]
    x, scale = keras.ops.cast(x, dtype), [keras.ops.cast(s, "float32") for s in scale]
    exact = to_numpy(function(keras.ops.cast(x, "float32"), *scale))
    found = to_numpy(keras.ops.cast(function(x, *scale), "float32"))
    assert_close(found, exact, 0.03 * largest(exact))


def test_layer_norm_of_bfloat16_has_gradients():
    function, x, gamma, beta = CASES["layer_norm"]

    def mixed(x, gamma, beta, dtype):
        outputs = function(keras.ops.cast(x, dtype), gamma, beta)
        return keras.ops.cast(outputs, "float32")

    short, exact = (
        outputs_and_gradients(lambda *a, dtype=dtype: mixed(*a, dtype), [x, gamma, beta], "float32")
        for dtype in ("bfloat16", "float32")
    )
    for a, b in zip(short, exact, strict=True):
        assert_close(a, b, 0.03 * largest(b))


@pytest.mark.parametrize("extreme", [-1e4, -30.0, 30.0, 1e4])
@pytest.mark.parametrize("approximate", [True, False])
def test_the_gradient_of_gelu_ends_in_a_step(extreme, approximate):
    _, gradient = outputs_and_gradients(
        lambda x: kernels.gelu(x, approximate), [np.array([extreme])], "float32"
    )
    assert_close(gradient, np.array([float(extreme > 0)]), 1e-6)


def test_attention_takes_scores_that_overflow_an_exponential():
    q, k, v = normal(1, 4, 1, 2), normal(1, 4, 1, 2), normal(1, 4, 1, 2)
    found = outputs_and_gradients(kernels.attention, [1e4 * q, k, v], "float32")
    assert all(np.isfinite(values).all() for values in found)


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="of PyTorch's own functions")
class TestTorch:
    @pytest.mark.parametrize("faster", [True, False])
    @pytest.mark.parametrize("name", ["linear", "linear_without_bias", "conv_1_2_True"])
    def test_either_library_gives_the_same(self, name, faster, monkeypatch):
        from keras_vit.layers import fast_torch

        monkeypatch.setattr(fast_torch, "onednn_is_faster", lambda _: faster)
        self.check_second_derivatives(*CASES[name])
        test_equals_its_twin(name, "float32", 1e-5, monkeypatch)

    @pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("bfloat16", 0.02)])
    @pytest.mark.parametrize("name", ["linear", "linear_gelu_tanh", "linear_gelu_erf"])
    def test_a_product_without_gradient_is_the_same(self, name, dtype, tolerance, monkeypatch):
        import torch

        from keras_vit.layers import fast_torch

        monkeypatch.setattr(fast_torch, "onednn_is_faster", lambda _: True)
        monkeypatch.setattr(fast_torch, "onednns_gelu_is_faster", lambda *_: True)
        function, *arrays = CASES[name]
        tensors = [torch.tensor(3 * a, dtype=getattr(torch, dtype)) for a in arrays]
        bare = function(*tensors)
        with_gradient = function(tensors[0].requires_grad_(), *tensors[1:])
        assert with_gradient.requires_grad and not bare.requires_grad
        monkeypatch.setattr(kernels, "fast", lambda _: None)
        twin = function(*tensors)
        bare, with_gradient, twin = (to_numpy(y.float()) for y in (bare, with_gradient, twin))
        assert_close(bare, with_gradient, tolerance * largest(twin))
        assert_close(bare, twin, tolerance * largest(twin))

    @pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of the GNU C library")
    def test_activations_stay_in_the_process(self):
        """In a fresh process: steps of inference take no pages from the system again."""
        script = (
            "import resource, torch, keras_vit\n"
            "model = keras_vit.VisionTransformer('S/16', depth=6, num_classes=10)\n"
            "images = torch.zeros(8, 224, 224, 3)\n"
            "def faults():\n"
            "    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
            "    with torch.no_grad(): model(images, training=False)\n"
            "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before\n"
            "print(*[faults() for _ in range(5)])\n"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert (
            sorted(map(int, done.stdout.split()[1:]))[1] < 1500
        )  # of 4 KiB; many thousand otherwise

    def check_second_derivatives(self, function, *arrays):
        import torch

        tensors = [torch.tensor(a, dtype=torch.float32, requires_grad=True) for a in arrays]
        (first,) = torch.autograd.grad(
            function(*tensors).square().sum(), tensors[:1], create_graph=True
        )
        (second,) = torch.autograd.grad(first.square().sum(), tensors[:1])
        assert second.isfinite().all() and second.abs().sum() > 0

    def test_a_kernel_keeps_its_values_where_it_is_laid_out(self):
        kernel = keras.Variable(normal(3, 3, 4, 6).astype("float32"))
        before = to_numpy(kernel).copy()
        kernels.lay_out(kernel)
        np.testing.assert_array_equal(to_numpy(kernel), before)
        moved = kernel.value.permute(3, 2, 0, 1)
        import torch

        assert moved.is_contiguous(memory_format=torch.channels_last)


def cut_model():
    """What stands for a layout that cuts models; nothing is asked of it."""
    return object.__new__(keras.distribution.ModelParallel)


@pytest.mark.parametrize("bias", [True, False])
def test_joined_products_equal_separate_ones(bias, monkeypatch):
    layers = [
        Linear("btd,dhk->bthk", (None, 3, 4), bias_axes="hk" if bias else None) for _ in range(3)
    ]
    x = keras.ops.convert_to_tensor(normal(2, 5, 8).astype("float32"))
    for layer in layers:
        layer.build(x.shape)
        if bias:
            layer.bias.assign(normal(3, 4))
    separate = [layer(x) for layer in layers]
    monkeypatch.setattr(keras.distribution, "distribution", cut_model)
    for one, other in zip(project(x, layers), separate, strict=True):
        assert_close(to_numpy(one), to_numpy(other), 1e-5)


def test_low_rank_changes_are_not_joined(monkeypatch):
    layers = [Linear("btd,dhk->bthk", (None, 3, 4), bias_axes="hk") for _ in range(3)]
    x = keras.ops.convert_to_tensor(normal(2, 5, 8).astype("float32"))
    for layer in layers:
        layer.build(x.shape)
    layers[1].enable_lora(2)
    layers[1].lora_kernel_b.assign(normal(*layers[1].lora_kernel_b.shape))
    monkeypatch.setattr(keras.distribution, "distribution", cut_model)
    for one, layer in zip(project(x, layers), layers, strict=True):
        assert_close(to_numpy(one), to_numpy(layer(x)), 1e-5)
