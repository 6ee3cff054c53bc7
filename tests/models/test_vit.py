"""The whole network: what it computes, what its parts are called, how it describes itself."""

import json

import keras
import numpy as np
import pytest

from keras_vit import Variant, VisionTransformer, get_variant
from keras_vit.layers import Patches, TokenPool
from keras_vit.models.extended import ExtendedNetwork
from keras_vit.models.vit import Network
from tests import definitions
from tests.arrays import assert_close, dtype_of, images, largest, to_numpy, values
from tests.guides import blocks
from tests.models.test_serialization import EVERYTHING
from tests.support import ROOT, forward, precision, randomize, refuses, tiny_vit

PAGE = ROOT / "docs" / "guides" / "paper_and_code.md"
SIZE = {"patch_size": 8, "width": 16, "depth": 3, "num_heads": 2}
PLAIN = {"image_size": 16, **SIZE}


@pytest.mark.parametrize(
    "size", [PLAIN, pytest.param({"image_size": 32}, marks=pytest.mark.slow)], ids=["tiny", "B/16"]
)
def test_the_plain_model_of_the_guide_is_the_same(size):
    """The layers of the paper, one after the other, are the whole model, to the last bit."""
    (block,) = (b.code for b in blocks(PAGE.read_text()) if "def plain_vit" in b.code)
    code = block[: block.index("plain = ")]
    assert len(code.splitlines()) <= 40
    names = {}
    exec(code, names)
    plain, model = names["plain_vit"](**size), randomize(VisionTransformer(**size))
    assert [w.path for w in plain.weights] == [w.path for w in model.weights]
    plain.set_weights(model.get_weights())
    x = images((2, size["image_size"], size["image_size"], 3))
    np.testing.assert_array_equal(to_numpy(plain(x)), to_numpy(model(x)))


@pytest.mark.parametrize("options", [{}, {"pool": "mean", "representation_size": 6}], ids=str)
def test_the_extended_network_without_an_extension_is_the_plain_one(options):
    """The same layers by the same names, and the same numbers to the last bit."""
    v, outputs = get_variant(**{**SIZE, **options}), []
    for make in (Network, ExtendedNetwork):
        pixels = keras.Input((16, 16, 3))
        model = keras.Model(pixels, make(v, v.grid(16), num_classes=3, dropout=0.1)(pixels))
        names = [layer.name for layer in model.layers[1:]]
        outputs.append((names, to_numpy(randomize(model)(images((2, 16, 16, 3))))))
    (names, logits), (other_names, others) = outputs
    assert names == other_names == [layer.name for layer in VisionTransformer(v, 16).layers[1:]]
    np.testing.assert_array_equal(logits, others)


def test_a_variant_knows_whether_the_paper_has_all_its_parts():
    of_paper = ({"pool": pool, "class_token": False} for pool in set(TokenPool.pools) - {"token"})
    of_paper = ({}, *of_paper, {"position": "sincos_2d", "gelu": "erf"}, {"stem": (1,)})
    assert not any(Variant(**fields).is_extended for fields in of_paper)
    other = ({"registers": 1}, {"norm_after_pool": True}, {"pool": "map"}, {"final_norm": False})
    other += ({"position": "relative"}, {"position_at": "shared"}, {"layer_scale": 1.0})
    assert all(Variant(**fields).is_extended for fields in other)
    refuses("the parts of the paper alone", Network, Variant(registers=1), grid=(14, 14))


