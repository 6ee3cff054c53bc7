"""What a whole model keeps when it is saved, and what it refuses."""

import json
import re

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


WRONG_IMAGES = {
    "size": (2, 24, 24, 3),
    "same_number_of_patches": (2, 8, 32, 3),
    "channels_first": (2, 3, 16, 16),
    "grayscale": (2, 16, 16, 1),
}
MESSAGE = r"takes images of shape \('batch', 16, 16, 3\), channels last. Received: shape .*Resize"


@pytest.mark.parametrize("shape", WRONG_IMAGES.values(), ids=WRONG_IMAGES)
def test_wrong_images_in_predict(shape):
    """On JAX, `predict` goes past `__call__`: 8 x 32 pixels gave logits without a word."""
    with pytest.raises(ValueError, match=MESSAGE):
        tiny_vit(depth=1).predict(np.zeros(shape, "float32"), verbose=0)


def test_wrong_images_after_right_ones():
    model = tiny_vit(depth=1)
    model.compile("sgd", "mse")
    y = np.zeros((2, 3))
    model.fit(np.zeros((2, 16, 16, 3), "float32"), y, verbose=0)
    x = np.zeros(WRONG_IMAGES["same_number_of_patches"], "float32")
    # TensorFlow, which by then compiles for images of any size, refuses them while it runs.
    refusal = r"takes images of shape|not compatible with expected shape \[\?,16,16,3\]"
    with pytest.raises(Exception, match=refusal):
        model.fit(x, y, verbose=0)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="elsewhere every tensor knows its shape")
def test_data_that_hides_its_shape():
    """As after `tf.data.Dataset.from_generator` and `tf.py_function`."""
    import tensorflow as tf

    data = tf.data.Dataset.from_generator(
        lambda: iter([(images(), np.zeros((4, 3), "float32"))]),
        output_signature=(tf.TensorSpec((None, None, None, 3)), tf.TensorSpec((None, 3))),
    )
    model = tiny_vit(depth=1)
    model.compile("sgd", "mse")
    assert np.isfinite(model.fit(data, verbose=0).history["loss"]).all()
    assert model.predict(data.map(lambda x, y: x), verbose=0).shape == (4, 3)


WRONG_ARGUMENTS = [
    ({"mlp_dim": 0}, "mlp_dim=0"),
    ({"epsilon": -1.0}, "epsilon=-1.0"),
    ({"epsilon": 0}, "epsilon=0"),
    ({"depth": float("inf")}, "depth=inf"),
    ({"depth": 1, "stochastic_depth": 7.0}, "7.0"),
    ({"variant": ["B/16"]}, "variant=['B/16']"),
]


@pytest.mark.parametrize("options, received", WRONG_ARGUMENTS, ids=str)
def test_more_wrong_arguments(options, received):
    with pytest.raises(ValueError, match=re.escape(received)):
        tiny_vit(**options)


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
