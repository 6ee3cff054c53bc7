"""Relevance is gradient times attention, with gradients checked by finite differences."""

import re

import keras
import numpy as np
import pytest

from keras_vit.inspection import attention_weights, input_gradients, relevance_maps
from keras_vit.layers import MultiHeadSelfAttention
from tests import definitions
from tests.inspection.cases import oracle_model, random_vit
from tests.support import assert_close, every_backend, forward, images, refuses, to_numpy, values
from tests.test_heads import three_heads

pytestmark = pytest.mark.any_backend

BLOCKS = {
    "pre_norm": lambda w, x, v: definitions.block(w, x, kind=v.activation or v.gelu),
    "post_norm": lambda w, x, v: definitions.post_norm_block(w, x),
    "parallel": lambda w, x, v: definitions.parallel_block(w, x),
}


def attention_with(addition, relative, pairs):
    """`definitions.attention` with its weights A plus an addition."""
    turn, bias = lambda x: x, None
    if relative is not None and relative.ndim == 4:  # cosines and sines
        angles = np.arctan2(relative[1], relative[0])
        angles = angles[..., : angles.shape[-1] // 2] if pairs == "halves" else angles[..., ::2]
        turn = lambda x: definitions.rotated(x, angles, pairs)  # noqa: E731
    elif relative is not None:
        bias = relative

    def attention(weights, x, **_):
        a = definitions.attention_parts(weights, x, bias=bias, turn=turn)[1]
        return definitions.attention_parts(weights, x, bias=bias, turn=turn, a=a + addition)[0]

    return attention


def logits_by_hand(model, weights, tokens, relative, additions):
    """Logits from the tokens before block 0, with additions to the attention of each block."""
    v, x, patch = model.variant, tokens, model.variant.learned_tokens
    pairs = v.rotary and v.rotary.pairs
    for i, addition in enumerate(additions):
        with pytest.MonkeyPatch.context() as patched:
            given = attention_with(addition, relative[i], pairs)
            patched.setattr(definitions, "attention", given)
            x = BLOCKS[v.block](definitions.below(weights, f"block_{i}"), x, v)
    x = definitions.norm(definitions.below(weights, "norm"), x)
    read = {"token": x[:, 0], "token_mean": np.hstack([x[:, 0], x[:, patch:].mean(axis=1)])}
    logits = read[v.pool] @ weights["head/kernel"] + weights["head/bias"]
    if not v.distillation:
        return logits
    return (logits + x[:, 1] @ weights["head_distillation/kernel"] + weights[
        "head_distillation/bias"
    ]) / 2  # fmt: skip


LATER = {"norm": "rms_norm", "mlp": "swiglu", "activation": "silu", "layer_scale": 0.5}
LATER |= {"qk_norm": "rms_norm", "attention_norm": "layer_norm", "mlp_norm": "layer_norm"}
LATER |= {"pre_norm": "layer_norm", "rotary": "dinov3", "distillation": True, "biases": "no_key"}
KINDS = {
    "paper": {},
    "later": LATER,
    "post_norm": {"block": "post_norm", "position": "relative_2d", "pool": "token_mean"},
    "parallel": {"block": "parallel", "layer_scale": 0.5, "rotary": "mixed", "remat": True},
}


@pytest.mark.parametrize("kind", [pytest.param("paper", marks=every_backend), *list(KINDS)[1:]])
def test_relevance_by_finite_differences_in_float64(kind):
    """By all that follows from another attention, that of the blocks after it too."""
    model, x = random_vit(**KINDS[kind]), images((1, 16, 16, 3))
    weights = {k: v.astype("float64") for k, v in values(model).items()}
    entering = [keras.tree.flatten(model.get_layer(f"block_{i}").input) for i in range(2)]
    flat = forward(keras.Model(model.input, keras.tree.flatten(entering)), x)
    found = keras.tree.pack_sequence_as(entering, keras.tree.flatten(flat))
    found = [[to_numpy(each).astype("float64") for each in block] for block in found]
    tokens, relative = found[0][0], [block[1] if block[1:] else None for block in found]
    attention = [a.astype("float64") for a in attention_weights(model, x)]
    nothing = [np.zeros_like(a) for a in attention]
    label, step, relevance = 1, 1e-4, np.eye(tokens.shape[1])
    by_hand = logits_by_hand(model, weights, tokens, relative, nothing)
    assert_close(by_hand, forward(model, x), 1e-4)
    for i, a in enumerate(attention):
        slope = np.zeros_like(a)
        for place in np.ndindex(a.shape):
            ends = []
            for sign in (1, -1):
                moved = [b.copy() for b in nothing]
                moved[i][place] += sign * step
                ends.append(logits_by_hand(model, weights, tokens, relative, moved)[0, label])
            slope[place] = (ends[0] - ends[1]) / (2 * step)
        last = np.maximum(slope * a, 0).mean(axis=1)[0]
        relevance = relevance + last @ relevance
    found = relevance_maps(model, x, label)
    last_block = relevance_maps(model, x, label, "last_block")
    first = len(relevance) - 4
    rows = [0, 1] if model.variant.distillation else [0]
    for maps, matrix in ((found, relevance - np.eye(len(relevance))), (last_block, last)):
        expected = matrix[rows].mean(axis=0)
        if model.variant.pool == "token_mean":
            expected = (expected + matrix[first:].mean(axis=0)) / 2
        assert_close(maps, expected[first:].reshape(1, 2, 2), 1e-5)
    assert found.max() > 1e-3


def test_classes_and_batches():
    model, x = oracle_model("token_p8"), images((3, 32, 32, 3))
    best = to_numpy(forward(model, x)).argmax(axis=-1)
    found = relevance_maps(model, x, batch_size=2)
    assert found.shape == (3, 4, 4) and (found >= 0).all()
    assert_close(found, relevance_maps(model, x, best, batch_size=2), 1e-7)
    others = (best + 1) % model.num_classes
    assert np.abs(found / found.max() - relevance_maps(model, x, others, batch_size=2)).max() > 0.01
    # The third image alone in its batch, which was filled up, and now beside another.
    assert_close(relevance_maps(model, x[1:], batch_size=2), found[1:], 1e-5 * found.max())


@pytest.mark.parametrize(
    "options",
    [
        {"pool": "mean", "registers": 2},
        {"pool": "map", "pool_patches": True, "projection": 5},
        pytest.param({"position": "relative"}, marks=every_backend),
        {"position_at": "every_layer"},
        pytest.param(LATER, marks=every_backend),
        {"image_size": 32, "patch_size": 2, "stem": (), "stem_width": 0.5},
    ],
    ids=lambda options: next(iter(options)),
)
def test_every_kind_of_model(options):
    model = random_vit(**options)
    found = relevance_maps(model, images((2, *model.image_size, 3)))
    assert found.shape == (2, *model.grid)
    assert (found >= 0).all() and (found.max(axis=(1, 2)) > found.min(axis=(1, 2))).all()


@every_backend
def test_gradients_by_pixels_sum_to_the_logit_of_a_linear_model():
    dense = keras.layers.Dense(3, use_bias=False)
    model = keras.Sequential([keras.Input((4, 4, 1)), keras.layers.Flatten(), dense])
    x, labels = images((5, 4, 4, 1)), np.array([0, 1, 2, 1, 0])
    found = input_gradients(model, x, labels, batch_size=2)
    logits = to_numpy(model(x))[np.arange(5), labels]
    assert found.shape == x.shape
    assert_close(found.sum(axis=(1, 2, 3)), logits, 1e-5)


def test_gradients_by_pixels_of_the_library_by_finite_differences():
    model, x = random_vit(), images((1, 16, 16, 3))
    direction = 1e-2 * images((1, 16, 16, 3), seed=1)
    ends = [float(to_numpy(forward(model, x + s * direction))[0, 2]) for s in (1, -1)]
    slope = (input_gradients(model, x, 2) / x * direction).sum()
    assert slope == pytest.approx((ends[0] - ends[1]) / 2, rel=0.02)


def test_an_attention_that_computes_something_else_is_refused(monkeypatch):
    model, call = random_vit(name="changed"), MultiHeadSelfAttention.call
    monkeypatch.setattr(
        MultiHeadSelfAttention, "call", lambda self, x, *a, **k: 2 * call(self, x, *a, **k)
    )
    refuses("Relevance needs this library's blocks", relevance_maps, model, images())


def test_classes_that_are_none_and_models_that_give_none():
    message = "numbers from 0 to 2, one for all images or one for each of the 4. Received: "
    for classes in (3, -1, [0, 1], 0.5, "cat"):
        told = re.escape(f"{message}classes={classes!r}")
        refuses(told, relevance_maps, random_vit(), images(), classes)
    one_output = r"one output\. .*'weight', 'marks'; keras\.Model\("
    refuses(one_output, relevance_maps, three_heads(), images())
    classes = r"must give .*; build it with .* with output shape"
    for options in ({"num_classes": 0}, {"pool": None}):
        refuses(classes, relevance_maps, random_vit(**options), images())
