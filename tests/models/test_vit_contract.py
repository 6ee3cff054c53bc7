"""What a whole model keeps when it is saved, and what it refuses."""

import json

import keras
import numpy as np
import pytest

from keras_vit import VisionTransformer
from tests.support import (
    BACKEND,
    assert_close,
    dtype_of,
    forward,
    images,
    largest,
    precision,
    randomize,
    tiny_vit,
    to_numpy,
)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16", "bfloat16", "float64"])
def test_the_dtype_is_part_of_the_config(dtype):
    with precision(dtype):
        model = tiny_vit(dtype=dtype)
        config = json.loads(json.dumps(model.get_config()))
        twin = VisionTransformer.from_config(config)
    assert model.dtype_policy.name == twin.dtype_policy.name == dtype
    for name in ("patches", "patch_encoder", "block_0", "norm"):
        assert twin.get_layer(name).dtype_policy.name == dtype


@pytest.mark.parametrize("representation_size", [None, 6])
def test_the_number_of_tokens_is_known_after_the_head(representation_size):
    model = tiny_vit(pool=None, representation_size=representation_size)
    assert model.output_shape == (None, 5, 3)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "float64"])
def test_a_saved_model_keeps_its_precision(tmp_path, dtype):
    with precision(dtype):
        model = randomize(tiny_vit(dtype=dtype))
        model.save(tmp_path / "model.keras")
        loaded = keras.saving.load_model(tmp_path / "model.keras")
        before, after = forward(model, images()), forward(loaded, images())
        assert dtype_of(after) == dtype_of(before)
        np.testing.assert_array_equal(to_numpy(after), to_numpy(before))


def test_a_saved_model_keeps_what_is_frozen(tmp_path):
    """Otherwise a resumed fine-tuning trains the trunk, with an optimizer that lost its state."""
    model = tiny_vit()
    for layer in model.layers:
        layer.trainable = layer.name == "head"
    model.compile(
        keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    model.fit(images(), np.arange(4) % 3, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert [v.path for v in loaded.trainable_variables] == ["head/kernel", "head/bias"]
    for mine, its in zip(loaded.optimizer.variables, model.optimizer.variables, strict=True):
        assert_close(mine, its, 0)


@pytest.mark.skipif(BACKEND == "jax", reason="float16 products need an accelerator on JAX")
def test_float16_gets_a_scaled_loss():
    """Keras decides so by the policy of the model; unscaled, small gradients become zero."""
    model = tiny_vit(depth=1, dtype="mixed_float16")
    model.compile("adam", "mse")
    assert type(model.optimizer).__name__ == "LossScaleOptimizer"


@pytest.mark.slow
def test_int8():
    """`Linear` promises the abilities of `EinsumDense`."""
    model = randomize(tiny_vit(depth=1, representation_size=6))
    exact = to_numpy(forward(model, images()))
    model.quantize("int8")
    kernels = [v for v in model.weights if v.path.endswith("kernel")]
    assert {dtype_of(v) for v in kernels} == {"int8"}
    error = largest(to_numpy(forward(model, images())) - exact)
    assert 0 < error < 0.1 * largest(exact)
