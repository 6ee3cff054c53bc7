"""What is looked at: images of several kinds, tokens by name, maps as large as the image."""

import re
import warnings

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import inspection, training
from keras_vit.inspection import (
    attention_maps,
    attention_weights,
    layout_of,
    probe_maps,
    relevance_maps,
    token_norms,
    upsample,
)
from tests.inspection.cases import random_vit
from tests.support import assert_close, every_backend, images, refuses, tiny_bit, tiny_vit

pytestmark = pytest.mark.any_backend

REGISTERS = {"image_size": (8, 24), "patch_size": (4, 8), "registers": 1, "distillation": True}


@every_backend
def test_bytes_are_prepared_as_the_weights_want_them():
    model = random_vit()
    pixels = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 3), np.uint8)
    expected = attention_maps(model, keras_vit.preprocess(pixels, model))
    assert_close(attention_maps(model, pixels), expected, 0)
    tensor = keras.ops.convert_to_tensor(keras_vit.preprocess(pixels, model))
    assert_close(attention_maps(model, tensor), expected, 0)


@pytest.mark.parametrize(
    "x, message",
    [
        (images((2, 8, 8, 3)), r"shape \('batch', 16, 16, 3\);.* Received: shape \(2, 8, 8, 3\)"),
        (images((16, 16, 3)), r"one image is images\[None\].* Received: shape \(16, 16, 3\)"),
        (images((0, 16, 16, 3)), "at least one image. Received: none"),
        (100 * images(), "Received: floats with a largest absolute value of 99"),
        (images() * np.nan, "Received: floats with a largest absolute value of nan"),
    ],
    ids=["size", "one image", "none", "bytes as floats", "nan"],
)
def test_images_that_do_not_fit(x, message):
    refuses(message, attention_weights, random_vit(), x)


def test_floats_are_looked_at_once_and_what_was_prepared_is_not():
    model, x = random_vit(), np.random.default_rng(0).uniform(0.6, 1, (2, 16, 16, 3))
    around = keras.Sequential([keras.layers.Identity(), model])
    around.build((None, 16, 16, 3))
    for look in (attention_maps, relevance_maps, inspection.input_gradients, token_norms):
        for each in (model, around):
            with pytest.warns(UserWarning, match="wants values from -1 to 1.* from 0.6") as told:
                look(each, x.astype("float32"))
            assert sum("wants values" in str(each.message) for each in told) == 1
            with warnings.catch_warnings(action="error", category=UserWarning):
                look(each, (255 * x).astype("uint8"))
                look(each, keras_vit.preprocess(x, model) - 0.7)


def test_fused_heads_and_batches():
    model, x = random_vit(), images((5, 16, 16, 3))
    each = attention_weights(model, x)
    for heads in ("mean", "min", "max"):
        found = attention_weights(model, x, heads=heads, batch_size=2)
        for a, b in zip(found, each, strict=True):
            assert_close(a, getattr(np, heads)(b, axis=1), 1e-6)
    refuses(r"Unknown heads. Received: heads='sum'", attention_weights, model, x, heads="sum")


def test_maps_of_any_token_and_head():
    model, x = random_vit(**REGISTERS), images((2, 8, 24, 3))
    (weights,) = attention_weights(model, x, [0])
    for query, row in ((0, 0), ("class", 0), ("distillation", 1), (2, 2), ((0, 0), 3), ((1, 2), 8)):
        maps = attention_maps(model, x, 0, query, heads=None)
        assert_close(maps.reshape(2, 2, 6), weights[:, :, row, 3:], 1e-7)
    maps = attention_maps(model, x, 0, "mean", heads=None)
    assert_close(maps.reshape(2, 2, 6), weights[:, :, 3:, 3:].mean(axis=2), 1e-6)
    # By default of the last block, the mean of the heads, from the class token or the patches.
    pooled = random_vit(**REGISTERS | {"distillation": False}, pool="mean")
    for each, queries, learned in ((model, slice(1), 3), (pooled, slice(1, None), 1)):
        (weights,) = attention_weights(each, x, [1], heads="mean")
        expected = weights[:, queries, learned:].mean(axis=1).reshape(2, 2, 3)
        assert_close(attention_maps(each, x), expected, 1e-6)


