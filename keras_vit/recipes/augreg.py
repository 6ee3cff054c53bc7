"""Two later studies by the authors: "How to train your ViT?" and "Better plain ViT baselines"."""

from keras_vit.checks import check_choice
from keras_vit.recipes import transforms
from keras_vit.recipes.datasets import find_dataset
from keras_vit.recipes.recipe import Recipe
from keras_vit.text import unknown
from keras_vit.training.losses import sigmoid_head_bias
from keras_vit.variants import VARIANTS

# Level: mixup's parameter, RandAugment's (operations, magnitude). "light1" is not nothing: two
# operations of magnitude 0 still equalise or posterise.
LEVELS = {
    "none": (0.0, None),
    "light1": (0.0, (2, 0)),
    "light2": (0.2, (2, 10)),
    "medium1": (0.2, (2, 15)),
    "medium2": (0.5, (2, 15)),
    "strong1": (0.5, (2, 20)),
    "strong2": (0.8, (2, 20)),
}
CHOSEN = {
    "imagenet2012": {"Ti/16": "light1", "S/32": "medium1"},
    "imagenet21k": {
        "Ti/16": "none",
        "R+Ti/16": "none",
        "S/32": "none",
        "S/16": "light1",
        "R26+S/32": "light1",
        "B/32": "light2",
        "B/16": "light2",
        "R50+L/32": "medium1",
    },
}
STUDIED = (
    "Ti/16 S/32 S/16 B/32 B/16 B/8 L/16 R+Ti/16 R26+S/32 R50+L/32".split()  # the published ones
)


def augreg(
    variant="B/16",
    dataset="imagenet21k",
    augmentation=None,
    weight_decay=0.1,
    dropout=0.0,
    epochs=300,
):
    """One cell of the grid of "How to train your ViT?" (Steiner et al., 2021).

    Args:
        variant: one of the study's, such as `"S/16"`.
        dataset: `"imagenet21k"` or `"imagenet2012"`.
        augmentation: `"none"`, `"light1"`, `"light2"`, `"medium1"`, `"medium2"`, `"strong1"` or
            `"strong2"`; `None` for the level that the authors chose for the model, `"medium2"`
            where they name none.
        weight_decay: 0.1 or 0.03, times the learning rate.
        dropout: 0.0, or 0.1 for dropout and stochastic depth of 0.1 together.
        epochs: 300; 30 is published for ImageNet-21k too.

    Returns:
        A `Recipe`.

    Raises:
        ValueError: a value that is no part of the grid.
    """
    facts = find_dataset(dataset, CHOSEN)
    if variant not in STUDIED:
        raise unknown("variant of the study", variant, STUDIED, "variant")
    level = augmentation or CHOSEN[facts.name].get(variant, "medium2")
    if level not in LEVELS:
        raise unknown("augmentation", level, LEVELS)
    check_choice("weight_decay", weight_decay, (0.1, 0.03))
    check_choice("dropout", dropout, (0.0, 0.1))
    check_choice("epochs", epochs, (300, 30) if facts.name == "imagenet21k" else (300,))
    mixup, randaugment = LEVELS[level]
    of_21k = facts.name == "imagenet21k"
    images = facts.without_held_out()
    train, evaluated = transforms.big_vision(224, randaugment=randaugment)
    name = f"augreg-{facts.name}-{variant}-{epochs}ep-{level}-wd_{weight_decay}-do_{dropout}"
    return Recipe(
        name=name,
        source="Steiner et al., 2021, section 3; google-research/big_vision, configs/vit_i21k.py "
        "and vit_i1k.py (big_vision's wd 1e-4 is 0.1 times its learning rate)",
        notes=("The class token is pooled, as in the published files.",),
        **images,
        variant=variant,
        batch_size=4096,
        steps=round(epochs * images["examples"] / 4096),
        train=train,
        eval=evaluated,
        mixup=mixup,
        loss="sigmoid",
        head_bias=round(sigmoid_head_bias(facts.num_classes), 1),
        representation_size=None if of_21k else VARIANTS[variant].width,
        pool="token",
        dropout=dropout,
        stochastic_depth=dropout,
        learning_rate=1e-3,
        schedule="cosine",
        warmup_steps=10_000,
        weight_decay=weight_decay,
        clip_norm=1.0,
    )


def augreg_grid(variant="B/16", dataset="imagenet21k", epochs=300):
    """The 28 recipes of one model: seven augmentations, two decays, with and without dropout.

    Args:
        variant, dataset, epochs: as for `augreg`.

    Returns:
        A tuple of `Recipe`.
    """
    return tuple(
        augreg(variant, dataset, level, decay, dropout, epochs)
        for level in LEVELS
        for decay in (0.1, 0.03)
        for dropout in (0.0, 0.1)
    )


def better_plain(epochs=90):
    """The "better plain ViT" S/16 on ImageNet (Beyer et al., 2022): 76.5 % after 90 epochs.

    Args:
        epochs: 90, 150 or 300.

    Returns:
        A `Recipe`.

    Raises:
        ValueError: another number of epochs; use `scale` for it.
    """
    if epochs not in (90, 150, 300) or not isinstance(epochs, int):
        raise ValueError(
            "The study trains for 90, 150 or 300 epochs. Received: "
            f"epochs={epochs!r}; use .scale(epochs=...) for another length."
        )
    images = find_dataset("imagenet2012").without_held_out()
    train, evaluated = transforms.big_vision(224, randaugment=(2, 10))
    return Recipe(
        name=f"better_plain-{epochs}ep",
        source="Beyer et al., 2022; google-research/big_vision, configs/vit_s16_i1k.py",
        **images,
        variant="S/16-plain",
        batch_size=1024,
        steps=round(epochs * images["examples"] / 1024),
        train=train,
        eval=evaluated,
        mixup=0.2,
        loss="softmax",
        representation_size=384,
        pool="mean",
        position="sincos_2d",
        learning_rate=1e-3,
        schedule="cosine",
        warmup_steps=10_000,
        weight_decay=0.1,
        clip_norm=1.0,
    )
