"""What a model costs to compute."""

import keras
import pytest

import keras_vit
from tests.support import BACKEND, tiny_vit

only_jax = pytest.mark.skipif(BACKEND != "jax", reason="XLA counts")


@only_jax
def test_macs_are_those_of_a_convolution():
    """4 x 4 outputs of 3 x 3 pixels of 64 channels, and no padding to multiply by."""
    from compute import macs

    images = keras.Input((6, 6, 64))
    model = keras.Model(images, keras.layers.Conv2D(128, 3, use_bias=False)(images))
    assert macs(model) == 4 * 4 * 3 * 3 * 64 * 128


@only_jax
def test_macs_leave_out_what_is_done_once_for_a_batch():
    """As a BiT standardises its kernels, which takes 3 % of what XLA counts for one image here."""
    from compute import macs

    small, large = (
        keras_vit.BiT(blocks=(1,), width=1.0, num_classes=0, image_size=side) for side in (32, 64)
    )
    assert macs(large) == pytest.approx(4 * macs(small), rel=1e-3)


@pytest.mark.skipif(BACKEND == "jax", reason="XLA counts")
def test_macs_on_another_backend_say_what_to_do():
    from compute import macs

    with pytest.raises(RuntimeError, match=f"'{BACKEND}'; set .* KERAS_BACKEND=jax"):
        macs(tiny_vit())