def test_tokens_that_do_not_exist():
    model, x = random_vit(**REGISTERS), images((1, 8, 24, 3))
    for query, message in (
        ((2, 0), "one of 2 x 3 patches, or a token from 0 to 8. Received: query=(2, 0)"),
        (9, "a token from 0 to 8. Received: query=9"),
        ("cls", "query must be class, distillation, mean, (row, column)"),
    ):
        refuses(re.escape(message), attention_maps, model, x, query=query)
    of_mean = r"query must be mean, .* Received: query='class'"
    refuses(of_mean, attention_maps, random_vit(pool="mean"), images(), query="class")


def test_the_grid_of_a_model_of_any_size_and_of_one_without_patches():
    model = random_vit(variable_size=True)
    assert attention_maps(model, images((1, 24, 16, 3))).shape == (1, 3, 2)
    assert layout_of(model, (24, 16)).grid == (3, 2)
    dense = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    refuses(r"A VisionTransformer is needed.*Received: Sequential", layout_of, dense)
    # Merged tokens have no grid.
    model = random_vit(token_merging=1, pool="map")
    for look in (attention_weights, attention_maps, probe_maps, token_norms):
        refuses("Merged tokens have no place in the image", look, model, images())


def test_upsampling():
    maps = np.arange(6.0).reshape(1, 2, 3)
    smooth = upsample(maps, (4, 6))
    assert smooth.shape == (1, 4, 6)
    # Centres lie between pixels; the corners are the patches' own values, as beyond the centres.
    assert_close(smooth[0, [0, 0, -1, -1], [0, -1, 0, -1]], np.array([0.0, 2, 3, 5]), 1e-12)
    assert_close(smooth[0, 0], np.array([0, 0.25, 0.75, 1.25, 1.75, 2]), 1e-12)
    assert_close(upsample(np.full((2, 3), 0.3), (5, 7)), np.full((5, 7), 0.3), 1e-12)
    refuses(re.escape("Received: shape (3,)"), upsample, maps[0, 0], 4)


@every_backend
def test_lower_precision_is_looked_at_in_float32():
    model = random_vit(depth=1, num_classes=5, dtype="mixed_bfloat16")
    (weights,) = attention_weights(model, images())
    assert weights.dtype == np.float32
    assert_close(weights.sum(axis=-1), np.ones((4, 2, 5)), 1e-5)
    assert relevance_maps(model, images(), 3).max() > 0


def test_a_model_with_two_inside_names_them(tmp_path):
    inner = tiny_vit(name="inner", patch_size=4)
    model = training.Distiller(inner, tiny_vit(name="teacher"))
    message = re.escape("pass the one: model.student or model.teacher")
    of_images = "attention_weights attention_maps rollout_maps attention_distances probe_maps "
    of_images += "relevance_maps token_norms patch_components layer_similarity"
    for name in of_images.split():
        refuses(message, getattr(inspection, name), model, images())
    for call in (inspection.layout_of, inspection.filter_components):
        refuses(message, call, model)
    refuses(message, inspection.explore, model, images(), tmp_path / "page.html")


def test_the_encoder_of_an_autoencoder_is_looked_into_and_a_bit_has_none():
    encoder = random_vit(patch_size=4)
    decoder = {"decoder_width": 8, "decoder_depth": 1, "decoder_heads": 2}
    model = training.MaskedAutoencoder(encoder, **decoder)
    assert layout_of(model) == layout_of(encoder)
    filters = inspection.filter_components(model).components
    assert_close(filters, inspection.filter_components(encoder).components, 0)
    none = r"BiT 'r', which has 0 Transformer blocks in its graph\.$"
    refuses(none, inspection.attention_weights, tiny_bit(name="r"), images())
