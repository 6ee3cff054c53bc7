"""Attention distance is the public code's, and what can be worked out by hand."""

import re

import numpy as np
import pytest

import keras_vit
from keras_vit.inspection import attention_distance, attention_distances
from tests.inspection.cases import GRIDS, PATCHES, analysis, case, oracle_model, random_vit
from tests.support import assert_close, images, refuses

KINDS = {"distance_keras_io": False, "distance_renormalised": True}


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("kind", KINDS)
def test_distances_of_the_oracle(name, kind):
    expected, grid = analysis(name), (GRIDS[name],) * 2
    found = attention_distance(expected["attn"], grid, PATCHES[name], KINDS[kind])
    assert_close(found, expected[kind], 1e-5)
    if KINDS[kind] and name == "token_p8":  # the mean over images, as in the paper
        assert_close(found.mean(axis=1), expected["distance_paper_mean_over_images"], 1e-5)
    model = oracle_model(name)
    found = attention_distances(model, case(name).io["input"], renormalize=KINDS[kind])
    assert_close(found, expected[kind], 1e-4)


@pytest.mark.any_backend
def test_uniform_attention_and_that_to_oneself_by_hand():
    """Two rows of 10 pixels, one column: each patch sees itself and the other."""
    assert_close(attention_distance(np.eye(7), (2, 3), 16), np.zeros(()), 0)
    assert_close(attention_distance(np.full((2, 2), 0.5), (2, 1), (10, 3)), np.array(5.0), 1e-12)
    # 2 x 2 patches of 3 x 4 pixels: distances 0, 3, 4 and 5 from each.
    assert_close(attention_distance(np.full((4, 4), 0.25), (2, 2), (3, 4)), np.array(3.0), 1e-12)


@pytest.mark.any_backend
def test_a_class_token_counts_as_no_distance_or_not_at_all():
    weights = np.full((5, 5), 0.2)
    assert_close(attention_distance(weights, (2, 2), (3, 4), True), np.array(3.0), 1e-12)
    assert_close(attention_distance(weights, (2, 2), (3, 4), False), np.array(2.4), 1e-12)
    only_class = np.eye(5)[[0, 0, 0, 0, 0]]
    assert_close(attention_distance(only_class, (2, 2), 8), np.array(0.0), 0)


@pytest.mark.any_backend
def test_batches_give_what_one_call_gives():
    model, x = random_vit(registers=1), images((5, 16, 16, 3))
    at_once = attention_distances(model, x)
    assert at_once.shape == (2, 5, 2)
    assert_close(attention_distances(model, x, batch_size=2), at_once, 1e-5)
    assert_close(attention_distances(model, x, [-1]), at_once[1:], 1e-5)


@pytest.mark.any_backend
def test_a_hybrid_measures_in_pixels_of_the_image():
    """Its patches stand 8 pixels apart, whatever their size in the feature map."""
    model = random_vit(image_size=32, patch_size=2, stem=(), stem_width=0.5)
    assert model.grid == (4, 4)
    weights = keras_vit.inspection.attention_weights(model, images((2, 32, 32, 3)))
    expected = [attention_distance(a, (4, 4), 8) for a in weights]
    assert_close(attention_distances(model, images((2, 32, 32, 3))), np.stack(expected), 1e-6)


@pytest.mark.any_backend
@pytest.mark.parametrize("shape", [(4,), (3, 4), (3, 3)])
def test_what_is_no_attention(shape):
    refuses(re.escape(f"Received: shape {shape}"), attention_distance, np.ones(shape), (2, 2), 8)
