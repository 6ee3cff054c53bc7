"""A saved model opens anywhere: in a fresh process, on another backend, without custom objects."""

import keras
import numpy as np
import pytest

from tests.support import (
    BACKEND,
    BACKENDS,
    forward,
    images,
    largest,
    randomize,
    read_arrays,
    run_in_fresh_process,
    tiny_vit,
    to_numpy,
)

# and how far the outputs of two backends may lie apart, relative to the largest
MODELS = {
    "plain": ({}, 2e-6),
    "everything": (
        {
            "pool": "map",
            "class_token": True,
            "representation_size": 6,
            "position": "relative",
            "position_at": "shared",
            "gelu": "erf",
            "qkv_bias": False,
            "epsilon": 1e-5,
            "dropout": 0.1,
            "attention_dropout": 0.2,
            "stochastic_depth": 0.3,
            "head_bias": -2.0,
            "remat": True,
            "dtype": "mixed_bfloat16",
        },
        0.02,
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The models, their weights alone, and what they compute."""
    folder, outputs = tmp_path_factory.mktemp("models"), {"images": images()}
    for name, (options, _) in MODELS.items():
        model = randomize(tiny_vit(**options))
        model.save(folder / f"{name}.keras")
        model.save_weights(folder / f"{name}.weights.h5")
        outputs[name] = to_numpy(forward(model, images()))
    np.savez(folder / "expected.npz", **outputs)
    return folder


OPEN = """
import sys, keras, numpy as np
import keras_vit
images, outputs = np.load("{folder}/expected.npz")["images"], {{}}
for name in {names}:
    model = keras.saving.load_model(f"{folder}/{{name}}.keras")
    assert type(model) is keras_vit.VisionTransformer
    compute = model.predict_on_batch if keras.backend.backend() == "jax" else model
    outputs[name] = keras.ops.convert_to_numpy(compute(images))
    twin = keras_vit.VisionTransformer.from_config(model.get_config())
    twin.load_weights(f"{folder}/{{name}}.weights.h5")
    for a, b in zip(model.weights, twin.weights):
        assert (keras.ops.convert_to_numpy(a) == keras.ops.convert_to_numpy(b)).all(), a.path
np.savez("{folder}/{backend}.npz", **outputs)
"""


@pytest.mark.parametrize("backend", [backend for backend in BACKENDS if backend != BACKEND])
def test_a_saved_model_opens_on_another_backend(folder, backend):
    names = list(MODELS)
    run_in_fresh_process(OPEN.format(folder=folder, names=names, backend=backend), backend)
    expected, outputs = read_arrays(folder / "expected.npz"), read_arrays(folder / f"{backend}.npz")
    for name, (_, tolerance) in MODELS.items():
        assert largest(outputs[name] - expected[name]) <= tolerance * largest(expected[name]), name


@pytest.mark.parametrize("name", MODELS)
def test_a_saved_model_opens_here(folder, name):
    model = keras.saving.load_model(folder / f"{name}.keras")
    expected = read_arrays(folder / "expected.npz")[name]
    np.testing.assert_array_equal(to_numpy(forward(model, images())), expected)
    for option, value in MODELS[name][0].items():
        stored = model.dtype_policy.name if option == "dtype" else model.get_config()[option]
        assert stored == value, option
