"""A recipe for another batch, another length or other sizes of images."""

import dataclasses

from keras_vit.checks import positive_float, positive_int
from keras_vit.recipes.fields import MOST_UPDATES, Recipe, updates


def scale(
    recipe: Recipe,
    batch_size: int | None = None,
    steps: int | None = None,
    epochs: float | None = None,
) -> Recipe:
    """The recipe for another batch or number of updates.

    With k times the batch, the run sees as many images: steps, warm-up, boundaries and so on are
    divided by k. The learning rates are multiplied by k under SGD (Goyal et al., 2017; the authors
    of BiT), and by √k under Adam (Malladi et al., 2022); so is the weight decay under Adam, and a
    kernel shrinks as much in the whole run as before. The momentum of the averaged weights is taken
    to the power of k (Busbridge et al., 2023): the average reaches as many images back.

    With another number of steps or epochs, warm-up, boundaries and so on keep their share of
    the run; learning rate, decay and averaging stay.

    Args:
        batch_size: images per update; `None` keeps it. Where the recipe's `accumulate` does not
            divide it, the copy has `accumulate=1`.
        steps: updates in the whole run; `None` follows from `epochs`, or from as many images.
        epochs: passes through the training images, instead of `steps`.

    Raises:
        ValueError: a number is not positive, or `epochs` beside `steps` or for unknown images.
    """
    batch_size = positive_int(recipe.batch_size if batch_size is None else batch_size, "batch_size")
    k = batch_size / recipe.batch_size
    if epochs is not None:
        if steps is not None:
            raise ValueError(f"Give steps or epochs, not both. Received: {steps=}, {epochs=}.")
        if not recipe.examples:
            raise ValueError(
                f"{recipe.name} has no known number of images; give steps, or first "
                f"replace(examples=...). Received: {epochs=}."
            )
        wanted = positive_float(epochs, "epochs") * recipe.examples / batch_size
        steps = max(1, round(min(wanted, 2.0 * MOST_UPDATES)))
    if steps is None:
        steps = max(1, round(recipe.steps / k))
    share = updates(steps, "steps") / recipe.steps
    adam = recipe.optimizer == "adam"
    factor = k**0.5 if adam else k
    return dataclasses.replace(
        recipe,
        batch_size=batch_size,
        accumulate=recipe.accumulate if batch_size % recipe.accumulate == 0 else 1,
        steps=steps,
        warmup_steps=min(round(recipe.warmup_steps * share), steps - 1),
        cooldown_steps=round(recipe.cooldown_steps * share),
        timescale=max(1, round(recipe.timescale / k)),
        boundaries=tuple(round(boundary * share) for boundary in recipe.boundaries),
        learning_rate=recipe.learning_rate * factor,
        learning_rates=tuple(rate * factor for rate in recipe.learning_rates),
        weight_decay=recipe.weight_decay * (factor if adam else 1),
        ema=recipe.ema and recipe.ema**k,
    )


def resized(transform, image_size):
    """The transform for another image size; what it cuts from grows in proportion."""
    small = transform.resize_small
    if small is not None:
        factor = max(image_size) / max(transform.image_size)
        small = max(round(small * factor), max(image_size))
    return dataclasses.replace(transform, image_size=image_size, resize_small=small)
