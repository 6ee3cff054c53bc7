"""`fit`, `predict`, freezing, features, and the precisions in which all that runs."""

import keras
import numpy as np
import pytest

from tests.arrays import assert_close, dtype_of, images, largest, to_numpy
from tests.support import forward, randomize, slow_unless_torch, tiny_vit

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


def test_the_global_dtype_policy_counts_too():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = tiny_vit(depth=1)
    finally:
        keras.config.set_dtype_policy("float32")
    assert model.get_layer("block_0").compute_dtype == "bfloat16"
    assert model.get_layer("head").compute_dtype == "float32"
