"""Freezing by pattern."""

import re

import keras
import numpy as np
import pytest

from keras_vit import training
from keras_vit.training.freeze import paths
from tests.support import images, randomize, refuses, tiny_vit, values

LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
# pattern -> what it selects, as a test on the path
PATTERNS = {
    "patch_encoder": lambda p: p.startswith("patch_encoder/"),
    "block_[0-0]": lambda p: p.startswith("block_0/"),
    "block_0/*": lambda p: p.startswith("block_0/"),
    "*/attention/*": lambda p: "/attention/" in p,
    "attention": lambda p: "/attention/" in p,
    "block_*/attention/query": lambda p: "/attention/query/" in p,
    "**/bias": lambda p: p.endswith("/bias"),
    "bias": lambda p: p.endswith("/bias"),
    "block_?/mlp/dense_1/kernel": lambda p: p.endswith("mlp/dense_1/kernel"),
    "*": lambda p: True,
}


def frozen(model):
    return {path for path, v in paths(model).items() if not v.trainable}


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_a_pattern_freezes_what_it_selects_and_unfreezes_it(pattern):
    model, selects = tiny_vit(), PATTERNS[pattern]
    expected = {path for path in paths(model) if selects(path)}
    summary = training.freeze(model, pattern)
    assert frozen(model) == expected == set(summary.changed)
    assert len(model.trainable_variables) == len(paths(model)) - len(expected)
    assert summary.frozen == sum(np.prod(paths(model)[path].shape) for path in expected)
    assert summary.frozen + summary.trainable == model.count_params()
    assert set(training.unfreeze(model, pattern).changed) == expected
    assert frozen(model) == set() and model.get_layer("block_0").trainable


def test_patterns_take_back_what_others_select_and_add_up():
    model = tiny_vit()
    training.freeze(model, ["*", "!head", "!block_1/norm_2"])
    kept = {p for p in paths(model) if p.startswith(("head/", "block_1/norm_2/"))}
    assert frozen(model) == set(paths(model)) - kept and kept
    # A name is not the beginning of another.
    model = tiny_vit(depth=11)
    training.freeze(model, "block_1")
    assert {path.split("/")[0] for path in frozen(model)} == {"block_1"}
    model = tiny_vit()
    training.freeze(model, ["patch_encoder", "block_*"])
    training.unfreeze(model, "block_1")
    training.freeze(model, "block_1/norm_1")
    expected = {p for p in paths(model) if p.startswith(("patch_", "block_0/", "block_1/norm_1/"))}
    assert frozen(model) == expected
    assert not model.get_layer("block_0").trainable
    assert model.get_layer("block_1").trainable
    trained = {p for p in paths(model) if p.startswith("block_1/")} - expected
    assert {v.path for v in model.get_layer("block_1").trainable_variables} == trained


def test_training_moves_only_what_is_not_frozen():
    model = randomize(tiny_vit())
    training.freeze(model, ["patch_encoder", "block_0", "block_1/attention/query"])
    kept, before = frozen(model), values(model)
    model.compile(keras.optimizers.SGD(0.1), LOSS)
    model.fit(images(), np.arange(4) % 3, verbose=0)
    moved = {path for path, value in values(model).items() if (value != before[path]).any()}
    # No gradient reaches the bias of the keys: it shifts all scores of a query alike.
    assert not moved & kept
    assert set(before) - kept - moved <= {"block_1/attention/key/bias"}


def test_a_saved_model_keeps_parts_of_layers_frozen(tmp_path):
    model = tiny_vit()
    training.freeze(model, ["attention", "block_0/mlp", "norm"])
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert frozen(loaded) == frozen(model) != set()
    assert set(training.unfreeze(loaded).changed) == frozen(model)


def test_other_models_and_their_moving_averages():
    normal = keras.layers.BatchNormalization(name="bn")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), normal])
    training.freeze(model, "bn")
    assert not model.get_layer("bn").trainable  # it then uses its moving averages
    training.unfreeze(model)
    still = [v.path.split("/")[-1] for v in model.non_trainable_weights]
    assert still == ["moving_mean", "moving_variance"]


def test_a_layer_of_moving_averages_alone_goes_on_with_them():
    normal = keras.layers.BatchNormalization(center=False, scale=False, name="bn")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="dense"), normal])
    training.freeze(model, "dense")
    assert normal.trainable and not model.get_layer("dense").trainable
    normal.trainable = False
    training.unfreeze(model)
    assert not normal.trainable and model.get_layer("dense").trainable


def test_the_summary_is_a_table():
    model = tiny_vit()
    model.compile("sgd", LOSS)
    text = str(training.freeze(model, "block_0"))
    block = sum(np.prod(v.shape) for v in model.get_layer("block_0").weights)
    assert ["block_0", f"{block:,}", "0"] in [line.split() for line in text.splitlines()]
    assert "compile it again" in text
    assert "compile" not in str(training.freeze(model, "block_0"))


def test_what_selects_nothing_is_refused():
    near = {"blok_0": "block_0", "block_0/atention/*": "block_0/attention", "qqq": "patch_encoder"}
    for pattern, nearest in near.items():
        model, told = tiny_vit(), f"selects nothing.*{re.escape(pattern)}.*'{nearest}"
        refuses(told, training.freeze, model, ["head", pattern])
        assert frozen(model) == set()
    refuses("not built", training.freeze, keras.Sequential([keras.layers.Dense(2)]), "dense")