# options of a model of 2 x 2 patches and width 8, and the shape that it gives for 4 images
MODELS = {
    "token": ({}, (4, 3)),
    "mean": ({"pool": "mean", "position": "learned_2d", "representation_size": 6}, (4, 3)),
    "mean_with_class_token": ({"pool": "mean", "class_token": True, "gelu": "erf"}, (4, 3)),
    "map": ({"pool": "map", "position": "sincos_2d", "gelu": "erf"}, (4, 3)),
    "map_with_class_token": (
        {"pool": "map", "class_token": True, "position": "learned_2d", "position_at": "shared"},
        (4, 3),
    ),
    "unpooled": ({"pool": None, "position": None, "representation_size": 6}, (4, 5, 3)),
    "unpooled_patches": ({"pool": None, "class_token": False}, (4, 4, 3)),
    "relative": ({"position": "relative"}, (4, 3)),
    "relative_shared": ({"position": "relative", "position_at": "shared", "pool": "mean"}, (4, 3)),
    "learned_1d_every_layer": ({"position_at": "every_layer"}, (4, 3)),
    "learned_1d_shared": ({"position_at": "shared", "pool": "mean"}, (4, 3)),
    "learned_2d_every_layer": (
        {"position": "learned_2d", "position_at": "every_layer", "pool": None},
        (4, 5, 3),
    ),
    "sincos_every_layer": ({"position": "sincos_2d", "position_at": "every_layer"}, (4, 3)),
    "none_every_layer": ({"position": "none", "position_at": "every_layer"}, (4, 3)),
    "not_square": (
        {"image_size": (8, 24), "patch_size": (4, 12), "qkv_bias": False, "epsilon": 1e-3},
        (4, 3),
    ),
    "grayscale": ({"channels": 1, "num_classes": 0}, (4, 8)),
    "five_channels": ({"channels": 5, "num_classes": 0, "representation_size": 6}, (4, 6)),
    "registers": ({"registers": 3, "pool": "mean", "norm_after_pool": True}, (4, 3)),
    "registers_sincos": ({"registers": 3, "position": "sincos_2d", "depth": 3}, (4, 3)),
    "registers_relative": ({"registers": 1, "position": "relative"}, (4, 3)),
    "any_size": ({"variable_size": True, "registers": 2}, (4, 3)),
    "axial": ({"block": "axial", "pool": "mean", "image_size": (16, 24)}, (4, 3)),
    "add_norm": ({"block": "add_norm"}, (4, 3)),
    "headless_patches": ({"pool": None, "include_top": False}, (4, 5, 8)),
}


@pytest.mark.parametrize(
    "name, dtype, tolerance",
    [
        *((name, "float64", 1e-14) for name in MODELS),
        *((name, "float32", 2e-6) for name in ("token", "mean", "map", "relative", "not_square")),
    ],
)
def test_equals_the_paper_in_numpy(name, dtype, tolerance):
    """Every pooling, every position in every place, and every other choice of a `Variant`."""
    options, shape = MODELS[name]
    with precision(dtype):
        model = randomize(tiny_vit(**options, dtype=dtype))
        x = images((4, *model.image_size, model.channels)).astype(dtype)
        outputs = forward(model, x)
        assert dtype_of(outputs) == dtype
        assert {dtype_of(v) for v in model.weights} == {dtype}
        expected = definitions.vision_transformer(
            values(model), x.astype("float64"), model.variant, model.grid
        )
    assert tuple(outputs.shape) == expected.shape == shape
    assert model.output_shape == (None, *shape[1:])
    assert_close(outputs, expected, tolerance * max(largest(expected), 1))


def permuted(x, order):
    """The images with their 2 x 2 patches in another order."""
    cut = Patches(8)
    return cut.inverse(to_numpy(cut(x))[:, order], 16)


@pytest.mark.parametrize("position", ["none", "learned_1d", "learned_2d", "sincos_2d", "relative"])
def test_only_positions_tell_patches_apart(position):
    model = randomize(tiny_vit(position=position, pool="mean"))
    x = images()
    both = np.concatenate([x, permuted(x, [2, 0, 3, 1])])
    before, after = np.split(to_numpy(forward(model, both)), 2)
    if position == "none":
        assert_close(after, before, 1e-5)
    else:
        assert largest(after - before) > 1e-3


ENDS = {
    "token": ["pool", "norm", "head"],
    "mean": ["norm", "pool", "head"],
    "map": ["norm", "pool", "head"],
    None: ["norm", "head"],
}


@pytest.mark.parametrize("pool", ENDS)
def test_names_of_layers(pool):
    """Part of the interface: weights, freezing and feature extraction rely on them."""
    start = ["images", "patches", "patch_encoder", "block_0", "block_1"]
    assert [layer.name for layer in tiny_vit(pool=pool).layers] == start + ENDS[pool]


