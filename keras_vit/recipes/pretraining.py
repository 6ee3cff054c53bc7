"""Pre-training: Table 3, "How to train your ViT?", "Better plain ViT baselines", and BiT."""

import itertools

from keras_vit.checks import check_choice
from keras_vit.models.bit import BIT_VARIANTS
from keras_vit.recipes.datasets import BIG_VISION, big_vision, find_dataset, passes, vit_jax
from keras_vit.recipes.fields import check_known
from keras_vit.recipes.recipe import Recipe
from keras_vit.training.losses import sigmoid_head_bias
from keras_vit.variants import VARIANTS

# Table 3: epochs (the shorter run first) and learning rate. All: batch 4096, warm-up 10,000.
TABLE_3 = {
    "jft300m": {
        "B/16": ((7,), 8e-4),
        "B/32": ((7,), 8e-4),
        "L/32": ((7,), 6e-4),
        "L/16": ((7, 14), 4e-4),
        "H/14": ((14,), 3e-4),
        "R50x1": ((7,), 1e-3),
        "R50x2": ((7,), 1e-3),
        "R101x1": ((7,), 8e-4),
        "R152x1": ((7,), 6e-4),
        "R152x2": ((7,), 6e-4),
        "R50+B/16": ((7,), 8e-4),
        "R50+B/32": ((7,), 8e-4),
        "R50+L/32": ((7,), 2e-4),
        "R50+L/16": ((7, 14), 4e-4),
    },
    "imagenet21k": {
        "B/16": ((90,), 1e-3),
        "B/32": ((90,), 1e-3),
        "L/16": ((30, 90), 1e-3),
        "L/32": ((30, 90), 1e-3),
    },
    "imagenet2012": dict.fromkeys(("B/16", "B/32", "L/16", "L/32", "H/14"), ((300,), 3e-3)),
}
_LINEAR = {"schedule": "linear", "end_learning_rate": 1e-5}
_OF_A_DATASET = {
    "jft300m": {**_LINEAR, "weight_decay": 0.1},
    "imagenet21k": {**_LINEAR, "weight_decay": 0.03, "dropout": 0.1},
    "imagenet2012": {"weight_decay": 0.3, "dropout": 0.1, "clip_norm": 1.0},
}
_ANSWER = "the authors' answer in issue 2, for B/16 on ImageNet-21k"
_NOTES = {
    "jft300m": (
        "JFT-300M is not public; its size is the paper's, 303 million.",
        "Loss, head bias (-log K) and the last learning rate on JFT-300M are not published; they "
        f"are assumed to be as in {_ANSWER}. K is that of Sun et al., 2017.",
    ),
    "imagenet21k": (
        "On ImageNet-21k, loss, head bias and the last learning rate of models but B/16 are "
        f"assumed to be as in {_ANSWER}.",
    ),
    "imagenet2012": (
        "Loss and head bias (-log K) on ImageNet are not published; they are assumed to be as in "
        f"{_ANSWER}, which big_vision's later configs/vit_i1k.py does as well.",
    ),
}


def _sigmoid(record):
    bias = round(sigmoid_head_bias(record.num_classes), 1)
    return {"loss": "sigmoid", "head_bias": bias}


def pretrain(
    variant: str = "B/16", dataset: str = "imagenet21k", epochs: int | None = None
) -> Recipe:
    """Pre-training as in Table 3: Adam, batch 4096, 224 pixels, a warm-up of 10,000 updates.

    Args:
        variant: a model of the table, such as `"B/16"`, `"R50+L/16"` or `"R50x1"` (JFT-300M).
        dataset: `"jft300m"`, `"imagenet21k"` or `"imagenet2012"`, or another name of these.
        epochs: one of the lengths in the table; `None` for the longest.

    Raises:
        ValueError: the table has no such row; the message lists the nearest.
    """
    record = find_dataset(dataset, TABLE_3)
    rows = TABLE_3[record.name]
    check_known(f"variant of Table 3 on {record.name}", variant, rows, "variant")
    lengths, rate = rows[variant]
    epochs = lengths[-1] if epochs is None else epochs
    run = passes(record.all_images(), epochs, 4096, lengths)
    notes = ["The augmentation is not in the table; it is that of the authors' code."]
    if (record.name, variant) != ("imagenet21k", "B/16"):  # which the authors answered
        notes += _NOTES[record.name]
    if variant not in VARIANTS:
        notes.append("A BiT ResNet under Adam, as section 4.1 and appendix D.1 compare it.")
    return Recipe(
        name=f"pretrain-{record.name}-{variant}-{epochs}ep",
        source="Dosovitskiy et al., 2021, Table 3; issue 2 of google-research/vision_transformer "
        "(head)",
        notes=tuple(notes),
        **run,
        variant=variant,
        **vit_jax(224),
        **_sigmoid(record),
        representation_size=VARIANTS[variant].width if variant in VARIANTS else None,
        learning_rate=rate,
        warmup_steps=10_000,
        **_OF_A_DATASET[record.name],
    )


# Level of augmentation: mixup's parameter, RandAugment's (operations, magnitude). "light1" is not
# nothing: two operations of magnitude 0 still equalise or posterise.
LEVELS = {
    "none": (0.0, None),
    "light1": (0.0, (2, 0)),
    "light2": (0.2, (2, 10)),
    "medium1": (0.2, (2, 15)),
    "medium2": (0.5, (2, 15)),
    "strong1": (0.5, (2, 20)),
    "strong2": (0.8, (2, 20)),
}
# The published models; and those for which another level was chosen than "medium2".
STUDIED = "Ti/16 S/32 S/16 B/32 B/16 B/8 L/16 R+Ti/16 R26+S/32 R50+L/32".split()
CHOSEN = {
    "imagenet2012": {"light1": ("Ti/16",), "medium1": ("S/32",)},
    "imagenet21k": {
        "none": ("Ti/16", "R+Ti/16", "S/32"),
        "light1": ("S/16", "R26+S/32"),
        "light2": ("B/32", "B/16"),
        "medium1": ("R50+L/32",),
    },
}


