"""Gradients are slopes of the paper's equations as `tests/definitions.py` writes them in NumPy.

The slopes are central differences of the definition, which knows nothing about gradients.
`tests/models/test_vit.py` compares the outputs.
"""

import keras
import numpy as np
import pytest

from tests import definitions
from tests.arrays import assert_close, images, largest, to_numpy, values
from tests.support import gradients, precision, randomize, tiny_vit

MODELS = {
    "token": {},
    "mean": {"pool": "mean", "representation_size": 6, "gelu": "erf"},
    "map": {"pool": "map", "position": "sincos_2d"},
    "no_bias": {"qkv_bias": False, "num_heads": 1},
}
STEP = 1e-4  # of the central differences; their error is about STEP**2


@pytest.mark.parametrize(
    "name, options, dtype",
    [
        *((name, {}, "float64") for name in ("token", "mean", "map", "no_bias")),
        ("token", {"remat": True}, "float64"),
        ("token", {}, "float32"),
    ],
    ids=str,
)
def test_gradients_are_the_slopes_of_the_equations(name, options, dtype):
    """Along a random direction in the space of each variable, and for one value of each.

    The tolerance is a part of the largest slope of all: the slope of a key's bias, for one, is
    zero, because it adds the same to all scores of a query.
    """
    rng, tolerance = np.random.default_rng(3), 1e-7 if dtype == "float64" else 1e-5
    with precision(dtype):
        model = randomize(tiny_vit(width=16, **MODELS[name], **options, dtype=dtype), seed=1)
        x = images((3, 16, 16, 3), seed=2).astype(dtype)
        factors = rng.normal(size=(len(x), model.num_classes))

        def loss(outputs):
            return keras.ops.sum(outputs * outputs * keras.ops.cast(factors, dtype))

        value, slopes = gradients(model, loss, x, training=True)
    weights = {path: array.astype("float64") for path, array in values(model).items()}

    def exact(changed):
        changed = {**weights, **changed}
        outputs = definitions.vision_transformer(changed, x, model.variant, model.grid)
        return float(np.sum(outputs**2 * factors))

    assert value == pytest.approx(exact({}), abs=1e-12 if dtype == "float64" else 2e-4)
    assert set(slopes) == {v.path for v in model.trainable_variables}
    actual, expected = [], []
    for path, gradient in slopes.items():
        anywhere = rng.normal(size=gradient.shape) / np.sqrt(gradient.size)
        one_value = np.zeros(gradient.size)
        one_value[rng.integers(gradient.size)] = 1
        for direction in (anywhere, one_value.reshape(gradient.shape)):
            there, back = ({path: weights[path] + s * direction} for s in (STEP, -STEP))
            actual.append(np.sum(gradient * direction))
            expected.append((exact(there) - exact(back)) / (2 * STEP))
    assert_close(np.array(actual), np.array(expected), tolerance * largest(np.array(expected)))


@pytest.mark.any_backend
def test_the_definitions_themselves():
    """A few values that can be checked by hand: the definitions must not share an error."""
    image = np.arange(2 * 4 * 3).reshape(1, 2, 4, 3)
    cut = definitions.patches(image, (2, 2))
    np.testing.assert_array_equal(cut[0, 0], [0, 1, 2, 3, 4, 5, 12, 13, 14, 15, 16, 17])
    np.testing.assert_array_equal(cut[0, 1] - cut[0, 0], 6)
    weights = {"gamma": np.array([2.0, 2.0]), "beta": 1.0}
    normal = definitions.layer_norm(weights, np.array([[1.0, 3.0]]), epsilon=0)
    np.testing.assert_allclose(normal, [[-1.0, 3.0]])
    for kind, value in (("erf", 0.8413447460685429), ("tanh", 0.8411919906082768)):
        assert definitions.gelu(np.array([1.0]), kind) == pytest.approx(value, abs=1e-15)
    assert to_numpy(definitions.gelu(np.array([0.0, -30.0]), "tanh")).tolist() == [0.0, 0.0]
