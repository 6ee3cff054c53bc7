"""Principal components of patches, against the singular vectors of their tokens."""

import re

import keras
import numpy as np
import pytest

from keras_vit.inspection import patch_components
from tests import definitions
from tests.inspection.cases import random_vit
from tests.support import assert_close, forward, images, refuses, to_numpy, values

WIDE = {"image_size": (24, 32), "rotary": "dinov3", "registers": 1, "distillation": True}
ONCE = pytest.mark.any_backend


def tokens_of(model, x, block, norm=True):
    """The patch tokens after a block, (images, rows, columns, width), by hand from there on."""
    leaving = keras.Model(model.input, model.get_layer(f"block_{block}").output)
    tokens = to_numpy(forward(leaving, x)).astype("float64")
    if norm:
        tokens = definitions.norm(definitions.below(values(model), "norm"), tokens)
    patches = tokens[:, model.variant.learned_tokens :]
    return patches.reshape(len(x), x.shape[1] // 8, x.shape[2] // 8, -1)


def components(tokens, mask, count):
    """Those of the tokens in the mask, signs aside, and the shares of the variance."""
    mean = tokens[mask].mean(axis=0)
    _, strength, rows = np.linalg.svd(tokens[mask] - mean, full_matrices=False)
    return (tokens - mean) @ rows[:count].T, (strength**2 / (strength**2).sum())[:count]


@pytest.mark.parametrize(
    "options, block, norm",
    [
        (WIDE, -1, True),
        pytest.param({**WIDE, "block": "post_norm"}, 0, True, marks=ONCE),
        pytest.param({"pool": "mean", "norm_after_pool": True}, 1, False, marks=ONCE),
        pytest.param({"final_norm": False, "pool": "token_mean"}, 1, False, marks=ONCE),
        pytest.param({"variable_size": True, "pool": "map"}, 1, True, marks=ONCE),
    ],
    ids=["later", "first block", "norm after pool", "no norm", "any size"],
)
def test_components_of_all_images_together(options, block, norm):
    model = random_vit(**options)
    size = (24, 32) if model.variable_size else model.image_size
    x = images((3, *size, 3))
    tokens = tokens_of(model, x, block % 2, norm)
    everywhere = np.ones(tokens.shape[:3], bool)
    expected, shares = components(tokens, everywhere, 3)
    found = patch_components(model, x, block=block, batch_size=2)
    assert found.values.shape == expected.shape and found.foreground.all()
    assert_close(np.abs(found.values), np.abs(expected), 2e-5)
    assert_close(found.explained, shares, 1e-5)
    flat = found.values.reshape(-1, 3)
    largest = flat[np.abs(flat).argmax(axis=0), range(3)]
    assert (largest[1:] > 0).all()
    if size == (24, 32):
        inside = np.zeros_like(everywhere)
        inside[:, 1, 1:3] = True
        assert flat[inside.ravel(), 0].mean() > flat[~inside.ravel(), 0].mean()
    else:  # all patches lie at the border
        assert largest[0] > 0


@ONCE
def test_components_of_the_foreground():
    model, x = random_vit(**WIDE), images((2, 24, 32, 3))
    tokens, whole = tokens_of(model, x, 1), patch_components(model, x, 1)
    mask = whole.values[..., 0] > 0.2
    expected, shares = components(tokens, mask, 2)
    for foreground in (0.2, mask):
        found = patch_components(model, x, 2, foreground=foreground)
        np.testing.assert_array_equal(found.foreground, mask)
        assert np.isnan(found.values[~mask]).all()
        assert_close(np.abs(found.values[mask]), np.abs(expected[mask]), 2e-5)
        assert_close(found.explained, shares, 1e-5)


@ONCE
@pytest.mark.parametrize(
    "options, message",
    [
        ({"count": 9}, "A token has 8 values. Received: count=9"),
        ({"foreground": 1e3}, "choose another foreground. Received: 0 patches"),
        ({"foreground": np.ones((4, 2, 3), bool)}, "of shape (4, 2, 2). Received: shape (4, 2, 3)"),
        ({"foreground": np.ones((4, 2, 2))}, "Received: shape (4, 2, 2), dtype float64"),
    ],
)
def test_what_has_no_components(options, message):
    refuses(re.escape(message), patch_components, random_vit(), images(), **options)
