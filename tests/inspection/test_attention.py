"""Attention weights and maps are what the model computes, and looking changes nothing."""

import re

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.inspection import attention_maps, attention_weights, probe_maps
from tests import definitions
from tests.inspection.cases import case, oracle_model, random_vit
from tests.support import assert_close, every_backend, forward, images, refuses, to_numpy, values

pytestmark = pytest.mark.any_backend

CASE = case("token_p8")


def by_hand(model, x, block, **positions):
    """A of Eq. 6 in NumPy, from the tokens that enter the block."""
    entering = keras.tree.flatten(model.get_layer(f"block_{block}").input)[0]
    tokens = to_numpy(forward(keras.Model(model.input, entering), x))
    weights = definitions.below(values(model), f"block_{block}")
    if model.variant.block != "post_norm":
        tokens = definitions.norm(definitions.below(weights, "norm_1"), tokens)
    attention = definitions.below(weights, "attention")
    return definitions.attention_parts(attention, tokens, **positions)[1]


def turned_by(model, block, grid):
    """The function that turns queries and keys of a model with rotary positions."""
    v, (rows, columns) = model.variant, np.mgrid[: grid[0], : grid[1]].reshape(2, -1, 1, 1)
    if v.rotary.learned:  # "mixed", where columns come first
        first, second = values(model)[f"rotary_{block}/frequencies"]
        angles = columns * first + rows * second
    else:
        angles = definitions.angles(grid, v.width // v.num_heads, v.rotary)[:, None]
    angles = np.pad(angles, ((v.learned_tokens, 0), (0, 0), (0, 0)))
    return lambda x: definitions.rotated(x, angles, v.rotary.pairs)


@every_backend
def test_weights_of_the_authors_code():
    weights = attention_weights(oracle_model("token_p8"), CASE.io["input"])
    assert [a.shape for a in weights] == [(3, 4, 17, 17)] * 3
    for i, attention in enumerate(weights):
        assert_close(attention, CASE.io[f"attn_f64/{i}"], 3e-6)


def test_weights_with_relative_positions():
    model = random_vit(position="relative")
    for i, attention in enumerate(attention_weights(model, images())):
        table = values(model)[f"position_{i}/embedding"]
        assert_close(attention, by_hand(model, images(), i, distances=table), 3e-6)


ROTARY = {"position": "none", "norm": "rms_norm", "qk_norm": "layer_norm", "distillation": True}
ROTARY |= {"registers": 2, "pre_norm": "layer_norm", "rotary": "dinov3", "patch_dropout": 0.5}


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({**ROTARY, "image_size": (16, 24)}, marks=every_backend),
        {"rotary": "mixed", "block": "parallel"},
        {"rotary": "eva02", "variable_size": True},
    ],
    ids=["dinov3", "mixed", "eva02"],
)
def test_weights_with_rotary_positions(options):
    model = random_vit(**options)
    grid = (3, 2) if model.variable_size else model.grid
    x = images((2, 8 * grid[0], 8 * grid[1], 3))
    for i, attention in enumerate(attention_weights(model, x)):
        assert_close(attention, by_hand(model, x, i, turn=turned_by(model, i, grid)), 3e-6)


def test_weights_of_a_post_norm_block_with_biases_of_offsets():
    model = random_vit(position="relative_2d", block="post_norm")
    model, x = keras_vit.resize(model, (16, 24)), images((2, 16, 24, 3))
    assert attention_maps(model, x).shape == (2, 2, 3)
    for i, attention in enumerate(attention_weights(model, x)):
        table = definitions.below(values(model), f"position_{i}")
        bias = definitions.relative_2d(table, 2, (2, 3), True)
        assert_close(attention, by_hand(model, x, i, bias=bias), 3e-6)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=every_backend),
        {"dtype": "mixed_bfloat16"},
        {"pool_patches": True, "pool_heads": 4},
    ],
)
def test_the_probe_of_attention_pooling(options):
    model = random_vit(pool="map", class_token=False, registers=1, image_size=(16, 24), **options)
    x = images((3, 16, 24, 3))
    pool = model.get_layer("pool")
    tokens = to_numpy(forward(keras.Model(model.input, pool.input), x)).astype("float32")
    weights = definitions.below(values(model), "pool")
    probe = np.broadcast_to(weights["probe"], (3, 1, tokens.shape[-1]))
    attention = definitions.below(weights, "attention")
    seen = tokens[:, 1:] if "pool_patches" in options else tokens
    expected = definitions.attention_parts(attention, probe, memory=seen)[1]
    maps = probe_maps(model, x, heads=None, batch_size=2)
    tolerance = 0.02 if "dtype" in options else 3e-6
    columns = model.image_size[1] // model.variant.stride[1]
    assert maps.shape[-1] == columns
    assert_close(maps, expected[:, :, 0, -6:].reshape(maps.shape), tolerance)
    assert_close(probe_maps(model, x), maps.mean(axis=1), 1e-6)


def test_choice_of_blocks_and_no_change_of_the_model():
    model = random_vit()
    before, outputs = values(model), to_numpy(forward(model, images()))
    first, second = attention_weights(model, images())
    assert_close(second, by_hand(model, images(), 1), 3e-6)
    for blocks, expected in (
        ([0], [first]),
        ([-1], [second]),
        ((-2, 1), [first, second]),
        ([1, 0, 1], [second, first, second]),
        (iter([1, 0]), [second, first]),
    ):
        for a, b in zip(attention_weights(model, images(), blocks), expected, strict=True):
            assert_close(a, b, 0)
    assert_close(forward(model, images()), outputs, 0)
    for path, value in values(model).items():
        assert_close(value, before[path], 0)


@every_backend
def test_changes_of_the_weights_are_seen():
    model = random_vit(depth=1, name="changes")
    (before,) = attention_weights(model, images())
    query = model.get_layer("block_0").attention.query
    query.bias.assign(query.bias + 1)
    (moved,) = attention_weights(model, images())
    query.enable_lora(1)  # more variables than before
    query.lora_kernel_b.assign(query.lora_kernel_b + 1)
    (adapted,) = attention_weights(model, images())
    assert np.abs(moved - before).max() > 1e-3 and np.abs(adapted - moved).max() > 1e-3
    block = model.get_layer("block_0")
    tokens = forward(keras.Model(model.input, block.input), images())
    assert_close(adapted, block.attention_scores(tokens), 3e-6)


def test_blocks_and_probes_that_do_not_exist():
    for blocks in ([2], [-3], [0, 5]):
        message = f"2 Transformer blocks, so indices go from -2 to 1. Received: blocks={blocks}"
        refuses(re.escape(message), attention_weights, random_vit(), images(), blocks)
    for blocks in (1, np.int64(1), 1.5, "01", ["a"], [1.5], np.array(1)):
        message = f"a list of at least one index, or be None. Received: blocks={blocks}."
        refuses(re.escape(message), attention_weights, random_vit(), images(), blocks)
    dense = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    refuses("0 Transformer blocks", attention_weights, dense, np.zeros((1, 4)))
    no_probe = r'attention_maps.*has no attention pooling .pool="map"'
    refuses(no_probe, probe_maps, random_vit(), images())
