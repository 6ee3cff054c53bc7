"""What a backend computes in its own words equals its twin in `keras.ops`, gradients too."""

import keras
import numpy as np
import pytest

from keras_vit.layers import kernels
from tests.support import assert_close, largest, precision, to_numpy

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape)


CASES = {
    "linear": (lambda x, w, b: kernels.linear(x, w, b), normal(6, 5), normal(5, 7), normal(7)),
    "linear_without_bias": (lambda x, w: kernels.linear(x, w), normal(6, 5), normal(5, 7)),
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

    return [to_numpy(g) for g in jax.grad(of)([v.value for v in variables])]


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("float64", 1e-12)])
@pytest.mark.parametrize("name", CASES)
def test_equals_its_twin(name, dtype, tolerance, monkeypatch):
    function, *arrays = CASES[name]
    with precision(dtype):
        mine = outputs_and_gradients(function, arrays, dtype)
        monkeypatch.setattr(kernels, "FAST", {})
        twins = outputs_and_gradients(function, arrays, dtype)
    for a, b in zip(mine, twins, strict=True):
        assert a.dtype == b.dtype == dtype
        assert_close(a, b, tolerance * max(largest(b), 1))


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="of PyTorch's own functions")
class TestTorch:
    @pytest.mark.parametrize("faster", [True, False])
    @pytest.mark.parametrize("name", ["linear", "linear_without_bias", "conv_1_2_True"])
    def test_either_library_gives_the_same(self, name, faster, monkeypatch):
        from keras_vit.layers import fast_torch

        monkeypatch.setattr(fast_torch, "onednn_is_faster", lambda: faster)
        self.check_second_derivatives(*CASES[name])
        test_equals_its_twin(name, "float32", 1e-5, monkeypatch)

    def check_second_derivatives(self, function, *arrays):
        import torch

        tensors = [torch.tensor(a, dtype=torch.float32, requires_grad=True) for a in arrays]
        (first,) = torch.autograd.grad(
            function(*tensors).square().sum(), tensors[:1], create_graph=True
        )
        (second,) = torch.autograd.grad(first.square().sum(), tensors[:1])
        assert second.isfinite().all() and second.abs().sum() > 0

    def test_a_pytorch_without_the_operation_takes_the_other_way(self, monkeypatch):
        from keras_vit.layers import fast_torch

        def missing(*_):
            raise AttributeError("no such operation")

        monkeypatch.setattr(fast_torch, "_onednn", missing)
        fast_torch.onednn_is_faster.cache_clear()
        try:
            assert not fast_torch.onednn_is_faster()
        finally:
            fast_torch.onednn_is_faster.cache_clear()

    def test_a_kernel_keeps_its_values_where_it_is_laid_out(self):
        kernel = keras.Variable(normal(3, 3, 4, 6).astype("float32"))
        before = to_numpy(kernel).copy()
        kernels.lay_out(kernel)
        np.testing.assert_array_equal(to_numpy(kernel), before)
        moved = kernel.value.permute(3, 2, 0, 1)
        import torch

        assert moved.is_contiguous(memory_format=torch.channels_last)
