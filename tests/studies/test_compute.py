"""What a model costs to compute."""

import keras
import pytest

import keras_vit
from tests.support import BACKEND, tiny_vit

only_jax = pytest.mark.skipif(BACKEND != "jax", reason="XLA counts")


@only_jax
def test_macs_are_those_of_a_convolution():
    """4 x 4 outputs of 3 x 3 pixels of 64 channels, and no padding to multiply by."""
    from studies.compute import macs

    images = keras.Input((6, 6, 64))
    model = keras.Model(images, keras.layers.Conv2D(128, 3, use_bias=False)(images))
    assert macs(model) == 4 * 4 * 3 * 3 * 64 * 128


@only_jax
def test_macs_leave_out_what_is_done_once_for_a_batch():
    """As a BiT standardises its kernels, which takes 3 % of what XLA counts for one image here."""
    from studies.compute import macs

    small, large = (
        keras_vit.BiT(blocks=(1,), width=1.0, num_classes=0, image_size=side) for side in (32, 64)
    )
    assert macs(large) == pytest.approx(4 * macs(small), rel=1e-3)


@only_jax
def test_table_6_and_the_formula():
    """224 exaFLOPs, as the paper prints them, of which the products are nearly all."""
    from studies.compute import JFT, described, exaflops, of_table_6, vit_products

    forward = described(of_table_6, name="B/16")[1]
    assert exaflops(forward, 7 * JFT) == pytest.approx(224, abs=0.5)
    assert vit_products("B/16", 224) == pytest.approx(forward, rel=0.01)


@only_jax
@pytest.mark.parametrize("options", [{}, {"mlp": "swiglu"}], ids=["mlp", "swiglu"])
def test_macs_of_axial_blocks(options):
    """Twice the projections and MLPs, and attention within 2 rows and 14 columns."""
    from studies.compute import described, vit_products

    v = keras_vit.get_variant("B/16", depth=1, block="axial", pool="mean", **options)
    how = {"variant": v, "image_size": (32, 224), "num_classes": 0}
    forward = described(keras_vit.VisionTransformer, **how)[1]
    assert vit_products(v, (32, 224)) == pytest.approx(forward, rel=0.01)
    if not options:
        block = 28 * (2 * 12 * 768**2 + 2 * (2 + 14) * 768)
        assert vit_products(v, (32, 224)) == 28 * 768 * 768 + block


@pytest.mark.any_backend
def test_hybrids_have_no_formula():
    from studies.compute import vit_products

    with pytest.raises(ValueError, match="stem of a hybrid has no formula"):
        vit_products("R50+B/16", 224)


@pytest.mark.skipif(BACKEND == "jax", reason="XLA counts")
def test_macs_on_another_backend_say_what_to_do():
    from studies.compute import macs

    with pytest.raises(RuntimeError, match=f"'{BACKEND}'; set .* KERAS_BACKEND=jax"):
        macs(tiny_vit())
