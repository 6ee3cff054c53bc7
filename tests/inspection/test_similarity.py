"""Position similarity, filters, CKA and norms, against their definitions."""

import re

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.inspection import (
    filter_components,
    layer_similarity,
    linear_cka,
    position_similarity,
    token_norms,
)
from tests.inspection.cases import random_vit
from tests.support import assert_close, every_backend, forward, images, refuses, to_numpy, values

pytestmark = pytest.mark.any_backend

WIDE = {"image_size": (8, 24), "patch_size": (4, 8)}


@pytest.mark.parametrize(
    "pool, registers", [pytest.param("token", 2, marks=every_backend), ("mean", 0)]
)
def test_similarity_of_positions_by_a_double_loop(pool, registers):
    model = random_vit(**WIDE, pool=pool, registers=registers)
    table = values(model)["patch_encoder/position/embedding"][0, (pool == "token") + registers :]
    found = position_similarity(model)
    assert found.shape == (2, 3, 2, 3)
    for i in range(6):
        for j in range(6):
            lengths = np.linalg.norm(table[i]) * np.linalg.norm(table[j])
            expected = table[i].astype("float64") @ table[j] / lengths
            assert_close(found[i // 3, i % 3, j // 3, j % 3], expected, 1e-6)


def test_similarity_where_each_block_has_its_positions():
    model = random_vit(position_at="every_layer")
    first, second = (position_similarity(model, block) for block in (0, 1))
    assert np.abs(first - second).max() > 0.01
    assert_close(position_similarity(model, -1), second, 0)
    refuses(r"indices go from -2 to 1. Received: block=2", position_similarity, model, 2)


def test_similarity_of_two_dimensional_positions():
    """Rows and columns are independent: the map of a patch is symmetric in what they add."""
    found = position_similarity(random_vit(**WIDE, position="sincos_2d"))
    assert_close(np.einsum("ijij->ij", found), np.ones((2, 3)), 1e-6)
    assert_close(found, np.transpose(found, (2, 3, 0, 1)), 1e-6)
    assert_close(found[0, 0, 0, 1], found[1, 1, 1, 2], 1e-6)  # the same step to the right


@pytest.mark.parametrize("rotary", ["dinov3", "mixed"])
def test_similarity_of_rotary_positions(rotary):
    """The mean cosine of the angles between two patches: in a head of width 4, of two angles."""
    model = random_vit(patch_size=(4, 8), position="none", rotary=rotary, distillation=True)
    model = keras_vit.resize(model, WIDE["image_size"])
    for block in range(2):
        if rotary == "mixed":
            x, y = values(model)[f"rotary_{block}/frequencies"]  # (heads, D_h / 2)
        else:  # half of the turns by rows, half by columns, at the one frequency 2 pi
            x, y = 2 * np.pi * np.array([[[0, 2 / 3]], [[2 / 2, 0]]])
        found = position_similarity(model, block if rotary == "mixed" else None)
        for i, j, k, m in np.ndindex(2, 3, 2, 3):
            expected = np.cos((j - m) * x + (i - k) * y).mean()
            assert_close(found[i, j, k, m], expected, 1e-5)


def test_models_without_absolute_positions():
    for position in ("none", "relative", "relative_2d"):
        told = rf"Received: .* with position='{position}'"
        refuses(told, position_similarity, random_vit(position=position))


def test_filters_are_the_principal_components_of_the_patch_kernel():
    model = random_vit(**WIDE, channels=1)
    kernel = values(model)["patch_encoder/projection/kernel"].astype("float64")
    found = filter_components(model, 5)
    assert found.components.shape == (5, 4, 8, 1)
    flat = found.components.reshape(5, -1)
    assert_close(flat @ flat.T, np.eye(5), 1e-6)
    covariance = np.cov(kernel, bias=True)
    strengths = np.linalg.eigvalsh(covariance)[::-1]
    assert_close(np.diag(flat @ covariance @ flat.T), strengths[:5], 1e-6)
    assert_close(found.explained, strengths[:5] / strengths.sum(), 1e-6)
    for component in flat:
        assert component[np.abs(component).argmax()] > 0
    # Of other networks they are those of the first convolution.
    hybrid = random_vit(image_size=32, patch_size=2, stem=(), stem_width=0.5)
    assert filter_components(hybrid, 3).components.shape == (3, 7, 7, 3)
    own = keras.Sequential([keras.Input((8, 8, 2)), keras.layers.Conv2D(4, 3)])
    assert filter_components(own).components.shape == (4, 3, 3, 2)
    dense = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)], name="dense")
    refuses(r"Received: Sequential 'dense'", filter_components, dense)


