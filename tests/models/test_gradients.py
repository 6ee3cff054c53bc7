"""Gradients are slopes of the paper's equations as `tests/definitions.py` writes them in NumPy.

The slopes are central differences of the definition, which knows nothing about gradients.
`tests/models/test_vit.py` compares the outputs.
"""

import keras
import numpy as np
import pytest

from tests import definitions
from tests.support import (
    assert_close,
    gradients,
    images,
    largest,
    precision,
    randomize,
    tiny_vit,
    to_numpy,
    values,
)

MODELS = {
    "token": {},
    "mean": {"pool": "mean", "representation_size": 6, "gelu": "erf"},
    "map": {"pool": "map", "position": "sincos_2d"},
    "no_bias": {"qkv_bias": False, "num_heads": 1},
}
# Largest error, as a part of the largest value of the output; float32 has 1.2e-7, and two blocks
# and a head add up a few dozen roundings.
TOLERANCES = {"float32": 2e-6, "float64": 1e-14}
STEP = 1e-4  # of the central differences; their error is about STEP**2


def built(dtype, **options):
    """A model in which every weight is random, so that no zero or one hides an error."""
    return randomize(tiny_vit(width=16, **options, dtype=dtype), seed=1)


def expected_of(model, x, weights=None):
    """What the definition computes with the weights of the model, or with others."""
    weights = values(model) if weights is None else weights
    return definitions.vision_transformer(weights, x, model.variant, model.grid)


def inputs_of(model, dtype):
    return images((3, *model.image_size, model.channels), seed=2).astype(dtype)


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
        model = built(dtype, **MODELS[name], **options)
        x = inputs_of(model, dtype)
        factors = rng.normal(size=(len(x), model.num_classes))

        def loss(outputs):
            return keras.ops.sum(outputs * outputs * keras.ops.cast(factors, dtype))

        value, slopes = gradients(model, loss, x, training=True)
    weights = {path: array.astype("float64") for path, array in values(model).items()}

    def exact(changed):
        return float(np.sum(expected_of(model, x, {**weights, **changed}) ** 2 * factors))

    assert value == pytest.approx(exact({}), abs=100 * TOLERANCES[dtype])
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
