"""Files that an earlier version wrote: `.keras` files of each architecture open and compute."""

import keras
import numpy as np
import pytest

from keras_vit import BiT, VisionTransformer
from tests.support import ORACLES, to_numpy

BEFORE = ORACLES / "before"
NAMES = sorted(path.stem for path in BEFORE.glob("*.keras"))


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_before_computes_what_it_did(name, reopened):
    outputs = np.load(BEFORE / "outputs.npz")
    model = keras.saving.load_model(BEFORE / f"{name}.keras")
    assert name.startswith("own") or isinstance(model, (BiT, VisionTransformer))
    tolerance = {"half": 2e-2, "bit": 2e-4}.get(name, 2e-5)
    expected, scale = outputs[name], np.abs(outputs[name]).max()
    assert np.abs(to_numpy(model(outputs["images"])) - expected).max() < tolerance * scale
    # What is written now opens too.
    again = reopened(model)
    assert [w.path for w in again.weights] == [w.path for w in model.weights]
    once, twice = to_numpy(model(outputs["images"])), to_numpy(again(outputs["images"]))
    np.testing.assert_array_equal(twice, once)
