"""Frozen features: what the head reads, of any model."""

import keras
import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit import BiT
from keras_vit.evaluation import embed, extract_features, features, fewshot
from tests.support import assert_close, images, randomize, refuses, tiny_vit, to_numpy, values

LABELS = np.array([2, 0, 1, 0])


def run(model, x):
    return keras.ops.convert_to_numpy(model.predict_on_batch(x))


@pytest.mark.parametrize(
    "options",
    [{"representation_size": 5}, pytest.param({"pool": "mean"}, marks=pytest.mark.any_backend)],
)
def test_the_head_of_a_vision_transformer_reads_them(options):
    model = tiny_vit(depth=1, **options)
    kernel, bias = np.random.default_rng(0).normal(size=(model.get_layer("head").kernel.shape)), 1
    model.get_layer("head").set_weights([kernel, np.full(3, bias)])
    found = run(features(model), images())
    assert found.shape == (4, options.get("representation_size", 8))
    assert_close(found @ kernel + bias, run(model, images()), 1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"distillation": True, "rotary": "dinov3", "width": 16, "registers": 1},
        pytest.param({"pool": "token_mean", "block": "parallel"}, marks=pytest.mark.any_backend),
        pytest.param(
            {"pool": "map", "pool_patches": True, "projection": 5, "dtype": "mixed_bfloat16"},
            marks=pytest.mark.any_backend,
        ),
    ],
    ids=["distillation", "token_mean", "projection"],
)
def test_later_families(options):
    """With a head the features are what the same model gives without one."""
    model, headless = tiny_vit(**options), tiny_vit(**options, num_classes=0)
    randomize(model)
    weights = values(model)
    for variable in headless.weights:
        variable.assign(weights[variable.path])
    exact = "dtype" not in options
    expected = to_numpy(run(headless, images()))
    assert_close(run(features(model), images()), expected, 1e-6)
    found = embed(model, images(), normalize=True, batch_size=3)
    lengths = np.linalg.norm(expected, axis=1, keepdims=True)
    assert_close(found, expected / lengths, 1e-6 if exact else 2e-2)
    assert_close(np.linalg.norm(found, axis=1), np.ones(4), 1e-6)
    same, _ = extract_features(model, (images(), LABELS), normalize=True)
    assert_close(same, found, 1e-6 if exact else 2e-2)
    train = (images(), LABELS)
    assert fewshot(model, train, train, 1, seeds=(0,)).examples == {1: 3}


@pytest.mark.any_backend
def test_embeddings_of_files_and_bytes(tmp_path):
    model = tiny_vit(depth=1, projection=5, num_classes=0)
    pixels = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3), "uint8")
    files = [tmp_path / f"{i}.png" for i in range(3)]
    for file, image in zip(files, pixels):
        Image.fromarray(image).save(file)
    expected = run(model, keras_vit.preprocess(pixels, model))
    for given in (pixels, list(pixels), files, [str(file) for file in files]):
        assert_close(embed(model, given, batch_size=2), expected, 1e-6)
    assert_close(embed(model, files[1]), expected[1:2], 1e-6)
    refuses(r"a pool other than None.*\(None, 5, 8\)", embed, tiny_vit(pool=None), pixels)


@pytest.mark.any_backend
def test_models_without_a_head_and_of_other_families():
    headless = tiny_vit(depth=1, num_classes=0, representation_size=5)
    assert_close(run(features(headless), images()), run(headless, images()), 1e-6)
    bit = BiT(num_classes=3, image_size=32, blocks=(1,), width=1, version="v2")
    assert features(bit).output_shape == (None, bit.get_layer("pool").output.shape[1])
    inputs = keras.Input((16, 16, 3))
    pooled = keras.layers.GlobalAveragePooling2D(keepdims=True, name="pooled")(inputs)
    x = keras.layers.Dense(6, name="hidden")(keras.layers.Flatten()(pooled))
    scores = keras.layers.Dense(3, name="scores")(x)
    model = keras.Model(inputs, keras.layers.Softmax()(scores))
    expected = run(keras.Model(inputs, x), images())
    assert_close(run(features(model), images()), expected, 0)
    assert_close(run(features(model, "hidden"), images()), expected, 0)
    assert_close(run(features(model, "pooled"), images()), images().mean(axis=(1, 2)), 1e-6)
    backbone = keras.Model(inputs, keras.layers.GlobalMaxPooling2D()(inputs))
    assert_close(run(features(backbone), images()), images().max(axis=(1, 2)), 0)
    sequential = keras.Sequential([inputs, keras.layers.Flatten(), keras.layers.Dense(2)])
    assert features(sequential).output_shape == (None, 16 * 16 * 3)


def test_the_logits_of_a_model_inside_are_no_features():
    inner, x = tiny_vit(depth=1), keras.Input((16, 16, 3))
    scale = keras.layers.Rescaling(0.5)
    expected = run(features(inner), 0.5 * images())
    for model in (
        keras.Model(x, inner(scale(x))),
        keras.Model(x, inner(x * 0.5)),
        keras.Sequential([x, scale, keras.Sequential([inner])]),
    ):
        assert_close(run(features(model), images()), expected, 1e-6)


def test_extraction_is_that_of_one_batch():
    model = tiny_vit(depth=1)
    x = images((7, 16, 16, 3))
    batches = [(x[:3], LABELS[:3]), (x[3:7], np.eye(3)[LABELS])]
    for data in ((x, [*LABELS[:3], *LABELS]), iter(batches)):
        found, labels = extract_features(model, data, batch_size=3)
        assert_close(found, run(features(model), x), 1e-5)
        assert labels.tolist() == [2, 0, 1, 2, 0, 1, 0] and labels.dtype == np.int64
    stored = np.random.default_rng(1).integers(0, 256, (4, 16, 16, 3), "uint8")
    from_bytes, _ = extract_features(model, (stored, LABELS))
    prepared, _ = extract_features(model, ((stored - 127.5) / 127.5, LABELS))
    assert_close(from_bytes, prepared, 1e-5)


def test_what_has_no_features():
    refuses(r"No such layer: neck. Existing layers are", features, tiny_vit(depth=1), "neck")
    refuses(r"one vector per image.*layer=.*\(None, 5, 8\)", features, tiny_vit(depth=1), "block_0")
    inputs = keras.Input((1, 1, 3))
    convolution = keras.layers.Conv2D(2, 1)(inputs)
    scores = keras.layers.Softmax()(keras.layers.Flatten()(convolution))
    refuses(r"ends with no Dense layer.*layer=.*flatten", features, keras.Model(inputs, scores))
    refuses("at least one image", extract_features, tiny_vit(depth=1), [])
    refuses(r"Keras model.* Received: str", features, "B/16", error=TypeError)

    class Subclassed(keras.Model):
        def call(self, x):
            return x

    refuses(r"graph of a Functional.*Received: Subclassed", features, Subclassed(), error=TypeError)


@pytest.mark.any_backend
def test_images_that_a_pipeline_augments_are_warned_of():
    pixels, labels = np.zeros((6, 16, 16, 3), np.uint8), np.arange(6) % 3
    recipe = keras_vit.recipes.own_images(6, 3).replace(image_size=16).scale(2)
    train = keras_vit.data.pipeline((pixels, labels), recipe)
    with pytest.warns(UserWarning, match=r"augmented.*training=False.*Received: Pipeline"):
        extract_features(tiny_vit(), train)
