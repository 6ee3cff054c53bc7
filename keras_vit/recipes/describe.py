"""A recipe in words: the settings that matter, by the names that change them."""

import dataclasses

from keras_vit.data.transform import Transform


def settings(recipe):
    """(field, value) of all that a recipe sets, as text; see `Recipe.table`."""
    unused = {"momentum"} if recipe.optimizer == "adam" else {"beta1", "beta2", "epsilon"}
    unused |= set() if recipe.schedule == "rsqrt" else {"timescale"}
    unused |= set() if recipe.weight_decay else {"decayed"}
    rows = []
    for field in dataclasses.fields(recipe):
        value = getattr(recipe, field.name)
        if (value or field.name == "seed") and field.name not in unused | {"notes"}:
            rows.append((field.name, _shown(value)))
        if field.name == "steps" and recipe.passes:
            rows.append(("epochs", epochs(recipe)))
    return [*rows, *(("note", note) for note in recipe.notes)]


def epochs(recipe):
    """Passes as text: a whole number where the updates are as near to it as they can be."""
    if not recipe.passes:
        return ""
    whole = max(1, round(recipe.passes))
    is_nearest = recipe.steps == max(1, round(whole * recipe.examples / recipe.batch_size))
    return str(whole) if is_nearest else f"{recipe.passes:.4g}"


def _shown(value):
    """A setting as text: numbers in six digits, and of a transform what is not its default."""
    if isinstance(value, Transform):
        fields = [f for f in dataclasses.fields(value) if getattr(value, f.name) != f.default]
        settings = [f"{f.name}={_shown(getattr(value, f.name))}" for f in fields]
        return f"Transform({', '.join(settings)})"
    if isinstance(value, tuple):
        return f"({', '.join(map(_shown, value))})"
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if type(value) is int else str(value)
