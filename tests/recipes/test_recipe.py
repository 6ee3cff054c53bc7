"""A recipe as a value: changing, scaling, printing, saving, and what it says of mistakes."""

import dataclasses
import json
import pathlib

import keras
import numpy as np
import pytest

from keras_vit import recipes, training
from tests.support import ROOT, refuses

pytestmark = pytest.mark.any_backend


def test_a_recipe_is_frozen_and_replace_makes_another():
    recipe = recipes.digits()
    with pytest.raises(dataclasses.FrozenInstanceError):
        recipe.steps = 3
    assert recipe.replace(dropout=0.2).dropout == 0.2
    assert recipe.dropout == 0.0 and hash(recipe) == hash(recipes.digits())


def test_another_image_size_is_one_for_both_and_keeps_proportions():
    recipe = recipes.finetune("cifar10", source="big_vision").replace(image_size=192)
    assert recipe.train.image_size == recipe.eval.image_size == recipe.image_size == (192, 192)
    assert recipe.train.resize_small == recipe.eval.resize_small == 224
    assert recipes.digits().replace(image_size=(8, 16)).image_size == (8, 16)


def test_a_larger_batch_sees_as_many_images():
    sgd, adam = recipes.finetune("cifar100"), recipes.pretrain("B/16")
    twice = sgd.scale(batch_size=1024)
    assert (twice.steps, twice.warmup_steps, twice.batch_size) == (5000, 250, 1024)
    assert twice.learning_rate == 2 * sgd.learning_rate  # linear under SGD
    assert twice.learning_rates == tuple(2 * rate for rate in sgd.learning_rates)
    quarter = adam.scale(batch_size=1024)
    assert quarter.learning_rate == adam.learning_rate / 2  # the root under Adam
    assert quarter.steps == pytest.approx(4 * adam.steps, abs=2)
    assert quarter.warmup_steps == pytest.approx(40_000, abs=1)
    decay = [r.steps * r.learning_rate * r.weight_decay for r in (adam, quarter)]
    assert decay[0] == pytest.approx(decay[1], rel=1e-5)  # kernels shrink as much
    averaged = recipes.finetune("imagenet", "L/16")
    assert averaged.scale(batch_size=256).ema ** 2 == pytest.approx(averaged.ema)
    assert sgd.scale(batch_size=512) == sgd


def test_another_length_keeps_the_share_of_the_warm_up():
    recipe = recipes.finetune("cifar100").scale(steps=500)
    assert (recipe.steps, recipe.warmup_steps, recipe.learning_rate) == (500, 25, 0.03)
    assert recipes.bit_hyperrule(50_000, 1).scale(steps=1000).boundaries == (300, 600, 900)
    assert recipes.finetune("cifar100").scale(steps=1).warmup_steps == 0
    assert recipes.fashion_mnist().scale(batch_size=64, epochs=3).steps == 3 * 60_000 // 64
    refuses("Give steps or epochs, not both", recipe.scale, steps=3, epochs=2)
    refuses(r"first replace\(examples=...\)", recipe.replace(examples=None).scale, epochs=2)
    for length in ({"epochs": 1e308}, {"epochs": 1e9}, {"steps": 10**400}, {"steps": 2**31}):
        refuses("steps must be at most 2,147,483,647", recipe.scale, **length)
    refuses("batch_size must be a positive integer", recipe.scale, batch_size=-4)


def test_every_recipe_survives_json_and_names_its_source():
    of_numpy = recipes.digits().replace(steps=np.int64(500), batch_size=np.int64(32))
    assert json.loads(json.dumps(of_numpy.to_dict()))["steps"] == 500
    for recipe in recipes.all_recipes():
        again = recipes.Recipe.from_dict(json.loads(json.dumps(recipe.to_dict())))
        assert again == recipe and again.train == recipe.train
        assert recipe.source and recipe.source in str(recipe)
        options = recipe.model_options()
        assert options["image_size"] == recipe.image_size and None not in options.values()


