"""Pooling, pre-logits and the linear head (Eq. 4, section 3.1)."""

import re

import numpy as np
import pytest

from keras_vit.layers import TokenPool
from tests.support import assert_close, forward, images, refuses, tiny_vit, to_numpy

X = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")


def test_the_mean_leaves_the_class_token_out():
    other = X.copy()
    other[:, 0] = 100.0
    pool = TokenPool("mean", class_token=True)
    assert_close(pool(X), pool(other), 0)
    assert_close(pool(X), X[:, 1:].mean(axis=1), 1e-6)
    assert_close(TokenPool("mean", class_token=False)(X), X.mean(axis=1), 1e-6)
    assert_close(TokenPool("first", class_token=False)(X), X[:, 0], 0)


def test_the_mean_of_many_bfloat16_tokens():
    """A sum in bfloat16 would stop growing at 256."""
    x = np.ones((1, 2001, 8), "float32")
    assert_close(TokenPool("mean", True, dtype="mixed_bfloat16")(x), np.ones((1, 8)), 0)


@pytest.mark.parametrize("pool, class_token", [("max", True), (None, True), ("map", False)])
def test_pools_that_do_not_exist(pool, class_token):
    refuses(re.escape(f"Received: pool={pool!r}"), TokenPool, pool, class_token)


@pytest.mark.parametrize(
    "pool, bias", [("token", 0.0), ("token", -6.9), ("map", -6.9), (None, -6.9)]
)
def test_fresh_logits_are_the_bias_of_the_head(pool, bias):
    model = tiny_vit(pool=pool, head_bias=bias, depth=1)
    logits = to_numpy(forward(model, images()))
    np.testing.assert_array_equal(logits, np.full_like(logits, bias))
