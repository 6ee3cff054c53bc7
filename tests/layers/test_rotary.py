"""Rotary positions by value, in models, and for images of another size."""

import keras
import numpy as np
import pytest

from keras_vit import Variant
from keras_vit.layers import RotaryPosition
from keras_vit.layers.position import rotate
from tests.definitions import dinov3_angles
from tests.support import BACKEND, assert_close, forward, images, randomize, tiny_vit, to_numpy

ROTARY = {"rotary": "dinov3", "position": "none", "num_heads": 2, "width": 16}


def test_angles_and_rotation():
    angles = np.concatenate(
        [np.zeros((3, 4)), dinov3_angles((3, 5), 8)]
    )  # learned tokens do not turn
    table = RotaryPosition("dinov3", 8, (3, 5), learned_tokens=3)(np.zeros((1, 15, 2), "float32"))
    for found, of_angle in zip(to_numpy(table), (np.cos, np.sin)):
        assert_close(found, np.tile(of_angle(angles), 2), 1e-5)
    x = np.random.default_rng(0).normal(size=(2, 18, 2, 8)).astype("float32")
    pairs = x[..., :4] + 1j * x[..., 4:]
    turned = pairs * np.exp(1j * angles)[:, None, :]
    assert_close(
        rotate(keras.ops.convert_to_tensor(x), table),
        np.concatenate([turned.real, turned.imag], axis=-1),
        1e-5,
    )


def test_attention_sees_distances_alone():
    """Queries and keys turned by one more angle give the same scores."""
    pair = np.random.default_rng(0).normal(size=(2, 1, 1, 1, 8)).astype("float32")
    q, k = keras.ops.convert_to_tensor(pair)

    def table(angle):
        return keras.ops.convert_to_tensor(
            np.full((8, 1, 2), [np.cos(angle), np.sin(angle)]).T, "float32"
        )

    def score(a, b):
        return np.sum(to_numpy(rotate(q, table(a))) * to_numpy(rotate(k, table(b))))

    assert score(0.3, 0.8) == pytest.approx(score(1.3, 1.8), abs=1e-5)
    assert score(0.3, 0.8) != pytest.approx(score(0.3, 1.8), abs=1e-3)


@pytest.mark.parametrize(
    "options", [{}, {"remat": True}, {"pool": "mean", "registers": 2}], ids=str
)
def test_a_model_without_embedding_tells_places_by_rotation(options):
    model = randomize(tiny_vit(**{**ROTARY, "depth": 1, **options}))
    x = images((1, *model.input_shape[1:]))
    outputs = to_numpy(forward(model, np.concatenate([x, x[:, ::-1]])))
    assert np.abs(outputs[0] - outputs[1]).max() > 1e-3
    twin = type(model).from_config(model.get_config())
    twin.set_weights(model.get_weights())
    assert_close(forward(twin, x, training=True)[0], outputs[0], 1e-5)


def test_a_variable_size_computes_the_angles_of_each_image():
    fixed = randomize(tiny_vit(**ROTARY, image_size=(16, 24)))
    free = tiny_vit(**ROTARY, image_size=16, variable_size=True)
    free.set_weights(fixed.get_weights())
    x = images((2, 16, 24, fixed.channels))
    expected = forward(fixed, x)
    assert_close(forward(free, x), expected, 1e-5)
    if BACKEND == "tensorflow":  # where the sizes are tensors in a graph
        assert_close(free.predict(x, verbose=0), expected, 1e-5)


def test_what_cannot_be():
    with pytest.raises(ValueError, match=r"not both.*position='relative'"):
        Variant(position="relative", later={"rotary": "dinov3"})
    with pytest.raises(ValueError, match=r"4 divides.*head_width=6"):
        RotaryPosition("dinov3", 6, (2, 2))
    with pytest.raises(ValueError, match="Unknown rotary"):
        Variant(later={"rotary": "mixed"})
