"""Other studies by the authors: "How to train your ViT?", "Better plain ViT baselines", and BiT."""

from keras_vit.checks import check_choice, positive_int
from keras_vit.data.transform import Transform
from keras_vit.models.bit import BIT_VARIANTS
from keras_vit.recipes.datasets import DATASETS, big_vision, find_dataset
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
            `"strong2"`; `None` for the level that the authors chose for the model, or `"medium2"`
            if they chose none.
        weight_decay: 0.1 or 0.03, times the learning rate.
        dropout: 0.0, or 0.1 for dropout and stochastic depth of 0.1 together.
        epochs: 300; 30 is published for ImageNet-21k too.

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
    return Recipe(
        name=f"augreg-{facts.name}-{variant}-{epochs}ep-{level}-wd_{weight_decay}-do_{dropout}",
        source="Steiner et al., 2021, section 3; google-research/big_vision, configs/vit_i21k.py "
        "and vit_i1k.py (big_vision's wd 1e-4 is 0.1 times its learning rate)",
        notes=("The class token is pooled, as in the published files.",),
        **images,
        variant=variant,
        batch_size=4096,
        steps=round(epochs * images["examples"] / 4096),
        **big_vision(224, randaugment=randaugment),
        mixup=mixup,
        loss="sigmoid",
        head_bias=round(sigmoid_head_bias(facts.num_classes), 1),
        representation_size=None if of_21k else VARIANTS[variant].width,
        pool="token",
        dropout=dropout,
        stochastic_depth=dropout,
        learning_rate=1e-3,
        warmup_steps=10_000,
        weight_decay=weight_decay,
        clip_norm=1.0,
    )


def augreg_grid(variant="B/16", dataset="imagenet21k", epochs=300):
    """The 28 recipes of one model: seven augmentations, two decays, with and without dropout.

    Args:
        variant, dataset, epochs: as for `augreg`.
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

    Raises:
        ValueError: another number of epochs; use `scale` for it.
    """
    if epochs not in (90, 150, 300) or not isinstance(epochs, int):
        raise ValueError(
            "The study trains for 90, 150 or 300 epochs. Received: "
            f"epochs={epochs!r}; use .scale(epochs=...) for another length."
        )
    images = DATASETS["imagenet2012"].without_held_out()
    return Recipe(
        name=f"better_plain-{epochs}ep",
        source="Beyer et al., 2022; google-research/big_vision, configs/vit_s16_i1k.py",
        **images,
        variant="S/16-plain",
        batch_size=1024,
        steps=round(epochs * images["examples"] / 1024),
        **big_vision(224, randaugment=(2, 10)),
        mixup=0.2,
        representation_size=384,
        pool="mean",
        position="sincos_2d",
        learning_rate=1e-3,
        warmup_steps=10_000,
        weight_decay=0.1,
        clip_norm=1.0,
    )


# Up to so many images: warm-up, the updates after which the learning rate is divided by ten, end.
HYPERRULE = (
    (20_000, (100, 200, 300, 400, 500)),
    (500_000, (500, 3000, 6000, 9000, 10_000)),
    (float("inf"), (500, 6000, 12_000, 18_000, 20_000)),
)


def bit_pretrain(variant="R50x1", dataset="imagenet21k"):
    """Pre-training of a BiT ResNet as in big_vision: SGD with momentum, batch 4096, 90 epochs.

    Args:
        variant: a key of `keras_vit.BIT_VARIANTS`, such as `"R50x1"`.
        dataset: `"imagenet2012"` or `"imagenet21k"`.

    Raises:
        ValueError: no such data set or variant; the message lists the nearest.
    """
    if variant not in list(BIT_VARIANTS):
        raise unknown("variant", variant, BIT_VARIANTS)
    facts = find_dataset(dataset, ("imagenet2012", "imagenet21k"))
    of_21k = facts.name == "imagenet21k"
    images = facts.without_held_out()
    return Recipe(
        name=f"bit-{facts.name}-{variant}",
        source="google-research/big_vision, configs/"
        + ("bit_i21k.py" if of_21k else "bit_i1k.py")
        + " (its wd is weight decay times learning rate)",
        notes=() if of_21k else ("big_vision trains version v1 of the ResNet here.",),
        **images,
        variant=variant,
        architecture={} if of_21k else {"version": "v1"},
        batch_size=4096,
        steps=round(90 * images["examples"] / 4096),
        **big_vision(224),
        loss="sigmoid" if of_21k else "softmax",
        head_bias=round(sigmoid_head_bias(facts.num_classes), 1) if of_21k else 0.0,
        optimizer="sgdm",
        learning_rate=(0.03 if of_21k else 0.1) * 4096 / 256,
        warmup_steps=5000 if of_21k else 1000,
        weight_decay=1e-3,
        clip_norm=1.0,
    )


def bit_hyperrule(num_examples, area, variant=None, num_classes=None):
    """Fine-tuning by the BiT-HyperRule: all follows from how many images there are, and how large.

    Args:
        num_examples: training images.
        area: height times width of an image, in pixels.
        variant: such as `"R50x1"`, or `None`.
        num_classes: K, or `None`.

    Raises:
        ValueError: a number is not positive, or no such variant.
    """
    positive_int(num_examples, "num_examples")
    small = positive_int(area, "area") < 96 * 96
    resize, crop = (160, 128) if small else (512, 480)
    warmup, *boundaries, steps = next(s for limit, s in HYPERRULE if num_examples < limit)
    return Recipe(
        name=f"bit_hyperrule-{num_examples}-{'small' if small else 'large'}",
        source="Kolesnikov et al., 2020, section 3.3; google-research/big_transfer, "
        "bit_hyperrule.py",
        notes=(
            "Half of the images are mirrored, as the paper says; the authors' TF2 and JAX pipeline "
            "mirrors every one.",
        ),
        dataset="any",
        variant=variant,
        examples=num_examples,
        num_classes=num_classes,
        batch_size=512,
        steps=steps,
        train=Transform(crop, "squash_random", resize_small=resize, flip=True),
        eval=Transform(crop, "squash"),
        mixup=0.1 if num_examples >= 20_000 else 0.0,
        optimizer="sgdm",
        learning_rate=0.003,
        schedule="stairs",
        warmup_steps=warmup,
        boundaries=tuple(boundaries),
    )
