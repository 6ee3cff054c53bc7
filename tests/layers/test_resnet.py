"""A constant kernel, and the padding that sets the ResNet generations apart."""

import functools

import numpy as np
import pytest

from keras_vit.layers import BottleneckV1, RootV1, RootV2, StdConv2D
from tests.support import refuses, to_numpy


@pytest.mark.parametrize(
    "make", [RootV1, BottleneckV1, functools.partial(StdConv2D, kernel_size=1)]
)
def test_numerics_are_known(make):
    refuses(r"Unknown numerics.*'caffe'.*'google', 'timm'", make, 32, numerics="caffe")


def test_a_constant_kernel_gives_no_infinity():
    conv = StdConv2D(32, 1, numerics="google")
    conv.build((None, 4, 4, 3))
    conv.kernel.assign(np.ones(conv.kernel.shape))
    assert not to_numpy(conv(np.ones((1, 4, 4, 3), "float32"))).any()


def test_what_surrounds_the_max_pooling_of_a_root():
    """BiT pads with zero, so that its border is never negative; big_vision's copy does not."""
    x = np.random.default_rng(0).normal(size=(1, 16, 16, 3)).astype("float32")
    zero, infinite = RootV2(32, "bit"), RootV2(32, "bit_paper")
    zero(x), infinite(x)
    infinite.conv.kernel.assign(zero.conv.kernel)
    a, b = to_numpy(zero(x)), to_numpy(infinite(x))
    assert (a[:, 0] >= 0).all()
    np.testing.assert_array_equal(a[:, 0], np.maximum(b[:, 0], 0))
    assert (b[:, 0] < 0).any()
    # Inside, the two agree; outside, numerics of the kernel are the same for both.
    np.testing.assert_array_equal(a[:, 1:, 1:], b[:, 1:, 1:])
