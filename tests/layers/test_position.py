"""The positions of Table 8 and of the "better plain ViT", and rotary positions."""

import keras
import numpy as np
import pytest

from keras_vit import Variant
from keras_vit.extensions import ROTARIES
from keras_vit.layers import PositionEmbedding, RelativePosition, RotaryPosition
from keras_vit.layers.kernels import rotate
from keras_vit.layers.position import sincos_2d
from keras_vit.layers.relative import distance_bias
from tests import definitions
from tests.arrays import assert_close, images, read_arrays, to_numpy, values
from tests.support import BACKEND, ORACLES, forward, randomize, refuses, tiny_vit

SINCOS = read_arrays(ORACLES / "big_vision_vit" / "sincos2d.npz")


@pytest.mark.parametrize(
    "layer, tokens, shapes",
    [
        (PositionEmbedding("learned_1d", (14, 14)), (197, 192), {"embedding": (1, 197, 192)}),
        (
            PositionEmbedding("learned_2d", (80, 90), class_token=False),
            (7200, 512),
            {"rows": (80, 256), "columns": (90, 256)},
        ),
        (RelativePosition(num_heads=4), (65, 256), {"embedding": (2 * 65 - 1, 64)}),
    ],
    ids=lambda x: type(x).__qualname__ if hasattr(x, "build") else "",
)
def test_fresh_positions(layer, tokens, shapes):
    layer.build((None, *tokens))
    assert {name: table.shape for name, table in values(layer).items()} == shapes
    for table in values(layer).values():
        assert table.std() == pytest.approx(0.02, rel=0.05)
        assert abs(table.mean()) < 1e-3


@pytest.mark.parametrize("kind", ["learned_1d", "learned_2d", "sincos_2d"])
def test_tables_without_class_token(kind):
    layer = PositionEmbedding(kind, (2, 3), class_token=False)
    layer.build((None, 6, 8))
    weights = values(randomize(layer))
    assert_close(layer.table()[0], definitions.position_table(weights, kind, (2, 3), 8, 0), 1e-6)


@pytest.mark.parametrize("name", sorted(SINCOS))
def test_sincos_equals_the_authors_code(name):
    """The arrays that were stored as float32 hold no more digits than that."""
    (rows, columns, width) = map(int, name.split("_")[0].split("x"))
    tolerance = 1e-12 if SINCOS[name].dtype == "float64" else 1e-6
    assert sincos_2d((rows, columns), width).dtype == "float64"
    assert_close(sincos_2d((rows, columns), width), SINCOS[name][0], tolerance)


@pytest.mark.parametrize("kind, factor, width", [("sincos_2d", 4, 6), ("learned_2d", 2, 7)])
def test_widths_that_do_not_split(kind, factor, width):
    with pytest.raises(ValueError, match=rf"{kind}.*width that {factor} divides.*width={width}"):
        PositionEmbedding(kind, (2, 2)).build((None, 5, width))


def test_tokens_that_are_not_the_grid():
    with pytest.raises(ValueError, match=r"2x3 patches .* has 7 tokens.*\(None, 6"):
        PositionEmbedding("learned_1d", (2, 3)).build((None, 6, 8))


@pytest.mark.parametrize("kind", ["relative", "none", "sincos", None])
def test_unknown_kinds(kind):
    with pytest.raises(ValueError, match=r"Unknown kind.*'learned_1d', 'learned_2d', 'sincos_2d'"):
        PositionEmbedding(kind, (2, 2))


@pytest.mark.parametrize("tokens", [1, 2, 7])
def test_distance_bias_is_the_double_loop(tokens):
    rng = np.random.default_rng(tokens)
    query = rng.normal(size=(2, tokens, 3, 4)).astype("float32")
    table = rng.normal(size=(2 * tokens - 1, 4)).astype("float32")
    assert_close(distance_bias(2 * query, table), definitions.relative_bias(query, table), 1e-5)


def test_distance_bias_refuses_a_table_for_other_tokens():
    with pytest.raises(ValueError, match=r"5 tokens have 9 distances.*\(7, 4\)"):
        distance_bias(np.zeros((2, 5, 2, 4), "float32"), np.zeros((7, 4), "float32"))


ROTARY = {"rotary": "dinov3", "position": "none", "num_heads": 2, "width": 16}


@pytest.mark.parametrize("name", [name for name in ROTARIES if name != "mixed"])
def test_rotation(name):
    """Pairs of values as complex numbers; learned tokens do not turn."""
    rotary = ROTARIES[name]
    angles = np.pad(definitions.angles((3, 5), 8, rotary), ((3, 0), (0, 0)))
    table = RotaryPosition(name, 2, 8, (3, 5), learned_tokens=3)(np.zeros((1, 15, 2), "float32"))
    x = np.random.default_rng(0).normal(size=(2, 18, 2, 8)).astype("float32")
    expected = definitions.rotated(x, angles[:, None], rotary.pairs)
    assert_close(rotate(keras.ops.convert_to_tensor(x), table, rotary.pairs), expected, 1e-5)


def test_attention_sees_distances_alone():
    """Queries and keys turned by one more angle give the same scores."""
    pair = np.random.default_rng(0).normal(size=(2, 1, 1, 1, 8)).astype("float32")
    q, k = keras.ops.convert_to_tensor(pair)

    def table(angle):
        return keras.ops.convert_to_tensor(
            np.full((8, 1, 1, 2), [np.cos(angle), np.sin(angle)]).T, "float32"
        )

    def score(a, b):
        return np.sum(to_numpy(rotate(q, table(a))) * to_numpy(rotate(k, table(b))))

    assert score(0.3, 0.8) == pytest.approx(score(1.3, 1.8), abs=1e-5)
    assert score(0.3, 0.8) != pytest.approx(score(0.3, 1.8), abs=1e-3)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"remat": True},
        {"pool": "mean", "registers": 2},
        {"rotary": "mixed"},
        {"rotary": None, "position": "relative_2d"},
        {"rotary": None, "position": "relative_2d", "position_at": "shared", "pool": "mean"},
    ],
    ids=str,
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


def test_rotary_positions_that_cannot_be():
    refuses(r"not both.*position='relative'", Variant, position="relative", rotary="dinov3")
    refuses(r"4 divides.*head_width=6", RotaryPosition, "dinov3", 2, 6, (2, 2))
    with pytest.raises(ValueError, match=r"class token, and for no other.*registers=1"):
        Variant(position="relative_2d", registers=1)
    refuses("Unknown rotary", Variant, rotary="spiral")
