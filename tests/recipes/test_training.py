"""A recipe at work: what it makes trains models in `model.fit`."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import recipes, training
from tests.support import every_backend, images, refuses, tiny_vit, to_numpy

pytestmark = pytest.mark.any_backend


def data(classes=3, examples=8):
    labels = np.arange(examples) % classes
    return images((examples, 16, 16, 3)), np.eye(classes, dtype="float32")[labels], labels


@pytest.mark.parametrize("name", [pytest.param("adam", marks=every_backend), "sgdm"])
def test_a_recipe_compiles_and_trains(name):
    """One-hot labels in training and integers in evaluation, with every option at once."""
    source = recipes.pretrain("B/16") if name == "adam" else recipes.finetune("imagenet", "L/16")
    recipe = source.scale(batch_size=8, steps=6).replace(
        image_size=16, accumulate=2, ema=0.9, layer_decay=0.8, learning_rate=0.05
    )
    model = recipe.compile(tiny_vit(depth=1))
    assert model.optimizer.get_config()["gradient_accumulation_steps"] == 2
    x, one_hot, labels = data()
    options = {"batch_size": recipe.micro_batch_size, "epochs": recipe.steps, "verbose": 0}
    options |= {"validation_data": (x, labels), "validation_batch_size": 4}
    history = model.fit(x, one_hot, callbacks=recipe.callbacks(), **options).history
    assert int(model.optimizer.iterations) == recipe.steps
    assert history["loss"][-1] < history["loss"][0]
    assert {"val_loss", "val_accuracy", "val_top_5_accuracy"} <= set(history)


@every_backend
def test_the_parts_are_those_of_the_authors():
    recipe = recipes.finetune("imagenet", "H/14")
    optimizer = recipe.make_optimizer().get_config()
    assert isinstance(recipe.make_optimizer(), training.SGDM)
    assert (optimizer["momentum"], optimizer["global_clipnorm"]) == (0.9, 1.0)
    assert (optimizer["use_ema"], optimizer["ema_momentum"]) == (True, 0.9999)
    assert isinstance(recipe.make_schedule(), training.WarmupCosine)
    assert isinstance(recipes.pretrain("B/16").make_optimizer(), training.AdamW)
    assert isinstance(recipes.pretrain("B/16").make_schedule(), training.WarmupLinear)
    assert isinstance(recipes.pretrain("B/16").make_loss(), training.SigmoidLoss)
    assert isinstance(recipes.bit_hyperrule(1000, 1).make_schedule(), training.WarmupStairs)
    rsqrt = recipes.digits().replace(schedule="rsqrt", cooldown_steps=100).make_schedule()
    assert float(to_numpy(rsqrt(990))) == 0.0
    constant = recipes.digits().replace(schedule="constant", warmup_steps=0).make_schedule()
    assert float(to_numpy(constant(500))) == pytest.approx(3e-3)
    assert [metric.name for metric in recipes.digits().metrics()] == ["accuracy"]
    assert recipe.callbacks() and not recipes.digits().callbacks()


def test_the_options_of_the_model_are_taken_by_the_builders():
    recipe = recipes.better_plain().replace(image_size=32, num_classes=5, dropout=0.2)
    model = keras_vit.ViT_Ti16(**recipe.model_options(), depth=1)
    assert model.variant.pool == "mean" and model.variant.position == "sincos_2d"
    assert model.output_shape == (None, 5) and model.get_config()["dropout"] == 0.2
    sigmoid = recipes.augreg("Ti/16", "imagenet").replace(image_size=16).model_options()
    bias = keras_vit.ViT_Ti16(**sigmoid, depth=1).get_layer("head").bias
    np.testing.assert_allclose(to_numpy(bias), -6.9, rtol=1e-6)
    digits = keras_vit.VisionTransformer(**recipes.digits().model_options())
    assert digits.input_shape == (None, 16, 16, 1) and digits.variant.depth == 3
    bit = recipes.bit_pretrain("R50x1", "imagenet").replace(num_classes=3).model_options()
    assert keras_vit.BiT(**bit, blocks=(1,), width=0.5).output_shape == (None, 3)


def kinds():
    """One recipe of each kind of model that is given other arguments than those before it."""
    found = {}
    for recipe in recipes.all_recipes():
        kind = recipe.is_bit or "+" in (recipe.variant or "")
        found.setdefault((kind, recipe.variant is None, *sorted(recipe.model_options())), recipe)
    return found.values()


@pytest.mark.parametrize("recipe", kinds(), ids=lambda recipe: recipe.name)
def test_models_can_be_built_of_every_kind_of_recipe(recipe):
    """With fewer blocks and classes, and of every family that a recipe without variant is for."""
    sizes = {"H/14": 56, "flexivit": 240}  # which the patches divide
    image_size = next((s for kind, s in sizes.items() if kind in recipe.name), 64)
    small = recipe.replace(num_classes=3, image_size=image_size)
    variants = [recipe.variant]
    if recipe.variant is None and not recipe.architecture:
        variants = ["B/16", "R50x1"]
    for variant in variants:
        options = small.model_options()
        if variant and "x" in variant:
            model = keras_vit.BiT(**{**options, "blocks": (1, 1), "width": 1.0})
        else:
            size = {"depth": 1} if variant else {}
            model = keras_vit.VisionTransformer(variant, **{**options, **size})
        assert model.output_shape == (None, 3) and model.image_size == small.image_size


def test_a_bit_takes_the_head_bias_and_what_is_no_model_is_named():
    recipe = recipes.bit_pretrain("R50x1").replace(num_classes=3, image_size=32)
    model = keras_vit.BiT(**recipe.model_options(), blocks=(1,))
    model = keras_vit.BiT.from_config(model.get_config())
    logits = to_numpy(recipe.compile(model)(images((1, 32, 32, 3))))
    np.testing.assert_allclose(logits, -10.0)  # the kernel is zero
    no_model = r"must be a keras.Model. Received: model='B/16'"
    refuses(no_model, recipes.digits().compile, "B/16", error=TypeError)


def test_layer_decay_counts_frozen_blocks():
    model = tiny_vit(depth=2)
    for name in ("block_0", "block_1", "patch_encoder"):
        model.get_layer(name).trainable = False
    recipe = recipes.digits().replace(layer_decay=0.5)
    optimizer = recipe.compile(model).optimizer
    optimizer.build(model.trainable_variables)
    assert set(optimizer.layer_rates) == {1.0}


def test_a_saved_model_trains_on_with_the_recipes_optimizer(tmp_path):
    recipe = recipes.digits().scale(batch_size=8, steps=4)
    model = recipe.compile(tiny_vit(depth=1))
    x, one_hot, _ = data()
    model.fit(x, one_hot, batch_size=8, shuffle=False, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    options = {"batch_size": 8, "epochs": 2, "shuffle": False, "verbose": 0}
    rest = [m.fit(x, one_hot, **options).history["loss"] for m in (model, again)]
    np.testing.assert_allclose(rest[0], rest[1], rtol=1e-5)


def test_own_choices_go_before_the_recipes():
    model = recipes.digits().compile(tiny_vit(depth=1), loss="mse", metrics=[])
    assert model.loss == "mse"
    assert isinstance(model.optimizer, training.AdamW)
