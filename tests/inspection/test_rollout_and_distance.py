"""Rollout and attention distance are what their definitions and the public code say."""

import re

import numpy as np
import pytest

from keras_vit.inspection import (
    attention_distance,
    attention_distances,
    attention_weights,
    rollout,
    rollout_maps,
)
from tests.inspection.cases import GRIDS, PATCHES, analysis, case, oracle_model, random_vit
from tests.support import assert_close, every_backend, images, refuses

pytestmark = pytest.mark.any_backend


def random_attention(blocks=3, batch=2, heads=4, tokens=7, seed=0):
    rng = np.random.default_rng(seed)
    return list(rng.dirichlet(np.ones(tokens), (blocks, batch, heads, tokens)))


@every_backend
@pytest.mark.parametrize("name", GRIDS)
def test_rollout_of_the_oracle(name):
    expected = analysis(name)
    joint = rollout(expected["attn"])
    assert_close(joint, expected["rollout_joint"], 1e-7)
    model = oracle_model(name)
    assert_close(rollout(attention_weights(model, case(name).io["input"])), joint, 3e-6)
    maps = rollout_maps(model, case(name).io["input"], batch_size=2)
    assert_close(maps, expected["rollout_cls_mask"], 3e-6)


@pytest.mark.parametrize("heads", ["mean", "min", "max"])
def test_fusions_by_hand(heads):
    first, second = random_attention(blocks=2)
    steps = []
    for attention in (first, second):
        one = getattr(np, heads)(attention, axis=1) + np.eye(7)
        steps.append(one / one.sum(axis=2, keepdims=True))
    joint = rollout([first, second], heads)
    assert_close(joint, np.matmul(steps[1], steps[0]), 1e-12)
    assert np.abs(joint - np.matmul(steps[0], steps[1])).max() > 0.01
    assert_close(joint.sum(axis=-1), np.ones((2, 7)), 1e-12)
    assert (joint >= 0).all()


@pytest.mark.parametrize("pool, registers", [("token", 0), ("token", 3), ("mean", 0), ("mean", 2)])
def test_maps_with_registers_on_a_grid_that_is_not_square(pool, registers):
    model = random_vit(image_size=(8, 24), patch_size=(4, 8), pool=pool, registers=registers)
    x = images((3, 8, 24, 3))
    joint = rollout(attention_weights(model, x))
    learned = registers + (pool == "token")
    first = joint[:, 0] if pool == "token" else joint[:, learned:].mean(axis=1)
    maps = rollout_maps(model, x)
    assert maps.shape == (3, 2, 3)
    assert_close(maps.reshape(3, 6), first[:, learned:], 1e-6)
    assert_close(maps.sum(axis=(1, 2)) + first[:, :learned].sum(axis=1), np.ones(3), 1e-6)
    of_one_patch = rollout_maps(model, x, query=(1, 2))
    assert_close(of_one_patch.reshape(3, 6), joint[:, learned + 5, learned:], 1e-6)


def test_rollout_of_the_last_blocks():
    model = random_vit(depth=3)
    last = rollout(attention_weights(model, images(), [1, 2]))
    assert_close(rollout_maps(model, images(), blocks=[1, 2]).ravel(), last[:, 0, 1:].ravel(), 1e-6)


def test_what_is_no_attention_and_has_no_distance():
    for weights, heads, message in (
        ([], "mean", "at least one block. Received: none"),
        ([np.eye(3)], "mean", "Received: shape (3, 3)"),
        ([np.ones((1, 1, 2, 3))], "mean", "Received: shape (1, 1, 2, 3)"),
        (random_attention(), "median", "Received: heads='median'"),
    ):
        refuses(re.escape(message), rollout, weights, heads)
    for shape in ((4,), (3, 4), (3, 3)):
        received = re.escape(f"Received: shape {shape}")
        refuses(received, attention_distance, np.ones(shape), (2, 2), 8)


KINDS = {"distance_keras_io": False, "distance_renormalised": True}


@every_backend
@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("kind", KINDS)
def test_distances_of_the_oracle(name, kind):
    expected, grid = analysis(name), (GRIDS[name],) * 2
    found = attention_distance(expected["attn"], grid, PATCHES[name], KINDS[kind])
    assert_close(found, expected[kind], 1e-5)
    if KINDS[kind] and name == "token_p8":  # the mean over images, as in the paper
        assert_close(found.mean(axis=1), expected["distance_paper_mean_over_images"], 1e-5)
    model = oracle_model(name)
    options = {"renormalize": KINDS[kind], "batch_size": 2}  # of three images
    found = attention_distances(model, case(name).io["input"], **options)
    assert_close(found, expected[kind], 1e-4)
    last = attention_distances(model, case(name).io["input"], [-1], **options)
    assert_close(last, found[-1:], 1e-5)


def test_uniform_attention_and_that_to_oneself_by_hand():
    """Two rows of 10 pixels, one column: each patch sees itself and the other."""
    assert_close(attention_distance(np.eye(7), (2, 3), 16), np.zeros(()), 0)
    assert_close(attention_distance(np.full((2, 2), 0.5), (2, 1), (10, 3)), np.array(5.0), 1e-12)
    # 2 x 2 patches of 3 x 4 pixels: distances 0, 3, 4 and 5 from each.
    assert_close(attention_distance(np.full((4, 4), 0.25), (2, 2), (3, 4)), np.array(3.0), 1e-12)
    # A class token counts as no distance, or not at all.
    weights = np.full((5, 5), 0.2)
    assert_close(attention_distance(weights, (2, 2), (3, 4), True), np.array(3.0), 1e-12)
    assert_close(attention_distance(weights, (2, 2), (3, 4), False), np.array(2.4), 1e-12)
    only_class = np.eye(5)[[0, 0, 0, 0, 0]]
    assert_close(attention_distance(only_class, (2, 2), 8), np.array(0.0), 0)


def test_a_hybrid_measures_in_pixels_of_the_image():
    """Its patches stand 8 pixels apart, whatever their size in the feature map."""
    model = random_vit(image_size=32, patch_size=2, stem=(), stem_width=0.5)
    assert model.grid == (4, 4)
    weights = attention_weights(model, images((2, 32, 32, 3)))
    expected = [attention_distance(a, (4, 4), 8) for a in weights]
    assert_close(attention_distances(model, images((2, 32, 32, 3))), np.stack(expected), 1e-6)
