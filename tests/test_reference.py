"""The library computes what the paper's equations say, as `tests/reference_vit.py` writes them.

The outputs are compared in float32 and in float64; the gradients with central differences of the
reference, which knows nothing about gradients.
"""

import keras
import numpy as np
import pytest

from tests.reference_vit import gelu, layer_norm, patches, vision_transformer
from tests.support import (
    assert_close,
    dtype_of,
    forward,
    gradients,
    images,
    largest,
    precision,
    randomize,
    tiny_vit,
    to_numpy,
    values,
)

# What differs from 2 x 2 patches of 8 x 8 pixels, a class token, tanh GELU and learned positions.
MODELS = {
    "token": {},
    "erf": {"gelu": "erf"},
    "pre_logits": {"representation_size": 6},
    "mean": {"pool": "mean", "representation_size": 6, "gelu": "erf"},
    "mean_with_class_token": {"pool": "mean", "class_token": True, "registers": 2},
    "map": {"pool": "map", "position": "sincos_2d"},
    "map_with_class_token": {"pool": "map", "class_token": True, "gelu": "erf"},
    "sincos_2d": {"position": "sincos_2d", "epsilon": 1e-3},
    "no_positions": {"position": "none", "num_heads": 4},
    "no_bias": {"qkv_bias": False, "num_heads": 1},
    "not_square": {"image_size": (8, 24), "patch_size": (4, 12), "channels": 1},
    "registers": {"registers": 3, "position": "sincos_2d", "depth": 3},
    "no_head": {"num_classes": 0, "pool": "mean"},
}
# Largest error, as a part of the largest value of the output; float32 has 1.2e-7, and two blocks
# and a head add up a few dozen roundings.
TOLERANCES = {"float32": 2e-6, "float64": 1e-14}
STEP = 1e-4  # of the central differences; their error is about STEP**2


def built(dtype, **options):
    """A model in which every weight is random, so that no zero or one hides an error."""
    return randomize(tiny_vit(width=16, **options, dtype=dtype), seed=1)


def expected_of(model, x, weights=None):
    """What the reference computes with the weights of the model, or with others."""
    v = model.variant
    return vision_transformer(
        values(model) if weights is None else weights,
        x,
        depth=v.depth,
        num_heads=v.num_heads,
        patch_size=v.patch_size,
        pool=v.pool,
        position=v.position,
        gelu=v.gelu,
        epsilon=v.epsilon,
    )


def inputs_of(model, dtype):
    return images((3, *model.image_size, model.channels), seed=2).astype(dtype)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_those_of_the_equations(name, dtype):
    with precision(dtype):
        model = built(dtype, **MODELS[name])
        x = inputs_of(model, dtype)
        outputs = forward(model, x)
        assert dtype_of(outputs) == dtype
    expected = expected_of(model, x)
    assert largest(expected) > 0.1
    assert_close(outputs, expected, TOLERANCES[dtype] * max(largest(expected), 1))


def test_every_way_to_call_gives_the_same():
    """Called as it is, in training mode, and by Keras's compiled prediction."""
    model = built("float32", **MODELS["token"])
    x = inputs_of(model, "float32")
    expected = expected_of(model, x)
    ways = [model(x), model(x, training=True), model.predict(x, verbose=0)]
    for outputs in [*ways, model.predict_on_batch(x)]:
        assert_close(outputs, expected, TOLERANCES["float32"] * max(largest(expected), 1))


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


def test_the_reference_itself():
    """A few values that can be checked by hand: the reference must not share an error."""
    image = np.arange(2 * 4 * 3).reshape(1, 2, 4, 3)
    cut = patches(image, (2, 2))
    np.testing.assert_array_equal(cut[0, 0], [0, 1, 2, 3, 4, 5, 12, 13, 14, 15, 16, 17])
    np.testing.assert_array_equal(cut[0, 1] - cut[0, 0], 6)
    normal = layer_norm(np.array([[1.0, 3.0]]), np.array([2.0, 2.0]), 1.0, epsilon=0)
    np.testing.assert_allclose(normal, [[-1.0, 3.0]])
    for kind, value in (("erf", 0.8413447460685429), ("tanh", 0.8411919906082768)):
        assert gelu(np.array([1.0]), kind) == pytest.approx(value, abs=1e-15)
    assert to_numpy(gelu(np.array([0.0, -30.0]))).tolist() == [0.0, 0.0]
