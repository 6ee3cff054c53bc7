"""Whom a reader believes: the caller, the config, the catalogue, the arrays, the custom."""

import functools

import pytest

from keras_vit.extensions import BIASES
from keras_vit.weights.canonical import QKV, smallest_fitting
from keras_vit.weights.model_arguments import (
    ARRAYS,
    CALLER,
    CATALOGUE,
    CONFIG,
    CUSTOM,
    ORDER,
    Arguments,
    find_image_size,
)
from tests.support import refuses

pytestmark = pytest.mark.any_backend


@pytest.mark.parametrize("first", ORDER)
@pytest.mark.parametrize("second", ORDER)
def test_the_source_that_counts_most_whoever_speaks_first(first, second):
    arguments = Arguments()
    arguments.add(first, gelu=first)
    arguments.add(second, gelu=second)
    winner = min(first, second, key=ORDER.index)
    assert (arguments["gelu"], arguments.source_of("gelu")) == (winner, winner)


def test_what_the_report_says_of_each_source():
    arguments = Arguments()
    for source, field in zip(ORDER, ("num_heads", "epsilon", "pool", "width", "gelu")):
        arguments.add(source, **{field: 1})
    arguments.add(ARRAYS, "positions that make a square", image_size=16)
    arguments.add(CONFIG, "", layer_scale=0.1)
    assert arguments.assumed == {
        "num_heads": "num_heads as given",
        "epsilon": "its config.json",
        "pool": "the catalogue",
        "gelu": "the family's, as no config.json says it",
        "image_size": "positions that make a square",
    }


def test_a_wish_of_the_caller_is_no_evidence_of_the_file():
    arguments = Arguments({"gelu": "tanh", "position": "none"})
    arguments.add(CUSTOM, gelu="erf")
    assert dict(arguments) == {"gelu": "erf"}
    arguments.add(CALLER, position=arguments.caller["position"])
    assert arguments["position"] == "none"


def test_what_is_settled_counts_whoever_says_otherwise():
    arguments = Arguments()
    arguments.add(CALLER, image_size=32)
    arguments.override(ARRAYS, image_size=16)
    assert arguments["image_size"] == 16 and arguments.assumed == {}
    arguments.add(CATALOGUE, image_size=24)
    assert arguments["image_size"] == 24


def test_contradictions_are_of_what_the_arrays_show():
    arguments = Arguments()
    arguments.add(ARRAYS, width=8, patch_size=(4, 4), pool="token")
    config = {"hidden_size": 16, "patch": 4, "patches": [4, 2], "pooling": "mean"}
    fields = {
        "hidden_size": "width",
        "patch": "patch_size",
        "patches": "patch_size",
        "pooling": "pool",
    }
    found = [key for key, field in fields.items() if arguments.contradicts(field, config[key])]
    assert found == ["hidden_size", "patches"]
    assert arguments.from_config("width") is None


@pytest.mark.parametrize("qkv_bias", [True, False])
@pytest.mark.parametrize("biases", BIASES)
def test_the_fewest_biases_that_hold_those_of_a_file(biases, qkv_bias):
    names = set(BIASES[biases]) - (set() if qkv_bias else QKV)
    found = smallest_fitting(names)
    assert set(BIASES[found[0]]) - (set() if found[1] else QKV) == names
    for name in names:
        biases, qkv_bias = smallest_fitting({name})
        assert name in set(BIASES[biases]) - (set() if qkv_bias else QKV)


@pytest.mark.parametrize("of_offsets, square, wide", [(False, 16, 24), (True, 49, 77)])
def test_the_image_size_of_a_table_of_positions(of_offsets, square, wide):
    """Of 4 x 4 and of 4 x 6 patches, or of the offsets between two of them."""

    def size_of(count, configured=None, **caller):
        arguments = Arguments(caller)
        arguments.update(patch_size=(16, 16), stem=None)
        arguments.add(CONFIG, **({"image_size": configured} if configured else {}))
        return find_image_size(count, arguments, of_offsets=of_offsets)[:2]

    assert size_of(square) == ((64, 64), ARRAYS)
    assert size_of(wide, file_image_size=(64, 96)) == ((64, 96), CALLER)
    assert size_of(wide, configured=(96, 64)) == ((96, 64), CONFIG)
    assert size_of(wide, image_size=(64, 96)) == ((64, 96), CALLER)
    assert size_of(square, image_size=224) == ((64, 64), ARRAYS), "which is to be resized"
    refused = functools.partial(refuses, function=size_of)
    refused(rf"for {wide} .*patches, which make no square.*file_image_size=", count=wide)
    refused(r"file_image_size says .*grid of \(4, 4\)", count=wide, file_image_size=64)
    refused(r"its config.json says .*grid of \(4, 4\)", count=wide, configured=64)
