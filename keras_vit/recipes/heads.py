"""What a recipe has for each of the several heads of a model, and for labels of each problem."""

import dataclasses
from collections.abc import Mapping
from typing import TypeVar

from keras_vit.checks import check_choice
from keras_vit.heads import heads_of, map_heads

Recipe = TypeVar("Recipe")  # of recipe.py, which imports this file
LOSSES = {  # of each problem
    "single_label": ("softmax", "sigmoid"),
    "multi_label": ("sigmoid",),
    "regression": ("squared",),
}
# Fields that may be dicts by head; of those with one value it is that of all heads.
BY_HEAD = ("problem", "loss", "num_classes", "label_smoothing", "class_weights")


class ByHead(dict):
    """What a recipe has for each head, {head: value}; it can be hashed, as recipes can."""

    def __hash__(self):
        return hash(tuple(self.items()))


def by_head(check, alone=None):
    """The check for a value, or for a dict {head: value} of several heads.

    `alone` is the check of what is no such dict, where it is another.
    """

    def check_each(value, name):
        if not value or not isinstance(value, Mapping):
            return (alone or check)(value, name)
        return ByHead((str(head), check(v, f"{name}[{head!r}]")) for head, v in value.items())

    return check_each


def of_heads(recipe):
    """{head: the recipe as if it were for that head alone}; {} of a recipe for one output."""
    if not isinstance(recipe.problem, Mapping):
        return {}
    usual = {f.name: f.default for f in dataclasses.fields(recipe) if f.name in BY_HEAD}

    def alone(*values):
        changes = {name: value for name, value in zip(BY_HEAD, values) if value is not None}
        if changes.get("loss") == "squared" and not isinstance(recipe.label_smoothing, Mapping):
            changes.pop("label_smoothing", None)  # that of all heads which have classes
        return dataclasses.replace(recipe, **{**usual, **changes}, loss_weights=())

    return map_heads(alone, *(getattr(recipe, name) for name in BY_HEAD))


def check_heads(r):
    """Raises a ValueError where dicts by head name other heads than the problems of a recipe."""
    heads = set(r.problem) if isinstance(r.problem, Mapping) else set()
    for name in (*BY_HEAD, "loss_weights"):
        value = getattr(r, name)
        if isinstance(value, Mapping) and (others := set(value) - heads):
            raise ValueError(
                f"{name} must name heads of the recipe, those of its problem: "
                f"{', '.join(sorted(heads)) or 'it has one output'}. Received: "
                f"{', '.join(map(repr, sorted(others)))}; for_problem({{head: problem}}) sets them."
            )


def check_outputs(recipe, model):
    """Raises a ValueError unless the outputs of a model are the heads of a recipe."""
    heads, outputs = set(recipe.problem), set(heads_of(model))
    if heads != outputs:
        raise ValueError(
            f"The recipe is for the heads {', '.join(sorted(heads))}. Received: a model with the "
            f"outputs {', '.join(sorted(outputs)) or 'of one head'}; keras_vit.add_heads makes "
            "one, or keras.Model(inputs, {head: output})."
        )


def for_problem(recipe: Recipe, problem: str | dict[str, str]) -> Recipe:
    """The recipe for labels of another problem: with its loss, and without label smoothing.

    Args:
        problem: `"single_label"`, `"multi_label"` or `"regression"`; or {head: problem} of the
            several heads of a model, of which each has its loss and its metrics.

    Raises:
        ValueError: another problem.
    """
    if problem == recipe.problem:
        return recipe
    if isinstance(recipe.problem, Mapping):  # of other heads
        first = next(iter(of_heads(recipe).values()))
        recipe = dataclasses.replace(first, num_classes=None, class_weights=())
    if isinstance(problem, Mapping):
        plain = dataclasses.replace(recipe, num_classes=None, class_weights=())
        heads = {head: for_problem(plain, each) for head, each in problem.items()}
        names = ("problem", "loss", "label_smoothing")
        changes = {n: {head: getattr(r, n) for head, r in heads.items()} for n in names}
        return dataclasses.replace(plain, **changes)
    check_choice("problem", problem, tuple(LOSSES))
    if recipe.loss == "own":
        return dataclasses.replace(recipe, problem=problem)
    loss = LOSSES[problem][0]
    return dataclasses.replace(recipe, problem=problem, loss=loss, label_smoothing=0.0)
