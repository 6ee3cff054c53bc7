"""Products of matrices on PyTorch: what multiplies them, a GELU within, and what is kept."""

import numpy as np
import pytest

from keras_vit.layers import cpu, kernels
from keras_vit.layers.linear import Linear
from tests.layers.test_fast_paths import normal
from tests.layers.test_fast_paths import test_equals_its_twin as equals_its_twin
from tests.support import BACKEND, assert_close, to_numpy

if BACKEND != "torch":
    pytest.skip("of PyTorch's own functions", allow_module_level=True)

import torch
from torch.autograd import forward_ad

from keras_vit.layers import fast_torch_products as products


def test_only_what_the_gradient_needs_is_kept(monkeypatch):
    """Frozen kernels need no input, which may be the largest tensor of all."""
    monkeypatch.setattr(products, "ONEDNN_IS_FASTER", True)
    kept = []
    x, kernel, bias = torch.ones(64, 8), torch.ones(8, 8), torch.ones(8, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda x: x):
        products.product(x, kernel, bias)
    assert not kept


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("bfloat16", 0.05)])
def test_a_gelu_within_the_product(dtype, tolerance, monkeypatch):
    """Without gradients; in forward derivatives and over batches too."""
    if not products.has_onednn(getattr(torch, dtype)):
        pytest.skip(f"oneDNN has no product of {dtype} for this CPU")
    arrays = [torch.tensor(normal(*s)).to(getattr(torch, dtype)) for s in ((6, 5), (5, 7), (7,))]
    x, kernel, bias = arrays
    seen, onednn = [], products.onednn
    monkeypatch.setattr(products, "HAS_AVX512", True)
    monkeypatch.setattr(products, "EMULATED", set())
    monkeypatch.setattr(products, "onednn", lambda *args: seen.append(args[3]) or onednn(*args))

    def mine(x):
        return kernels.linear(x, kernel, bias, kernels.gelu_tanh)

    def plain(x):
        return kernels.gelu_tanh(torch.addmm(bias, x, kernel))

    with torch.no_grad():
        assert_close(to_numpy(mine(x)), to_numpy(plain(x)), tolerance)
        (_, mine_dy), (_, dy) = (torch.func.jvp(f, (x,), (x,)) for f in (mine, plain))
        assert_close(to_numpy(mine_dy), to_numpy(dy), 2 * tolerance)
        rows = torch.stack([x, 2 * x])
        mine_rows, plain_rows = torch.vmap(mine)(rows), torch.stack([plain(r) for r in rows])
        assert_close(to_numpy(mine_rows), to_numpy(plain_rows), 2 * tolerance)
    assert seen and all(seen)
    seen.clear()
    mine(x)  # whose backward pass needs what GELU was given
    assert not any(seen)


def test_a_pytorch_without_onednn_multiplies_by_itself(monkeypatch):
    def missing(*_):
        raise AttributeError("'_OpNamespace' 'mkldnn' object has no attribute")

    monkeypatch.setattr(products, "onednn", missing)
    products.has_onednn.cache_clear()
    try:
        for dtype in (torch.float32, torch.bfloat16):
            assert not products.has_onednn(dtype)
        equals_its_twin("linear", "float32", 1e-5, None, monkeypatch)
    finally:
        products.has_onednn.cache_clear()


