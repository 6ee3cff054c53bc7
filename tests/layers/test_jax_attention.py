"""On JAX's CPU the heads, and queries, of long sequences come one part after the other."""

import keras
import numpy as np
import pytest

from tests.layers.test_fast_paths import test_equals_its_twin as equals_its_twin

if keras.backend.backend() != "jax":
    pytest.skip("of JAX's own functions", allow_module_level=True)

import jax

from keras_vit.layers import fast_jax, kernels

ONE = 5 * 6 * 4  # bytes of a matrix of scores of the case "attention", which has 2 x 3


@pytest.mark.parametrize(
    "at_once, parts",
    [(ONE, 6), (2 * ONE, 3), (3 * ONE, 2), (5 * ONE, 2), (6 * ONE, 1)],
)
def test_any_number_of_parts_gives_the_same(at_once, parts, monkeypatch):
    monkeypatch.setattr(fast_jax, "AT_ONCE", at_once)
    monkeypatch.setattr(fast_jax, "SMALL", 0)
    assert fast_jax.number_of_parts(2, 3, 5, 6) == (parts, 1)
    equals_its_twin("attention", "float32", 1e-5, monkeypatch)


@pytest.mark.parametrize("at_once, parts", [(ONE - 1, 2), (2 * ONE / 5, 3), (1, 5)])
def test_queries_of_large_heads_come_in_parts(at_once, parts, monkeypatch):
    monkeypatch.setattr(fast_jax, "AT_ONCE", at_once)
    monkeypatch.setattr(fast_jax, "SMALL", 0)
    assert fast_jax.number_of_parts(2, 3, 5, 6) == (6, parts)
    equals_its_twin("attention", "float32", 1e-5, monkeypatch)


def test_images_of_the_usual_size_are_not_cut():
    assert fast_jax.number_of_parts(8, 12, 197, 197) == (1, 1)
    assert fast_jax.number_of_parts(64, 12, 362, 362) == (1, 1)


def test_what_is_cut_over_devices_or_of_open_size_stays_whole(monkeypatch):
    sizes = (8, 12, 577, 577)
    assert fast_jax.number_of_parts(*sizes) == (32, 1)
    open_batch = jax.export.symbolic_shape("batch")[0]
    assert fast_jax.number_of_parts(open_batch, *sizes[1:]) == (1, 1)
    monkeypatch.setattr(keras.distribution, "distribution", object)
    assert fast_jax.number_of_parts(*sizes) == (1, 1)


@pytest.mark.parametrize("of_heads, of_queries", [(8, 1), (16, 4)])
def test_a_training_step_keeps_no_scores(of_heads, of_queries, monkeypatch):
    shape, scores = (2, 256, 8, 16), 2 * 8 * 256 * 256 * 4

    def taken():
        gradient = jax.grad(lambda x: kernels.attention(x, x, x).sum())
        compiled = jax.jit(gradient).lower(np.zeros(shape, np.float32)).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    whole = taken()
    monkeypatch.setattr(fast_jax, "AT_ONCE", scores // of_heads // of_queries)
    monkeypatch.setattr(fast_jax, "SMALL", 0)
    assert fast_jax.number_of_parts(2, 8, 256, 256) == (of_heads, of_queries)
    assert whole > scores
    assert taken() < whole / 3
