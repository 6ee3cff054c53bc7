"""Layers of Keras and KerasCV in a recipe: values, seeds, labels, and what does not fit."""

import json
import sys

import keras
import numpy as np
import pytest

from keras_vit import recipes
from keras_vit.data import keras_layers, pipeline
from tests.data.pipeline_cases import assert_same, numbered, recipe
from tests.support import BACKEND, refuses, run_in_fresh_process, slow_unless_torch


@keras.saving.register_keras_serializable("test_keras_layers")
class OfTheUser(keras.layers.Layer):
    """Draws from NumPy's global generator."""

    def call(self, images):
        return images * float(np.random.uniform(0.5, 1))


@keras.saving.register_keras_serializable("test_keras_layers")
class Darker(keras.layers.Layer):
    def __init__(self, factor=0.5, **options):
        super().__init__(**options)
        self.factor = factor

    def call(self, images):
        return images * self.factor

    def get_config(self):
        return {**super().get_config(), "factor": self.factor}


def mixing():
    """Layers that JAX compiles quickly, one that goes without labels among them."""
    return [keras.layers.RandomFlip(), keras.layers.GaussianNoise(0.5), keras.layers.MixUp(0.4)]


def with_layers(layers, **options):
    return recipe(augment_layers=layers, **options)


def grey(count=16, classes=8):
    """Images of one grey each, 20 times their class."""
    labels = np.arange(count) % classes
    return np.full((count, 4, 4, 3), 20 * labels[:, None, None, None], np.uint8), labels


def of_steps(batches, steps):
    return [batch for batch, _ in zip(batches, range(steps))]


