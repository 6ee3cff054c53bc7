"""FlexiViT: patches of many sizes by one set of weights, in one training."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import recipes
from keras_vit.training import FlexiblePatches
from tests.support import (
    assert_close,
    forward,
    precision,
    randomize,
    refuses,
    slow_unless_torch,
    tiny_vit,
    to_numpy,
    values,
)

IMAGES = np.random.default_rng(0).uniform(-1, 1, (8, 24, 24, 3))
LABELS = np.arange(8) % 3
SIZES = (12, 8, 4)


def model(dtype=None):
    """Of patches of 8 pixels: a position table of 3 x 3."""
    size = {"image_size": 24, "width": 16, "depth": 1, "mlp_dim": 24}
    return randomize(tiny_vit(**size, variable_size=True, name="flexi", dtype=dtype))


def compiled(made):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(keras.optimizers.SGD(0.1), loss)
    return made


@pytest.mark.parametrize("size", SIZES)
def test_each_size_is_the_resized_model(size):
    with precision("float64"):
        flexi = model("float64")
        resized = keras_vit.resize(flexi, patch_size=size, patch_interpolation="bilinear")
        assert resized.grid == (24 // size, 24 // size)
        with flexi.cut_into(size):
            outputs = forward(flexi, IMAGES)
        assert_close(outputs, forward(resized, IMAGES), 1e-12)
        assert flexi.get_layer("patches").patch_size == (8, 8)


@slow_unless_torch
def test_a_step_of_training_has_the_size_that_was_drawn():
    """Each in its turn: no program of one size is taken for another."""
    images, flexible = IMAGES.astype("float32"), FlexiblePatches(SIZES, seed=2)
    sizes = [flexible.drawn(0, batch) for batch in range(4)]
    assert len(set(sizes)) == 3
    assert sizes == [FlexiblePatches(SIZES, seed=2).drawn(0, batch) for batch in range(4)]
    assert sizes != [flexible.drawn(1, batch) for batch in range(4)]
    trained, weights = compiled(model()), None
    trained.fit(images, LABELS, 2, shuffle=False, callbacks=[flexible], verbose=0)
    for batch, size in enumerate(sizes):
        one = compiled(model())
        if weights:
            one.set_weights(weights)
        rows = slice(2 * batch, 2 * batch + 2)
        with one.cut_into(size):
            one.train_on_batch(images[rows], LABELS[rows])
        weights = one.get_weights()
    for (path, value), expected in zip(values(trained).items(), weights):
        np.testing.assert_allclose(value, expected, atol=1e-5, err_msg=path)


def test_validation_and_the_saved_model_have_the_size_of_the_model(tmp_path):
    images, flexi = IMAGES.astype("float32"), compiled(model())
    options = {"callbacks": [FlexiblePatches(SIZES)], "validation_data": (images, LABELS)}
    history = flexi.fit(images, LABELS, 4, epochs=2, verbose=0, **options).history
    assert flexi.train_function is None
    with flexi.cut_into(8):
        loss = flexi.loss(LABELS, forward(flexi, images))
    assert history["val_loss"][-1] == pytest.approx(float(to_numpy(loss)), abs=1e-4)
    flexi.save(tmp_path / "flexi.keras")
    again = keras.models.load_model(tmp_path / "flexi.keras")
    assert_close(forward(again, images), forward(flexi, images), 1e-5)


@pytest.mark.any_backend
def test_the_recipe():
    recipe = recipes.flexivit("S")
    assert (recipe.variant, recipe.image_size, len(recipe.patch_sizes)) == ("S/30", (240, 240), 10)
    (callback,) = recipe.callbacks()
    assert callback.patch_sizes == recipe.patch_sizes
    assert recipe.model_options()["variable_size"] is True
    assert recipe.model_options()["interpolation"] == "bilinear_antialias"
    refuses(r"patch_sizes must divide .*224, 224", recipe.replace, image_size=224)


@pytest.mark.any_backend
def test_models_of_one_size_are_refused():
    made = compiled(keras_vit.resize(model(), variable_size=False))
    with pytest.raises(ValueError, match="variable_size=True"):
        made.fit(IMAGES, LABELS, callbacks=[FlexiblePatches(SIZES)], verbose=0)
    with pytest.raises(ValueError, match="variable_size=True"), made.cut_into(4):
        pass
    refuses(r"Received: patch_sizes=0|positive integer", FlexiblePatches, (8, 0))
    refuses("at least one size", FlexiblePatches, ())
