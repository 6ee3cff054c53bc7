"""Whom a reader believes: the caller, the config, the catalogue, the arrays, the custom."""

import pytest

from keras_vit.extensions import BIASES
from keras_vit.weights.architecture import QKV, smallest_fitting
from keras_vit.weights.evidence import ARRAYS, CALLER, CATALOGUE, CONFIG, CUSTOM, ORDER, Evidence

pytestmark = pytest.mark.any_backend


@pytest.mark.parametrize("first", ORDER)
@pytest.mark.parametrize("second", ORDER)
def test_the_source_that_counts_most_whoever_speaks_first(first, second):
    evidence = Evidence()
    evidence.add(first, gelu=first)
    evidence.add(second, gelu=second)
    winner = min(first, second, key=ORDER.index)
    assert (evidence["gelu"], evidence.source_of("gelu")) == (winner, winner)


def test_what_the_report_says_of_each_source():
    evidence = Evidence()
    for source, field in zip(ORDER, ("num_heads", "epsilon", "pool", "width", "gelu")):
        evidence.add(source, **{field: 1})
    evidence.add(ARRAYS, "positions that make a square", image_size=16)
    evidence.add(CONFIG, "", layer_scale=0.1)
    assert evidence.assumed == {
        "num_heads": "num_heads as given",
        "epsilon": "its config.json",
        "pool": "the catalogue",
        "gelu": "the family's, as no config.json says it",
        "image_size": "positions that make a square",
    }


def test_a_wish_of_the_caller_is_no_evidence_of_the_file():
    evidence = Evidence({"gelu": "tanh", "position": "none"})
    evidence.add(CUSTOM, gelu="erf")
    assert dict(evidence) == {"gelu": "erf"}
    evidence.add(CALLER, position=evidence.caller["position"])
    assert evidence["position"] == "none"


def test_what_is_settled_counts_whoever_says_otherwise():
    evidence = Evidence()
    evidence.add(CALLER, image_size=32)
    evidence.settle(ARRAYS, image_size=16)
    assert evidence["image_size"] == 16 and evidence.assumed == {}
    evidence.add(CATALOGUE, image_size=24)
    assert evidence["image_size"] == 24


def test_contradictions_are_of_what_the_arrays_show():
    evidence = Evidence()
    evidence.add(ARRAYS, width=8, patch_size=(4, 4), pool="token")
    evidence.config = {"hidden_size": 16, "patch": 4, "patches": [4, 2], "pooling": "mean"}
    fields = {
        "hidden_size": "width",
        "patch": "patch_size",
        "patches": "patch_size",
        "pooling": "pool",
    }
    assert evidence.contradictions(fields) == {
        "hidden_size": (16, 8),
        "patches": ([4, 2], (4, 4)),
    }
    assert evidence.from_config("width") is None


@pytest.mark.parametrize("qkv_bias", [True, False])
@pytest.mark.parametrize("biases", BIASES)
def test_the_fewest_biases_that_hold_those_of_a_file(biases, qkv_bias):
    names = set(BIASES[biases]) - (set() if qkv_bias else QKV)
    found = smallest_fitting(names)
    assert set(BIASES[found[0]]) - (set() if found[1] else QKV) == names
    for name in names:
        biases, qkv_bias = smallest_fitting({name})
        assert name in set(BIASES[biases]) - (set() if qkv_bias else QKV)