def test_labels_of_several_heads_are_mixed_as_their_images_are():
    images, classes = grey()
    heads = {"shade": classes, "age": 20.0 * classes, "dark": np.eye(2)[classes // 4]}
    problem = {"shade": "single_label", "age": "regression", "dark": "multi_label"}
    train = pipeline((images, heads), with_layers([keras.layers.MixUp(0.4)]), problem=problem)
    ((pixels, labels),) = of_steps(train, 1)
    shades = (pixels[:, 0, 0, 0] + 1) * 127.5
    np.testing.assert_allclose(labels["shade"] @ (20.0 * np.arange(8)), shades, atol=0.1)
    np.testing.assert_allclose(labels["age"], shades, atol=0.1)
    np.testing.assert_allclose(labels["shade"][:, 4:].sum(-1), labels["dark"][:, 1], atol=1e-5)


def test_a_batch_is_a_function_of_seed_and_step():
    augmented = with_layers(mixing())
    twice = pipeline(numbered(16), augmented, training=True).from_step(0, 4)
    expected = list(twice)
    threads = pipeline(numbered(16), augmented, training=True, threads=3).from_step(2, 2)
    assert_same(threads, expected[2:])
    assert_same(twice.from_step(1, 3), expected[1:])  # the object has drawn before
    other = pipeline(numbered(16), augmented, training=True, seed=1).from_step(0, 1)
    assert np.abs(next(iter(other))[0] - expected[0][0]).max() > 0.01


def test_the_generator_of_the_model_is_left_alone(monkeypatch):
    """A model that drops out draws from PyTorch's own while the next batch is being made."""
    if BACKEND == "torch":
        import torch

        monkeypatch.setattr(torch, "manual_seed", lambda seed: pytest.fail("seeded for all"))
    factors = [keras.layers.MixUp(0.4), keras.layers.CutMix(), keras.layers.AugMix(num_chains=1)]
    for layer in factors if BACKEND == "torch" else factors[:1]:
        batches = pipeline(grey(), with_layers([layer]), training=True)
        images, labels = next(iter(batches))
        assert np.isfinite(images).all()
        np.testing.assert_allclose(labels.sum(axis=-1), 1, atol=1e-5)


def test_processes_draw_alike_and_take_their_rows():
    whole = pipeline(numbered(16), with_layers(mixing()), training=True)
    parts = [whole.shard(process, 2) for process in range(2)]
    for (images, labels), *halves in zip(whole, *parts, strict=True):
        np.testing.assert_array_equal(np.concatenate([half[0] for half in halves]), images)
        np.testing.assert_array_equal(np.concatenate([half[1] for half in halves]), labels)


@pytest.mark.slow
def test_other_processes_read_the_same(tmp_path):
    run_in_fresh_process("""
import numpy as np
from keras_vit.data import pipeline
from tests.data.pipeline_cases import assert_same, numbered
from tests.data.test_keras_layers import mixing, with_layers

if __name__ == "__main__":
    made = with_layers(mixing())
    alone, helped = (pipeline(numbered(16), made, training=True, workers=n) for n in (0, 2))
    assert_same(helped, list(alone))
""")


def test_labels_are_mixed_as_the_images_are():
    layers = [keras.layers.MixUp(0.4)]
    for images, labels in pipeline(grey(), with_layers(layers), training=True):
        pixels = (images + 1) * 127.5
        np.testing.assert_allclose(labels.sum(axis=1), 1, atol=1e-5)
        np.testing.assert_allclose(
            pixels.mean(axis=(1, 2, 3)), 20 * labels @ np.arange(8), atol=0.01
        )
        assert pixels.std(axis=(1, 2, 3)).max() < 0.01  # one grey each, not cut


@pytest.mark.parametrize("problem", ["multi_label", "regression"])
def test_other_labels_are_mixed(problem):
    images, numbers = grey()
    targets = np.stack([numbers % 2, numbers < 4], axis=1) if problem == "multi_label" else numbers
    layers = with_layers([keras.layers.MixUp(0.4)])
    for pixels, mixed in pipeline((images, targets), layers, training=True, problem=problem):
        means = ((pixels + 1) * 127.5).mean(axis=(1, 2, 3)) / 20
        assert mixed.shape == (8, *targets.shape[1:]) and mixed.dtype == np.float32
        if problem == "regression":
            np.testing.assert_allclose(mixed, means, atol=1e-3)


def test_mixup_of_the_recipe_follows_the_layers():
    for images, labels in pipeline(grey(), with_layers(Darker(0.25), mixup=0.4), training=True):
        means = ((images + 1) * 127.5).mean(axis=(1, 2, 3))
        np.testing.assert_allclose(means, 5 * labels @ np.arange(8), atol=0.01)
        assert (labels > 0).sum(axis=1).max() == 2


def test_only_training_is_augmented():
    plain, augmented = recipe(), with_layers(mixing())
    assert_same(pipeline(numbered(11), augmented, "test"), pipeline(numbered(11), plain, "test"))


@slow_unless_torch
def test_what_users_of_keras_take():
    layers = [
        keras.layers.RandAugment(),
        keras.layers.AugMix(),  # which chooses by Python's own random numbers
        keras.layers.CutMix(),
        keras.layers.RandomErasing(),
        keras.layers.RandomGrayscale(),
        keras.Sequential([keras.layers.RandomRotation(0.1), keras.layers.RandomZoom(0.1)]),
    ]
    batches = pipeline(numbered(16), with_layers(layers), training=True)
    expected = of_steps(batches, 2)
    assert_same(of_steps(batches.from_step(0), 2), expected)
    for images, labels in expected:
        assert images.shape == (8, 4, 4, 3) and np.abs(images).max() <= 1
        np.testing.assert_allclose(labels.sum(axis=1), 1, atol=1e-5)


@slow_unless_torch
def test_layers_of_keras_cv():
    keras_cv = pytest.importorskip("keras_cv")
    layers = [
        keras_cv.layers.RandAugment(value_range=(0, 255)),
        keras_cv.layers.Augmenter([keras_cv.layers.RandomFlip(seed=1), keras_cv.layers.GridMask()]),
        keras_cv.layers.RandomColorJitter((0, 255), 0.2, 0.2, 0.2, 0.1),
        keras.layers.RandomFlip("vertical"),
        keras_cv.layers.CutMix(),
        keras_cv.layers.MixUp(),
    ]
    batches = pipeline(numbered(16), with_layers(layers), training=True)
    expected = of_steps(batches, 2)
    assert_same(of_steps(batches.from_step(0), 2), expected)
    other = of_steps(pipeline(numbered(16), with_layers(layers), training=True, seed=1), 1)
    assert np.abs(other[0][0] - expected[0][0]).max() > 0.1
    for _images, labels in expected:
        np.testing.assert_allclose(labels.sum(axis=1), 1, atol=1e-5)
    grid, noise = keras_cv.layers.GridMask(), numbered(8)
    with pytest.raises(ValueError, match=r"keras_cv\.RandomJpegQuality\(.*makes values of"):
        layers = with_layers([grid, keras_cv.layers.RandomJpegQuality((50, 90))])
        pipeline(noise, layers, training=True)


@pytest.mark.any_backend
def test_without_keras_cv_its_extra_is_named(monkeypatch):
    config = {
        "module": "keras_cv.src.layers.preprocessing.grid_mask",
        "class_name": "GridMask",
        "config": {"fill_mode": "constant"},
        "registered_name": "keras_cv>GridMask",
    }
    made = with_layers([json.dumps(config)])
    monkeypatch.setitem(sys.modules, "keras_cv", None)
    with pytest.raises(ImportError, match=r'pip install "keras3-vit\[cv\]"'):
        pipeline(numbered(16), made, training=True)


@pytest.mark.any_backend
def test_a_recipe_with_layers_is_a_value():
    first, second = (
        recipes.get("digits").replace(
            augment_layers=[keras.layers.RandAugment(num_ops=3), keras.layers.MixUp(seed=seed)]
        )
        for seed in (None, 7)  # which makes other names as well
    )
    assert first == second and hash(first.augment_layers) == hash(second.augment_layers)
    assert recipes.Recipe.from_dict(json.loads(json.dumps(first.to_dict()))) == first
    assert first != first.replace(augment_layers=())
    assert "augment_layers" not in recipes.get("digits").to_dict()  # as runs of old have it
    shown = "RandAugment(factor=[0, 0.5], interpolation=bilinear, num_ops=3), MixUp(alpha=0.2)"
    assert dict(first.table())["augment_layers"] == shown


def test_a_layer_of_the_user():
    batches = pipeline(grey(), with_layers(Darker(0.25)), training=True)
    for images, labels in batches:
        means = ((images + 1) * 127.5).mean(axis=(1, 2, 3))
        np.testing.assert_allclose(means, 5 * labels @ np.arange(8), atol=0.01)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "value", [keras.layers.RandAugment, lambda image: image, "RandAugment", 3, [None], "3", [{}]]
)
def test_what_is_no_layer_is_refused(value):
    with pytest.raises(ValueError, match=r"augment_layers must be layers.*Received: .*by name"):
        recipes.get("digits").replace(augment_layers=value)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (keras.layers.Rescaling(1 / 255), r"Rescaling\(.*makes values of 0\.\.1 from 0\.\.255"),
        (keras.layers.CenterCrop(2, 2), r"images of shape \(8, 2, 2, 3\) from.*image_size=\.\.\."),
        (OfTheUser(), f"OfTheUser.*on {BACKEND} it draws random numbers that no seed decides"),
        (keras.layers.Permute((1, 2)), "Permute.*it fails with "),
    ],
    ids=["range", "shape", "seed", "failure"],
)
def test_what_does_not_fit_is_told_before_the_run(layer, message):
    refuses(message, pipeline, numbered(16), with_layers([layer]), training=True)


@pytest.mark.any_backend
def test_a_range_other_than_that_of_pixels_is_refused():
    nested = keras.layers.Pipeline([keras.layers.RandomBrightness(0.2, value_range=(0, 1))])
    with pytest.raises(ValueError, match=r"value_range=\(0, 1\); take value_range=\(0, 255\)"):
        keras_layers.layer_configs([nested])
