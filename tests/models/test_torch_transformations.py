"""Whole models under the transformations of PyTorch: right numbers, or PyTorch's own error."""

import numpy as np
import pytest

from tests.arrays import assert_close, images, largest, to_numpy
from tests.support import BACKEND, randomize, refuses, tiny_vit

pytestmark = pytest.mark.skipif(BACKEND != "torch", reason="of PyTorch")


@pytest.fixture(scope="module")
def model():
    return randomize(tiny_vit())


@pytest.fixture
def x():
    import torch

    return torch.tensor(images((2, 16, 16, 3)), dtype=torch.float32)


def test_forward_derivatives(model, x):
    """PyTorch's fused attention has none, and says so; its plain one has the right ones."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    dx, step = torch.ones_like(x), 1e-2
    refuses("forward AD", torch.func.jvp, model, (x,), (dx,), error=NotImplementedError)
    with sdpa_kernel(SDPBackend.MATH):
        _, tangent = torch.func.jvp(model, (x,), (dx,))
        difference = (model(x + step * dx) - model(x - step * dx)) / (2 * step)
    assert_close(tangent, to_numpy(difference), 5e-3 * largest(to_numpy(difference)))


def test_vmap_and_trace(model, x):
    import torch

    expected = to_numpy(model(x))
    each = torch.func.vmap(lambda image: model(image[None])[0])(x)
    assert_close(each, expected, 1e-5)
    with torch.no_grad():
        traced = torch.jit.trace(model, x, check_trace=False)
    assert_close(traced(torch.cat([x, x])), np.concatenate([expected] * 2), 1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(model, x, dtype):
    import torch

    half = tiny_vit(dtype=dtype)
    half.set_weights(model.get_weights())
    expected = to_numpy(model(x))
    assert_close(half(x).float(), expected, 0.05 * largest(expected))
    if dtype == "bfloat16":
        with torch.autocast("cpu", torch.bfloat16):
            found = model(x)
        assert found.dtype == torch.bfloat16
        assert_close(found.float(), expected, 0.05 * largest(expected))
