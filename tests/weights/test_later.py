"""Checkpoints of the families after the paper: outputs, features and gradients as in their library.

tests/oracles/record.py says what a case is. PyTorch runs all of them; the others run in the fast
tests what `EVERYWHERE` names, because they compile each model for seconds.
"""

import json

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.weights.files import read_safetensors
from keras_vit.weights.load import read
from tests.arrays import assert_close, largest, read_arrays, to_numpy
from tests.support import forward, gradients, precision, slow_unless_torch
from tests.weights import stored
from tests.weights.stored import LATER, io_of, model_of, opened

CASES = sorted(path.parent.name for path in LATER.glob("*/io.npz"))
EVERYWHERE = ("timm_xp", "timm_eva02", "timm_beit", "timm_rope_mixed_ape")
RESIZED = sorted(path.parent.name for path in LATER.glob("hf_*/resized.npz"))
cases = pytest.mark.parametrize(
    "case", [pytest.param(x, marks=[] if x in EVERYWHERE else slow_unless_torch) for x in CASES]
)


def load(case, dtype="float32"):
    noise = json.loads((LATER / case / "case.json").read_text())["noise"]
    return opened(case, dtype=dtype), io_of(case), noise


def with_features(model):
    """The output of each block, and then of the model."""
    blocks = [layer for layer in model.layers if layer.name.startswith("block_")]
    return keras.Model(model.input, [*(block.output for block in blocks), model.output])


@cases
@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("float64", 1e-9)])
def test_outputs_and_features(case, dtype, tolerance):
    with precision(dtype):
        model, io, noise = load(case, dtype)
        tolerance = max(tolerance, noise) * max(largest(io["output"]), 1)
        *features, output = forward(with_features(model), io["input"].astype(dtype))
    assert_close(output, io["output"], tolerance)
    for found, expected in zip(features, io["features"], strict=True):
        assert_close(found, expected, max(tolerance, 1e-6 * largest(expected)))


@cases
def test_gradients(case, tmp_path):
    """Those of the parameters are read as a checkpoint of their family."""
    gradients_of = read_safetensors(LATER / case / "gradients.safetensors")
    folder = stored.changed(case, tmp_path, lambda _: gradients_of)
    model, io, _noise = load(case)
    expected = read(folder, stored.options_of(case)).weights.arrays
    cotangent = io["cotangent"].astype("float32")
    loss = lambda y: keras.ops.sum(keras.ops.multiply(y, cotangent))  # noqa: E731
    _, found = gradients(model, loss, io["input"])
    assert set(found) == set(expected)
    for name, array in expected.items():
        if name.startswith("patch_encoder/position"):
            # The file may have no rows for learned tokens.
            there = np.any(array, axis=-1)
            found[name], array = to_numpy(found[name])[there], array[there]
        assert_close(found[name], array, 1e-4 * max(largest(array), 1))


# ---- images of another size


@slow_unless_torch
@pytest.mark.parametrize("case", RESIZED)
def test_another_size(case):
    file = read_arrays(LATER / case / "resized.npz")
    size = file["input"].shape[1:3]
    loaded = opened(case, image_size=size)
    resized = keras_vit.resize(opened(case), size)
    assert_close(forward(loaded, file["input"]), file["output"], 1e-5)
    stored.assert_same_weights(resized, loaded, 1e-6)
    report = keras_vit.load_weights(resized, model_of(case))
    assert bool(report.resized) == (case != "hf_dinov3")


@slow_unless_torch
def test_rotary_positions_of_any_grid():
    file = read_arrays(LATER / "hf_dinov3" / "resized.npz")
    model = opened("hf_dinov3", variable_size=True)
    assert_close(forward(model, file["input"]), file["output"], 1e-5)