@pytest.mark.parametrize(
    "words, is_faster, emulated",
    [  # of /proc/cpuinfo
        ("GenuineIntel fpu avx512f avx512_bf16 amx_bf16 avx512_fp16", False, []),
        ("GenuineIntel fpu avx512f", False, ["bfloat16", "float16"]),
        ("AuthenticAMD fpu avx512f avx512_bf16", True, ["float16"]),
        ("Intel64 Family 6 Model 85 Stepping 7, GenuineIntel", False, []),  # as Windows has it
        ("", False, []),
    ],
)
def test_the_cpu_decides_what_multiplies(words, is_faster, emulated, monkeypatch):
    monkeypatch.setattr(products, "HAS_AVX512", True)
    words = set(words.split())
    assert products.onednn_is_faster(words) == is_faster
    assert cpu.emulated(words) == set(emulated)
    monkeypatch.setattr(products, "HAS_AVX512", False)
    assert not products.onednn_is_faster(words)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_short_type_that_the_cpu_cannot_multiply(dtype, monkeypatch):
    """It is multiplied in float32, is kept short for the backward pass, and exported as it is."""
    random = np.random.default_rng(0)
    x, kernel, bias = (
        torch.tensor(random.normal(size=s)).to(dtype) for s in ((6, 5), (5, 7), (7,))
    )
    monkeypatch.setattr(products, "EMULATED", {dtype})
    kept = []
    kernel.requires_grad = True
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        outputs = products.product(x, kernel, bias)
    exact = torch.addmm(bias.double(), x.double(), kernel.double())
    assert torch.equal(outputs, exact.to(dtype))  # rounded once
    outputs.sum().backward()
    assert kernel.grad.dtype == dtype and {x.dtype for x in kept} == {dtype}
    traced = torch.jit.trace(lambda x, k: products.product(x, k, bias), (x, kernel.detach()))
    assert "aten::to" not in str(traced.graph)


def halve_state(layer):
    state = {name: value / 2 for name, value in layer.state_dict().items()}
    layer.load_state_dict(state)


CHANGES = {
    "assign": lambda layer: layer.kernel.assign(layer.kernel / 2),
    "in place": lambda layer: no_grad(lambda: layer.kernel.value.mul_(0.5)),
    "by an optimizer": lambda layer: no_grad(lambda: _foreach(layer.kernel.value)),
    "other memory": lambda layer: setattr(layer.kernel.value, "data", layer.kernel.value.data / 2),
    "a state dict": halve_state,
}


def no_grad(change):
    with torch.no_grad():
        change()


def _foreach(value):
    torch._foreach_mul_([value], 0.5)


@pytest.mark.parametrize("change", CHANGES)
def test_a_kept_cast_of_a_weight_is_given_up_when_the_weight_changes(change):
    layer = Linear("bi,io->bo", 64, dtype="mixed_bfloat16")
    layer.build((None, 32))
    x = torch.ones(2, 32, dtype=torch.bfloat16)
    with torch.no_grad():
        before = layer(x)
        (kept,) = [short for _, short in products._CASTS.values() if short.shape == (32, 64)]
        assert kept.dtype == torch.bfloat16
        assert torch.equal(layer(x), before)
        CHANGES[change](layer)
        assert torch.equal(layer(x), before / 2)
    assert torch.equal(layer(x), before / 2)  # with gradients, which keep nothing
    assert layer.kernel.value not in products._CASTS
    layer(x).sum().backward()
    assert layer.kernel.value.grad.dtype == torch.float32
    assert torch.equal(layer.kernel.value.grad, torch.full((32, 64), 2.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_without_gradients_transformations_and_forward_derivatives_are_served(dtype, monkeypatch):
    """The values of a product alone skip PyTorch's function, which these need."""
    monkeypatch.setattr(products, "ONEDNN_IS_FASTER", True)
    monkeypatch.setattr(products, "EMULATED", {torch.bfloat16})
    x, dx, kernel = (torch.tensor(normal(*s)).to(dtype) for s in ((6, 5), (6, 5), (5, 7)))
    bias, applied = torch.zeros(7, dtype=dtype), []
    apply = products._Product.apply
    monkeypatch.setattr(products._Product, "apply", lambda *a: applied.append(1) or apply(*a))
    with torch.no_grad():
        y = products.product(x, kernel, bias)
        assert not applied
        rows = torch.func.vmap(lambda row: products.product(row[None], kernel, bias)[0])(x)
        over_kernels = torch.func.vmap(lambda k: products.product(x, k, bias))(kernel[None])[0]
        _, dy = torch.func.jvp(lambda x: products.product(x, kernel, bias), (x,), (dx,))
        with forward_ad.dual_level():
            dual = products.product(forward_ad.make_dual(x, dx), kernel, bias)
            dual_dy = forward_ad.unpack_dual(dual).tangent
    for found in (rows, over_kernels):
        assert_close(to_numpy(found.float()), to_numpy(y.float()), 0.05)
    for found in (dy, dual_dy):
        assert_close(to_numpy(found.float()), to_numpy((dx @ kernel).float()), 0.05)
    products.product(x, kernel.requires_grad_(), bias)
    assert applied
