"""Models of blocks after Vaswani et al. (2017), and of axial ones (appendix D.6).

`test_vit.py` compares what they compute with NumPy.
"""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import inspection, layers, training
from tests import definitions
from tests.arrays import assert_close, images, to_numpy, values
from tests.support import forward, randomize, refuses, slow_unless_torch, tiny_vit

AXIAL = {"block": "axial", "pool": "mean", "image_size": (16, 24), "depth": 1}
KINDS = [AXIAL, {"block": "add_norm", "depth": 1}]
ONCE = pytest.mark.any_backend
X = images((2, 16, 24, 3))


def axial(**options):
    return randomize(tiny_vit(**{**AXIAL, **options}))


@ONCE
def test_the_final_norm_follows_the_block():
    variant = keras_vit.get_variant("B/16", block="add_norm")
    assert not variant.final_norm and variant.replace(block="pre_norm").final_norm
    with pytest.raises(ValueError, match="final_norm=True, block='add_norm'; choose"):
        keras_vit.get_variant("B/16", block="add_norm", final_norm=True)


@ONCE
def test_axial_attention_within_one_row_is_full_attention():
    row = layers.AxialBlock(2, 12, grid=(1, 5))
    full = layers.TransformerBlock(2, 12)
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    for layer in (row, full):
        layer.build(x.shape)
        randomize(layer)
    assert_close(row(x), full(x), 1e-6)
    assert_close(row.attention_scores(x), full.attention_scores(x), 1e-6)


@ONCE
@pytest.mark.parametrize(
    "order", [([1, 0], [0, 1, 2]), ([0, 1], [2, 0, 1])], ids=["rows", "columns"]
)
def test_rows_and_columns_may_change_places_where_there_are_no_positions(order):
    """Not so single patches: what they attend to is in their own row and column."""
    model = axial(position="none")
    cells = X.reshape(2, 2, 8, 3, 8, 3)  # batch, row, y, column, x, channel
    moved = cells[:, order[0]][:, :, :, order[1]].reshape(X.shape)
    assert_close(model(moved), model(X), 1e-5)
    swapped = cells.copy()
    swapped[:, 0, :, 0], swapped[:, 1, :, 1] = cells[:, 1, :, 1], cells[:, 0, :, 0]
    assert np.abs(to_numpy(model(swapped.reshape(X.shape)) - model(X))).max() > 1e-3


@ONCE
def test_attention_weights_of_axial_blocks_stay_within_rows_and_columns():
    model = axial()
    places = np.mgrid[:2, :3].reshape(2, 6)
    found = inspection.attention_weights(model, X)
    for i, (attention, place) in enumerate(zip(found, places, strict=True)):
        entering = keras.Model(model.input, model.get_layer(f"block_{i}").input)
        tokens = to_numpy(entering(X)).astype("float64")
        w = definitions.below(values(model), f"block_{i}")
        tokens = definitions.norm(definitions.below(w, "norm_1"), tokens)
        same = np.where(place[:, None] == place, 0.0, -np.inf)[None]
        w = definitions.below(w, "attention")
        expected = definitions.attention_parts(w, tokens, bias=same)[1]
        assert_close(attention, expected, 3e-6)
    assert_close(inspection.rollout(found).sum(axis=-1), np.ones((2, 6)), 1e-6)


@ONCE
@pytest.mark.parametrize("options", KINDS, ids=str)
def test_relevance_finds_the_logits_again_from_the_attention_weights(options):
    """It raises a ValueError where they are not those of the model."""
    model = randomize(tiny_vit(**options))
    assert inspection.relevance_maps(model, images((1, *model.image_size, 3))).max() > 0


@slow_unless_torch
@pytest.mark.parametrize("options", KINDS, ids=str)
def test_it_is_trained_and_saved(options, reopened, tmp_path):
    """With remat and in mixed precision; files of other codebases have no place for it."""
    model = randomize(tiny_vit(**options, remat=True, dtype="mixed_bfloat16", dropout=0.1))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x = images((4, *model.image_size, 3))
    assert np.isfinite(model.train_on_batch(x, np.arange(4) % 3))
    again = reopened(model)
    assert again.variant == model.variant
    assert_close(forward(again, x), forward(model, x), 0)
    words, path = f"block='{model.variant.block}'.*model.save", tmp_path / "weights.npz"
    refuses(words, keras_vit.save_weights, model, path)


@ONCE
def test_the_same_axial_weights_serve_another_grid():
    resized = keras_vit.resize(axial(position="sincos_2d"), (24, 16))
    assert resized.grid == (3, 2) and resized(images((2, 24, 16, 3))).shape == (2, 3)


REFUSED = [
    ({"pool": "token"}, "needs class_token=False.*pool='token', class_token=True"),
    ({"registers": 1}, "no registers"),
    ({"rotary": "dinov3"}, "rotary positions"),
    ({"position": "relative"}, "position='relative'"),
    ({"variable_size": True}, "block='axial'; build a model for each image size"),
    ({"patch_dropout": 0.5}, "axial blocks need every patch"),
    ({"token_merging": 1}, "axial blocks need every patch"),
]


@ONCE
@pytest.mark.parametrize("options, reason", REFUSED, ids=lambda x: str(x)[:30])
def test_what_axial_blocks_cannot_do(options, reason):
    refuses(reason, axial, **options)


@ONCE
def test_where_axial_blocks_cannot_stand():
    with pytest.raises(ValueError, match="axial blocks, which need every patch"):
        training.MaskedAutoencoder(axial(num_classes=0))
    with pytest.raises(ValueError, match=r"takes the 6 patches .*\(2, 7, 8\)"):
        layers.AxialBlock(2, 12, grid=(2, 3)).build((2, 7, 8))
