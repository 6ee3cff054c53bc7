"""`fit`, `predict`, freezing, features, and the precisions in which all that runs."""

import keras
import numpy as np
import pytest

from keras_vit.layers import LayerNorm
from tests.support import (
    assert_close,
    dtype_of,
    forward,
    images,
    largest,
    precision,
    randomize,
    slow_unless_torch,
    tiny_vit,
    to_numpy,
    values,
)

LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def easy_task(count=48):
    """Three classes that differ in brightness."""
    y = np.arange(count) % 3
    x = images((count, 16, 16, 3)) / 4 + (y - 1).reshape(-1, 1, 1, 1) / 2
    return x.astype("float32"), y


@pytest.mark.parametrize(
    "dtype", ["float32", pytest.param("mixed_bfloat16", marks=slow_unless_torch)]
)
def test_fit_learns_and_predict_is_the_call(dtype):
    x, y = easy_task()
    model = tiny_vit(depth=1, dtype=dtype)
    model.compile(keras.optimizers.Adam(0.01), LOSS, metrics=["accuracy"])
    history = model.fit(x, y, batch_size=16, epochs=12, verbose=0).history
    assert history["loss"][0] > 0.5
    assert history["loss"][-1] < history["loss"][0] / 4
    assert history["accuracy"][-1] > 0.9
    predictions = model.predict(x[:20], batch_size=16, verbose=0)
    assert predictions.dtype == "float32"
    assert_close(predictions, model(x[:20]), 1e-5 if dtype == "float32" else 0.05)


def test_freezing_the_blocks():
    x, y = easy_task(16)
    model = randomize(tiny_vit())
    for layer in model.layers:
        layer.trainable = layer.name == "head"
    assert [v.path for v in model.trainable_variables] == ["head/kernel", "head/bias"]
    before = values(model)
    model.compile(keras.optimizers.SGD(0.1), LOSS)
    model.fit(x, y, batch_size=16, verbose=0)
    for path, value in values(model).items():
        moved = largest(value - before[path])
        assert (moved > 1e-4) if path.startswith("head/") else (moved == 0), path


def test_features_of_every_block():
    model = randomize(tiny_vit(pool="mean"))
    names = ["patch_encoder", "block_0", "block_1"]
    features = keras.Model(model.input, [model.get_layer(name).output for name in names])
    x = images()
    tokens = features(x)
    assert [tuple(t.shape) for t in tokens] == [(4, 4, 8)] * 3
    assert_close(model.get_layer("block_1")(tokens[1]), tokens[2], 1e-6)
    pooled = model.get_layer("pool")(model.get_layer("norm")(tokens[2]))
    assert_close(model.get_layer("head")(pooled), model(x), 1e-6)


def test_mixed_bfloat16():
    options = {"pool": "map", "representation_size": 6, "depth": 1}
    exact, model = randomize(tiny_vit(**options)), tiny_vit(**options, dtype="mixed_bfloat16")
    randomize(model)
    inner = keras.Model(model.input, [layer.output for layer in model.layers[1:]])
    outputs = dict(zip([layer.name for layer in model.layers[1:]], forward(inner, images())))
    assert dtype_of(outputs.pop("head")) == "float32"
    assert {name: dtype_of(x) for name, x in outputs.items()} == dict.fromkeys(outputs, "bfloat16")
    assert {dtype_of(v) for v in model.weights} == {"float32"}
    expected = to_numpy(forward(exact, images()))
    assert largest(to_numpy(forward(model, images())) - expected) < 0.05 * largest(expected)


def test_norms_keep_float32_statistics():
    """Values that bfloat16 holds exactly, whose mean and variance it would round away."""
    x = (256 + 2 * np.arange(16)).reshape(1, 1, 16).astype("float32")
    tensor = keras.ops.cast(x, "bfloat16")
    assert_close(tensor, x, 0)
    assert_close(LayerNorm(dtype="mixed_bfloat16")(tensor), LayerNorm()(x), 2.0**-8)


def test_float64_reaches_every_layer():
    with precision("float64"):
        model = randomize(tiny_vit(representation_size=6, dtype="float64"))
        inner = keras.Model(model.input, [layer.output for layer in model.layers])
        outputs = dict(
            zip(
                [layer.name for layer in model.layers],
                forward(inner, images().astype("float64") / 3),
            )
        )
    assert {name: dtype_of(x) for name, x in outputs.items()} == dict.fromkeys(outputs, "float64")
    assert {dtype_of(v) for v in model.weights} == {"float64"}
    for x in outputs.values():
        digits = to_numpy(x)
        assert (digits.astype("float32") != digits).any(), "float32 numbers in float64"


def test_the_global_dtype_policy_counts_too():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = tiny_vit(depth=1)
    finally:
        keras.config.set_dtype_policy("float32")
    assert model.get_layer("block_0").compute_dtype == "bfloat16"
    assert model.get_layer("head").compute_dtype == "float32"


def test_low_rank_adaptation_of_one_projection():
    """`Linear` is an `EinsumDense` to Keras's LoRA: frozen kernel, two small new ones."""
    model = randomize(tiny_vit(depth=1))
    x, before = images(), values(model)
    expected = to_numpy(model(x))
    block = model.get_layer("block_0")
    attention, query = block.attention, block.attention.query
    parts = (block.norm_1, block.norm_2, block.mlp, attention.key, attention.value, attention.out)
    for layer in (*parts, *(layer for layer in model.layers if layer is not block)):
        layer.trainable = False
    query.enable_lora(2)
    assert_close(model(x), expected, 1e-6)
    adapted = [v.path.rsplit("/")[-1] for v in model.trainable_variables]
    assert sorted(adapted) == ["bias", "lora_kernel_a", "lora_kernel_b"]
    query.lora_kernel_b.assign(np.ones(query.lora_kernel_b.shape))
    assert largest(to_numpy(model(x)) - expected) > 1e-3
    for path in before:
        assert_close(values(model)[path], before[path], 0)
