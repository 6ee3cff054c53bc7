"""Multi-head self-attention (Eq. 5 to 8); the harness compares its outputs with NumPy."""

import numpy as np
import pytest

from keras_vit.layers import MultiHeadSelfAttention, RelativeAttention, kernels
from tests import definitions
from tests.support import assert_close, dtype_of, forward, precision, randomize, to_numpy, values

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 5, 8)).astype("float32")
CALLS = {
    "self": {},
    "memory": {"memory": RNG.normal(size=(2, 3, 8)).astype("float32")},
    "bias": {"bias": RNG.normal(size=(2, 5, 5)).astype("float32")},
    "distances": {"distances": RNG.normal(size=(9, 4)).astype("float32")},
}


def attention(**options):
    layer = RelativeAttention(**{"num_heads": 2, **options})
    layer.build((None, None, 8))
    return randomize(layer)


@pytest.mark.parametrize("call", CALLS)
def test_the_scores(call):
    """They are A of Eq. 6, and with them Eq. 7 and 8 give what the call gives."""
    layer, given = attention(), CALLS[call]
    scores = layer.scores(X, **given)
    expected, a = definitions.attention_parts(values(layer), X, **given)
    assert_close(forward(layer, X, **given), expected, 3e-6)
    assert_close(scores, a, 1e-6)
    assert_close(to_numpy(scores).sum(axis=-1), np.ones(a.shape[:-1]), 1e-6)
    v = layer.value(given.get("memory", X))
    assert_close(layer.join(kernels.weighted_sum(scores, v)), expected, 3e-6)


@pytest.mark.parametrize("dtype, kept", [("float64", "float64"), ("mixed_bfloat16", "float32")])
def test_scores_are_float32_at_least(dtype, kept):
    with precision(dtype):
        scores = attention(dtype=dtype).scores(X)
        assert dtype_of(scores) == kept
    assert_close(to_numpy(scores).sum(axis=-1), np.ones((2, 2, 5)), 1e-6)


def test_bfloat16_does_not_lose_weights_of_a_long_sequence():
    """1024 equal scores: summed in bfloat16, their exponentials would stop at 256."""
    layer = MultiHeadSelfAttention(2, dtype="mixed_bfloat16")
    exact = MultiHeadSelfAttention(2)
    x = np.ones((1, 1024, 8), "float32")
    layer.build(x.shape), exact.build(x.shape)
    randomize(layer), randomize(exact)
    assert_close(forward(layer, x), forward(exact, x), 0.02)


@pytest.mark.parametrize("relative", [False, True])
def test_dropout_only_in_training_and_unbiased(relative):
    """The outputs are linear in the weights that are dropped, so their mean must stay."""
    options = CALLS["distances"] if relative else {}
    many = np.repeat(X[:1], 4000, axis=0)
    plain, layer = attention(), attention(dropout=0.3)
    expected = to_numpy(plain(many[:1], **options))[0]
    assert_close(layer(many[:1], **options)[0], expected, 1e-6)
    assert_close(plain(many[:1], **options, training=True)[0], expected, 1e-6)
    outputs = to_numpy(forward(layer, many, **options, training=True))
    spread = outputs.std(axis=0)
    assert (spread > 0.05).all()
    error = np.abs(outputs.mean(axis=0) - expected)
    assert (error < 5 * spread / np.sqrt(len(many))).all()


def test_dropout_acts_on_the_weights_of_a_whole_head():
    """Where one token is all there is, its weight is 1: dropped or divided by 1 - rate."""
    layer = attention(dropout=0.5)
    x = np.repeat(X[:1, :1], 64, axis=0)
    weights = values(layer)
    v = np.einsum("btd,dhk->bthk", x[:1], weights["value/kernel"]) + weights["value/bias"]
    outputs = to_numpy(layer(x, training=True))[:, 0]
    possible = [
        np.einsum("hk,hkd->d", v[0, 0] * np.array([[a], [b]]), weights["out/kernel"])
        + weights["out/bias"]
        for a in (0, 2)
        for b in (0, 2)
    ]
    distance = np.abs(outputs[:, None] - np.array(possible)).max(axis=-1)
    assert (distance.min(axis=1) < 1e-5).all()
    assert set(distance.argmin(axis=1)) == {0, 1, 2, 3}