def test_a_recipe_of_an_earlier_version_is_read_and_of_another_refused():
    recipe = recipes.augreg("S/16")
    fields = recipe.to_dict()
    assert recipe.eval.library == fields["train"].pop("library") == "tensorflow_uint8"
    fields["train"]["round_to_uint8"], fields["eval"]["round_to_uint8"] = True, False
    assert recipes.Recipe.from_dict(json.loads(json.dumps(fields))) == recipe
    fields["train"]["library"] = fields["eval"]["library"] = None
    fields["eval"]["round_to_uint8"] = True
    assert recipes.Recipe.from_dict(json.loads(json.dumps(fields))) == recipe
    refuses(r"missing .* 'source'", recipes.Recipe.from_dict, {"name": "x"}, error=TypeError)
    with pytest.raises(TypeError, match="'momentun'"):
        recipes.Recipe.from_dict({**recipes.digits().to_dict(), "momentun": 1})


def test_names_are_unique_and_every_one_is_listed_and_found(capsys):
    for recipe in (recipes.digits(), recipes.augreg("S/16", dropout=0.1)):
        assert recipes.get(recipe.name) == recipe
    found = recipes.list_recipes()
    printed = capsys.readouterr().out.splitlines()
    assert len({recipe.name for recipe in found}) == len(found) == len(printed) - 1
    assert [line.split()[0] for line in printed] == ["recipe", *(r.name for r in found)]
    page = pathlib.Path(ROOT / "docs" / "recipes.md").read_text()
    assert "\n".join(printed) in page, "docs/recipes.md has the table that list_recipes prints"
    said = {recipe.source for recipe in found} | {note for r in found for note in r.notes}
    assert [text for text in said if text not in page] == [], "and each source and note"


def test_the_table_shows_what_was_set():
    recipe = recipes.finetune("cifar100").replace(
        cutmix=1.0, label_smoothing=0.1, ema=0.999, accumulate=4, layer_decay=0.75
    )
    table = dict(recipe.table())
    expected = {"cutmix": "1", "label_smoothing": "0.1", "ema": "0.999", "accumulate": "4"}
    assert expected.items() <= table.items()
    assert table["learning_rates"] == "(0.001, 0.003, 0.01, 0.03)"
    assert table["train"] == "Transform(image_size=(384, 384), crop=inception, flip=True)"
    assert table["momentum"] == "0.9" and table["seed"] == "0"
    unset = {"dropout", "mixup", "beta1", "timescale", "decayed", "pool"}
    assert unset.isdisjoint(table), "what is off, and what SGD with a cosine does not use"


def test_whole_epochs_are_shown_as_whole():
    for recipe, epochs in (
        (recipes.digits().replace(examples=72, warmup_steps=0).scale(epochs=9), "9"),
        (recipes.digits().scale(epochs=2), "2"),
        (recipes.digits().scale(steps=44), "2"),  # of 22 whole batches
        (recipes.finetune("cifar10"), "102.4"),
        (recipes.finetune("imagenet", source="augreg"), "0.1998"),
    ):
        assert dict(recipe.table())["epochs"] == epochs


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: recipes.finetune("cifar1000"), r"the nearest are \['cifar100', 'cifar10'\]"),
        (lambda: recipes.finetune("pets", source="vit_jx"), r"nearest are \['vit_jax'"),
        (lambda: recipes.finetune("pets", source="vit_jax"), "all are .*'cifar10', 'cifar100'"),
        (lambda: recipes.pretrain("B16"), r"nearest are \['B/16'"),
        (lambda: recipes.pretrain("B/16", "imagenet22k"), r"nearest are \['imagenet21k'"),
        (lambda: recipes.pretrain("L/16", "jft300m", epochs=8), "for 7 or 14 epochs"),
        (lambda: recipes.augreg("B/16", augmentation="medium"), r"nearest are \['medium"),
        (lambda: recipes.augreg("B/16", weight_decay=0.2), "Unknown weight_decay"),
        (lambda: recipes.better_plain(100), "epochs=100; use .scale"),
        (lambda: recipes.vtab("clevr"), r"nearest are \['clevr_"),
        (lambda: recipes.get("finetune-cifar"), r"nearest are \['finetune-cifar10"),
        (lambda: recipes.digits().replace(learning_rat=1), r"nearest are \['learning_rat"),
        (lambda: recipes.finetune("cifar10", "B16"), r"nearest are \['B/16'"),
        (lambda: recipes.finetune("pets", source=["paper"]), "Unknown source"),
        (lambda: recipes.finetune("vtab/dtd", source="vit_jax"), "settings of the paper"),
        (lambda: recipes.finetune("vtab"), "Unknown VTAB task. Received: task=''"),
        (lambda: recipes.pretrain("B/16", epochs=90.0), r"Received: epochs=90.0; use .scale"),
        (lambda: recipes.bit_pretrain("R51x1"), r"nearest are \['R50x1'"),
        (lambda: recipes.bit_hyperrule(1000, "big"), "Received: area='big'"),
        (lambda: recipes.bit_hyperrule(1000, 1, "X"), "Unknown variant"),
        (lambda: recipes.get(["digits"]), r"list_recipes\(\) prints all"),
    ],
)
def test_mistakes_are_named_with_what_is_near(call, message):
    refuses(message, call)