def test_names_of_further_layers():
    def names(**options):
        return {layer.name for layer in tiny_vit(**options).layers}

    plain, of_each = names(), {"position_0", "position_1"}
    assert names(representation_size=4) - plain == {"pre_logits"}
    assert plain - names(num_classes=0) == {"head"}
    for options in ({}, {"position": "relative"}):
        assert names(**options, position_at="every_layer") - plain == of_each
        assert names(**options, position_at="shared") - plain == {"position"}


def test_paths_of_variables():
    """Part of the interface: weights, layouts and per-layer learning rates rely on them."""
    expected = """
        patch_encoder/class_token patch_encoder/projection/kernel patch_encoder/projection/bias
        patch_encoder/position/embedding
        block_0/norm_1/gamma block_0/norm_1/beta
        block_0/attention/query/kernel block_0/attention/query/bias
        block_0/attention/key/kernel block_0/attention/key/bias
        block_0/attention/value/kernel block_0/attention/value/bias
        block_0/attention/out/kernel block_0/attention/out/bias
        block_0/norm_2/gamma block_0/norm_2/beta
        block_0/mlp/dense_1/kernel block_0/mlp/dense_1/bias
        block_0/mlp/dense_2/kernel block_0/mlp/dense_2/bias
        norm/gamma norm/beta pre_logits/kernel pre_logits/bias head/kernel head/bias
    """.split()
    model = tiny_vit(depth=1, representation_size=4)
    assert sorted(v.path for v in model.weights) == sorted(expected)
    assert tuple(model.get_layer("block_0").attention.query.kernel.shape) == (8, 2, 4)
    assert tuple(model.get_layer("block_0").attention.out.kernel.shape) == (2, 4, 8)


def test_stochastic_depth_grows_linearly():
    model = tiny_vit(depth=3, stochastic_depth=0.3)
    blocks = [model.get_layer(f"block_{i}") for i in range(3)]
    for name in ("drop_path_1", "drop_path_2"):
        assert [getattr(block, name).rate for block in blocks] == pytest.approx([0, 0.15, 0.3])


def test_one_rate_of_dropout_reaches_every_place():
    model = tiny_vit(depth=1, dropout=0.25, attention_dropout=0.5)
    encoder, block = model.get_layer("patch_encoder"), model.get_layer("block_0")
    places = (encoder.dropout, block.dropout, block.mlp.dropout_1, block.mlp.dropout_2)
    assert [place.rate for place in places] == [0.25] * 4
    assert block.attention.dropout.rate == 0.5


EVERY_OPTION = {"image_size": (16, 24), "patch_size": (8, 4), "num_classes": 4, "channels": 2}
EVERY_OPTION |= {**EVERYTHING, "mlp_dim": 12, "name": "everything"}


@pytest.mark.parametrize("options", [EVERY_OPTION, *(options for options, _ in MODELS.values())])
def test_config_round_trip(options):
    model = tiny_vit(**options)
    config = json.loads(json.dumps(model.get_config()))
    twin = VisionTransformer.from_config(config)
    assert json.loads(json.dumps(twin.get_config())) == config
    assert [(v.path, v.shape) for v in twin.weights] == [(v.path, v.shape) for v in model.weights]
    assert twin.variant == model.variant
    for name in set(options) - {"position", "include_top", "dtype"}:
        assert model.get_config()[name] == options[name], name


def test_no_images_give_no_logits():
    assert tuple(forward(tiny_vit(), images((0, 16, 16, 3))).shape) == (0, 3)


@pytest.mark.parametrize("options", [{"remat": True}, {"variable_size": True}])
def test_what_has_no_weights_changes_no_weights_of_a_seed(options):
    """Each initializer draws a seed, on which those of all later layers depend."""
    weights = []
    for each in ({}, options):
        keras.utils.set_random_seed(0)
        weights.append(values(tiny_vit(**each)))
    plain, other = weights
    assert all((other[path] == value).all() for path, value in plain.items())
