"""A recipe for the several heads of a model."""

import json

import pytest

from keras_vit import recipes
from tests.support import refuses, tiny_vit

pytestmark = pytest.mark.any_backend
HEADS = {"breed": "single_label", "age": "regression", "tags": "multi_label"}


def test_a_recipe_of_several_heads_has_what_each_alone_would_have():
    digits = recipes.digits()
    recipe = digits.for_problem(HEADS).replace(
        num_classes={"breed": 200, "age": 1, "tags": 3},
        class_weights={"breed": (1.0,) * 200},
        loss_weights={"age": 0.5},
    )
    assert recipe.loss == {"breed": "softmax", "age": "squared", "tags": "sigmoid"}
    assert recipe.label_smoothing == {"breed": digits.label_smoothing, "age": 0, "tags": 0}
    assert recipe.monitor == "val_loss"
    assert recipe.replace(keep_best="val_breed_accuracy").monitor == "val_breed_accuracy"
    names = {head: [metric.name for metric in each] for head, each in recipe.metrics().items()}
    assert names == {
        "breed": ["accuracy", "top_5_accuracy"],
        "age": ["mean_absolute_error", "r2"],
        "tags": ["mean_average_precision"],
    }
    for head, problem in HEADS.items():
        alone = digits.for_problem(problem).replace(num_classes=recipe.num_classes[head])
        alone = alone.replace(class_weights=recipe.class_weights.get(head, ()))
        assert recipe.make_loss()[head].get_config() == alone.make_loss().get_config()
    assert "loss_weights" not in digits.to_dict(), "as runs of before it was a field"
    again = recipes.Recipe.from_dict(json.loads(json.dumps(recipe.to_dict())))
    assert again == recipe and hash(again) == hash(recipe)
    assert "breed=softmax, age=squared" in str(recipe)
    assert recipe.for_problem(HEADS) is recipe
    alone = digits.for_problem("regression")
    assert recipe.for_problem("regression").replace(num_classes=10) == alone


def test_heads_that_a_recipe_has_not():
    recipe = recipes.digits().for_problem(HEADS)
    other = r"heads of the recipe.*age, breed, tags\. Received: 'size'"
    wrong = [
        ({"loss_weights": {"size": 2}}, other),
        ({"loss_weights": 2}, r"a dict \{head: weight\}"),
        ({"loss_weights": {"age": -1}}, r"loss_weights\['age'\]"),
        ({"class_weights": {"age": (1.0, 2.0)}}, "Head 'age': class_weights need"),
        ({"loss": {**recipe.loss, "age": "softmax"}}, "Head 'age': problem and loss must fit"),
        ({"num_classes": {"size": 3}}, "num_classes must name heads"),
        ({"keep_best": "accuracy"}, "such as 'val_loss'"),
    ]
    for changes, match in wrong:
        refuses(match, recipe.replace, **changes)
    refuses(r"it has one output\. Received: 'a'", recipes.digits().replace, loss_weights={"a": 2.0})
    refuses(r"the heads age, breed, tags\. Received: .* of one head", recipe.compile, tiny_vit())