def features(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("unbiased", [False, True])
def test_cka_of_rotated_scaled_and_moved_features_is_one(unbiased):
    x = features(12, 5)
    rotation, _ = np.linalg.qr(features(5, 5, seed=1))
    assert linear_cka(x, 3 * x @ rotation + 7, unbiased) == pytest.approx(1, abs=1e-12)
    assert linear_cka(x, x * [9, 1, 1, 1, 1], unbiased) < 0.95
    assert linear_cka(x, features(12, 5, seed=2), unbiased) < 0.6


def test_cka_as_in_its_paper_and_without_a_bias():
    """Kornblith et al., Eq. 4 and the form by features beneath it."""
    x, y = features(9, 4), features(9, 2, 3, seed=1)
    a, b = (z.reshape(9, -1) - z.reshape(9, -1).mean(axis=0) for z in (x, y))
    norm = np.linalg.norm
    assert linear_cka(x, y) == pytest.approx(norm(b.T @ a) ** 2 / norm(a.T @ a) / norm(b.T @ b))
    # Unbiased, that of unrelated features is nothing on average, though they outnumber examples.
    pairs = [(features(8, 64, seed=i), features(8, 64, seed=99 + i)) for i in range(60)]
    assert np.mean([linear_cka(x, y) for x, y in pairs]) > 0.7
    assert abs(np.mean([linear_cka(x, y, unbiased=True) for x, y in pairs])) < 0.05


@pytest.mark.parametrize("pre_norm", [pytest.param(None, marks=every_backend), "rms_norm"])
def test_similarity_of_layers(pre_norm):
    model, x = random_vit(pre_norm=pre_norm), images((10, 16, 16, 3))
    names = ["pre_norm" if pre_norm else "patch_encoder", "block_0", "block_1"]
    tapped = keras.Model(model.input, [model.get_layer(name).output for name in names])
    tokens = [to_numpy(t) for t in forward(tapped, x)]
    exact = layer_similarity(model, x, estimate="exact", batch_size=3)
    assert_close(exact, np.array([[linear_cka(a, b) for b in tokens] for a in tokens]), 1e-5)
    # In minibatches: HSIC is averaged before anything is divided.
    found = layer_similarity(model, x, batch_size=5)
    assert_close(np.diag(found), np.ones(3), 1e-6)
    assert_close(found, found.T, 1e-12)
    once = layer_similarity(model, x, batch_size=10)
    direct = [[linear_cka(a, b, unbiased=True) for b in tokens] for a in tokens]
    assert_close(once, np.array(direct), 1e-5)
    assert np.abs(found - once).max() > 1e-4
    pair = layer_similarity(model, x, ["block_1"], model, names[:2], "exact")
    assert_close(pair, exact[2:, :2], 1e-5)


def test_similarity_of_any_keras_model():
    a, b = keras.layers.Flatten(name="a"), keras.layers.Dense(3, name="b")
    model = keras.Sequential([keras.Input((4, 4, 1)), a, b])
    found = layer_similarity(model, images((6, 4, 4, 1)), ["a", "b"], batch_size=6)
    assert found.shape == (2, 2) and found[0, 0] == pytest.approx(1)
    for layers, count, message in (
        ([], 6, "Received: layers=[]; it has ['a', 'b']"),
        (["c"], 6, "Received: layers=['c']"),
        (["a"], 3, "at least 4 images in a batch. Received: 3 images"),
    ):
        x = images((count, 4, 4, 1))
        refuses(re.escape(message), layer_similarity, model, x, layers)


@pytest.mark.parametrize("registers", [0, pytest.param(2, marks=every_backend)])
def test_norms_of_tokens(registers):
    model, x = random_vit(**WIDE, registers=registers), images((3, 8, 24, 3))
    block = keras.Model(model.input, model.get_layer("block_1").output)
    lengths = np.linalg.norm(to_numpy(forward(block, x)), axis=-1)
    found = token_norms(model, x, batch_size=2)
    assert found.learned.shape == (2, 3, 1 + registers)
    assert found.patches.shape == (2, 3, 2, 3)
    assert_close(found.learned[1], lengths[:, : 1 + registers], 1e-5)
    assert_close(found.patches[1].reshape(3, 6), lengths[:, 1 + registers :], 1e-5)
    assert_close(token_norms(model, x, [1]).patches[0], found.patches[1], 1e-5)


def test_outliers_are_long_compared_with_their_block():
    patches = np.ones((2, 1, 2, 3))
    patches[1] *= 100
    patches[1, 0, 1, 2] = 500
    found = type(token_norms(random_vit(), images()))(np.ones((2, 1, 1)), patches)
    assert found.outliers().sum() == 1 and found.outliers()[1, 0, 1, 2]
    assert not found.outliers(5.5).any()
