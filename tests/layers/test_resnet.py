"""Group norm's fast path, and the padding that sets the ResNet generations apart."""

import numpy as np
import pytest

from keras_vit.layers import Root, StdConv2D, kernels
from tests.support import assert_close, dtype_of, precision, to_numpy


@pytest.mark.parametrize("dtype, tolerance", [("float32", 2e-6), ("float64", 1e-14)])
@pytest.mark.parametrize("shape", [(2, 7, 5, 64), (1, 1, 1, 32), (3, 4, 4, 96)])
def test_group_norm_is_its_definition(shape, dtype, tolerance):
    """On PyTorch it is the library's own kernel, elsewhere the definition itself."""
    rng = np.random.default_rng(0)
    x = rng.normal(3.0, 2.0, shape).astype(dtype)
    gamma, beta = (rng.normal(size=shape[-1]).astype(dtype) for _ in range(2))
    with precision(dtype):
        tensors = [kernels.ops.convert_to_tensor(a) for a in (x, gamma, beta)]
        fast = kernels.group_norm(tensors[0], 32, *tensors[1:], 1e-5)
        defined = kernels.group_norm_by_definition(tensors[0], 32, *tensors[1:], 1e-5)
        assert dtype_of(fast) == dtype_of(defined) == dtype
    assert_close(fast, defined, 30 * tolerance)


def test_a_constant_kernel_gives_no_infinity():
    conv = StdConv2D(32, 1)
    conv.build((None, 4, 4, 3))
    conv.kernel.assign(np.ones(conv.kernel.shape))
    assert not to_numpy(conv(np.ones((1, 4, 4, 3), "float32"))).any()


def test_what_surrounds_the_max_pooling_of_a_root():
    """BiT pads with zero, so that its border is never negative; big_vision's copy does not."""
    x = np.random.default_rng(0).normal(size=(1, 16, 16, 3)).astype("float32")
    zero, infinite = Root(32, "v2", "bit"), Root(32, "v2", "bit_paper")
    zero(x), infinite(x)
    infinite.conv.kernel.assign(zero.conv.kernel)
    a, b = to_numpy(zero(x)), to_numpy(infinite(x))
    assert (a[:, 0] >= 0).all()
    np.testing.assert_array_equal(a[:, 0], np.maximum(b[:, 0], 0))
    assert (b[:, 0] < 0).any()
    # Inside, the two agree; outside, numerics of the kernel are the same for both.
    np.testing.assert_array_equal(a[:, 1:, 1:], b[:, 1:, 1:])
