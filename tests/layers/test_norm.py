"""LayerNorm, and rates out of range."""

import keras
import pytest

from keras_vit.layers import LayerNorm, StochasticDepth
from tests.support import dtype_of, images


def test_layer_norm_returns_its_compute_dtype():
    x = images((2, 5, 8))
    assert dtype_of(LayerNorm(dtype="mixed_bfloat16")(x)) == "bfloat16"
    assert LayerNorm(dtype="mixed_bfloat16")(keras.Input((5, 8))).dtype == "bfloat16"


@pytest.mark.parametrize("options", [{"axis": 1}, {"rms_scaling": True}, {"center": False}])
def test_layer_norm_takes_no_option_that_it_ignores(options):
    with pytest.raises((TypeError, ValueError)):
        LayerNorm(**options)


def test_stochastic_depth_refuses_to_drop_everything():
    with pytest.raises(ValueError, match="rate"):
        StochasticDepth(1.0)
