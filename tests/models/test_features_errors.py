"""Blocks that are not there, and features that a model cannot give."""

import keras
import pytest

import keras_vit
from tests.models.test_features import naflex
from tests.support import refuses, tiny_bit, tiny_vit

pytestmark = pytest.mark.any_backend


def ensemble():
    x = keras.Input((16, 16, 3))
    return keras.Model(x, [tiny_vit(name=name)(x) for name in ("left", "right")])


def cut_off():
    model = tiny_vit()
    return keras.Model(model.input, model.get_layer("block_0").output)


@pytest.mark.parametrize(
    "blocks", [[], [0, 0], [1, -1], [2], [-3], 0, 3, "last", [1.0], [True], True, 1.5, {0}, [[0]]]
)
def test_blocks_that_are_not_there(blocks):
    refuses(r"has 2 blocks\. Received: blocks=", keras_vit.features, tiny_vit(), blocks=blocks)


@pytest.mark.parametrize(
    "make, options, message",
    [
        (tiny_vit, {"layer": "norm", "blocks": [0]}, "name of a layer, or blocks"),
        (tiny_vit, {"layer": [0]}, r"blocks=\[2, 5\]\. Received: layer=\[0\]"),
        (tiny_vit, {"as_maps": False, "norm": True}, r"as_maps and norm speak of blocks"),
        (lambda: tiny_vit(patch_dropout=0.5), {"blocks": 1}, "patch_dropout=0"),
        (
            lambda: tiny_vit(pool="mean", class_token=False),
            {"blocks": 1, "learned_tokens": True},
            "no class",
        ),
        (
            lambda: keras_vit.merge_tokens(tiny_vit(image_size=32), 2),
            {"blocks": 1},
            r"merge_tokens\(model, 0",
        ),
        (tiny_bit, {"blocks": 1, "attention": True}, "stages of a BiT give maps alone"),
        (tiny_bit, {"blocks": 1, "as_maps": False}, "stages of a BiT give maps alone"),
        (naflex, {"blocks": 1}, "as_maps=False"),
        (naflex, {"blocks": 1, "as_maps": False, "attention": True}, "padding"),
        (
            lambda: keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]),
            {"blocks": 1},
            "has none",
        ),
        (ensemble, {"blocks": 1}, r"has 2 networks.*'left'.*'right'"),
        (cut_off, {"blocks": [0]}, "no such layer; choose norm=False"),
    ],
)
def test_features_that_cannot_be(make, options, message):
    refuses(message, keras_vit.features, make(), **options)