def augreg(
    variant: str = "B/16",
    dataset: str = "imagenet21k",
    augmentation: str | None = None,
    weight_decay: float = 0.1,
    dropout: float = 0.0,
    epochs: int = 300,
) -> Recipe:
    """One cell of the grid of "How to train your ViT?" (Steiner et al., 2021).

    Args:
        variant: one of the study's, such as `"S/16"`.
        dataset: `"imagenet21k"` or `"imagenet2012"`.
        augmentation: `"none"`, `"light1"`, `"light2"`, `"medium1"`, `"medium2"`, `"strong1"` or
            `"strong2"`; `None` for the level that the authors chose for the model.
        weight_decay: 0.1 or 0.03, times the learning rate.
        dropout: 0.0, or 0.1 for dropout and stochastic depth of 0.1 together.
        epochs: 300; 30 is published for ImageNet-21k too.

    Raises:
        ValueError: a value that is no part of the grid.
    """
    record = find_dataset(dataset, CHOSEN)
    check_known("variant of the study", variant, STUDIED, "variant")
    chosen = (level for level, models in CHOSEN[record.name].items() if variant in models)
    level = augmentation or next(chosen, "medium2")
    check_known("augmentation", level, LEVELS)
    of_21k = record.name == "imagenet21k"
    check_choice("weight_decay", weight_decay, (0.1, 0.03))
    check_choice("dropout", dropout, (0.0, 0.1))
    mixup, randaugment = LEVELS[level]
    return Recipe(
        name=f"augreg-{record.name}-{variant}-{epochs}ep-{level}-wd_{weight_decay}-do_{dropout}",
        source="Steiner et al., 2021, section 3; google-research/big_vision, configs/vit_i21k.py "
        "and vit_i1k.py (big_vision's wd 1e-4 is 0.1 times its learning rate)",
        notes=("The class token is pooled, as in the published files.",),
        **passes(record.without_held_out(), epochs, 4096, (300, 30) if of_21k else (300,)),
        variant=variant,
        **big_vision(224, randaugment=randaugment),
        mixup=mixup,
        **_sigmoid(record),
        representation_size=None if of_21k else VARIANTS[variant].width,
        pool="token",
        dropout=dropout,
        stochastic_depth=dropout,
        **{**BIG_VISION, "weight_decay": weight_decay},
    )


def augreg_grid(
    variant: str = "B/16", dataset: str = "imagenet21k", epochs: int = 300
) -> tuple[Recipe, ...]:
    """The 28 recipes of one model: seven augmentations, two decays, with and without dropout.

    Arguments and errors are as in `augreg`.
    """
    cells = itertools.product(LEVELS, (0.1, 0.03), (0.0, 0.1))
    return tuple(augreg(variant, dataset, *cell, epochs) for cell in cells)


def better_plain(epochs: int = 90) -> Recipe:
    """The "better plain ViT" S/16 on ImageNet (Beyer et al., 2022): 76.5 % after 90 epochs.

    Raises:
        ValueError: another length than 90, 150 or 300 epochs; use `scale` for it.
    """
    images = find_dataset("imagenet2012", ("imagenet2012",)).without_held_out()
    return Recipe(
        name=f"better_plain-{epochs}ep",
        source="Beyer et al., 2022; google-research/big_vision, configs/vit_s16_i1k.py",
        **passes(images, epochs, 1024, (90, 150, 300)),
        variant="S/16-plain",
        **big_vision(224, randaugment=(2, 10)),
        mixup=0.2,
        representation_size=384,
        pool="mean",
        position="sincos_2d",
        **BIG_VISION,
    )


def bit_pretrain(variant: str = "R50x1", dataset: str = "imagenet21k") -> Recipe:
    """Pre-training of a BiT ResNet as in big_vision: SGD with momentum, batch 4096, 90 epochs.

    Args:
        variant: a key of `keras_vit.BIT_VARIANTS`, such as `"R50x1"`.
        dataset: `"imagenet2012"` or `"imagenet21k"`.

    Raises:
        ValueError: no such data set or variant; the message lists the nearest.
    """
    check_known("variant", variant, BIT_VARIANTS)
    record = find_dataset(dataset, ("imagenet2012", "imagenet21k"))
    config = "bit_i21k.py"
    settings = {"learning_rate": 0.03 * 16, "warmup_steps": 5000, **_sigmoid(record)}
    if record.name == "imagenet2012":
        config, notes = "bit_i1k.py", ("big_vision trains version v1 of the ResNet here.",)
        settings = {"learning_rate": 0.1 * 16, "warmup_steps": 1000, "notes": notes}
        settings["architecture"] = {"version": "v1"}
    return Recipe(
        name=f"bit-{record.name}-{variant}",
        source=f"google-research/big_vision, configs/{config} (its wd is weight decay times "
        "learning rate)",
        **passes(record.without_held_out(), 90, 4096),
        variant=variant,
        **big_vision(224),
        optimizer="sgdm",
        weight_decay=1e-3,
        clip_norm=1.0,
        **settings,
    )