def test_every_field_is_checked():
    for field in dataclasses.fields(recipes.Recipe):
        message = rf"^(Unknown )?{field.name}\b.* Received: .*<object"
        refuses(message, recipes.digits().replace, **{field.name: object()})


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"steps": 10}, "warmup_steps=100, steps=10"),
        ({"loss": "hinge"}, "Unknown loss"),
        ({"accumulate": 5}, "accumulate must divide .*Received: accumulate=5, batch_size=64"),
        ({"ema": 1.0}, "ema must be below 1"),
        ({"dropout": 1.0}, "dropout must be a number in"),
        ({"mixup": -0.1}, "mixup must be a number of at least 0"),
        ({"eval": recipes.fashion_mnist().eval}, "train and eval must have one size"),
        ({"warmup_steps": "10"}, "warmup_steps must be a whole number of at least 0"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"cooldown_steps": 5000}, "cooldown_steps must be at most steps"),
        ({"num_classes": 0}, "num_classes must be a positive integer"),
        ({"boundaries": (5, 3)}, "boundaries must rise"),
        ({"boundaries": (5000,)}, "and end at steps or before"),
        ({"learning_rates": (0.1, -1)}, r"learning_rates\[1\] must be a positive number"),
        ({"decayed": "kernel"}, "decayed must be a tuple"),
        ({"representation_size": True}, "representation_size must be a positive integer"),
        ({"variant": "B16"}, r"Received: variant='B16'; the nearest are \['B/16'"),
        ({"train": "squash", "image_size": 8}, "Received: train='squash'"),
        ({"architecture": 3}, "architecture must be a dict"),
        ({"architecture": {"image_size": 3}}, r"replace\(image_size=.*Received: \['image_size'\]"),
        ({"lr": 0.1}, r"Unknown field of a recipe. Received: field='lr'.*learning_rate"),
        ({"variant": "R50x1", "pool": "map"}, "variant of BiT has none of .*pool='map'"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else None,
)
def test_bad_values_are_named(changes, message):
    refuses(message, recipes.digits().replace, **changes)


def test_data_sets_have_the_names_that_people_write():
    names = {"CIFAR-100": "cifar100", "ImageNet": "imagenet2012", "pets": "oxford_iiit_pet"}
    names |= {"Flowers": "oxford_flowers102", "Oxford-IIIT Pet": "oxford_iiit_pet"}
    assert {written: recipes.finetune(written).dataset for written in names} == names


def test_recipes_of_other_problems():
    recipe = recipes.own_images(100, 3)
    several = recipe.for_problem("multi_label")
    assert (several.problem, several.loss, several.label_smoothing) == ("multi_label", "sigmoid", 0)
    assert isinstance(several.make_loss(), training.SigmoidLoss)
    values = recipe.for_problem("regression")
    assert isinstance(values.make_loss(), keras.losses.MeanSquaredError)
    assert [metric.name for metric in values.metrics()] == ["mean_absolute_error", "r2"]
    assert values.for_problem("single_label").loss == "softmax"
    assert recipe.replace(loss="sigmoid").for_problem("single_label").loss == "sigmoid"
    assert type(recipe).from_dict(several.to_dict()) == several
    refuses(r"problem and loss must fit.*for_problem", recipe.replace, problem="multi_label")
    refuses("label_smoothing needs the loss .*0.1", values.replace, label_smoothing=0.1)
    heads = recipe.for_problem({"kind": "single_label", "age": "regression"})
    losses = heads.replace(label_smoothing=0.1).make_loss()  # of the head that has classes
    assert losses["kind"].label_smoothing == 0.1
