"""The recipes of BiT, the ResNet that the paper compares with (Kolesnikov et al., 2020)."""

from keras_vit.checks import pair, positive_int
from keras_vit.data.transform import Transform
from keras_vit.models.bit import BIT_VARIANTS
from keras_vit.recipes import transforms
from keras_vit.recipes.datasets import find_dataset
from keras_vit.recipes.recipe import Recipe
from keras_vit.text import unknown
from keras_vit.training.losses import sigmoid_head_bias

SMALL_AREA = 96 * 96
# Up to so many images: warm-up, the updates after which the learning rate is divided by ten, end.
SCHEDULES = (
    (20_000, (100, 200, 300, 400, 500)),
    (500_000, (500, 3000, 6000, 9000, 10_000)),
    (float("inf"), (500, 6000, 12_000, 18_000, 20_000)),
)


def bit_pretrain(variant="R50x1", dataset="imagenet21k"):
    """Pre-training of a BiT ResNet as in big_vision: SGD with momentum, batch 4096, 90 epochs.

    Args:
        variant: a key of `keras_vit.BIT_VARIANTS`, such as `"R50x1"`.
        dataset: `"imagenet2012"` or `"imagenet21k"`.

    Returns:
        A `Recipe`.

    Raises:
        ValueError: no such data set or variant; the message lists the nearest.
    """
    if variant not in list(BIT_VARIANTS):
        raise unknown("variant", variant, BIT_VARIANTS)
    facts = find_dataset(dataset, ("imagenet2012", "imagenet21k"))
    of_21k = facts.name == "imagenet21k"
    images = facts.without_held_out()
    train, evaluated = transforms.big_vision(224)
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
        train=train,
        eval=evaluated,
        loss="sigmoid" if of_21k else "softmax",
        head_bias=round(sigmoid_head_bias(facts.num_classes), 1) if of_21k else 0.0,
        optimizer="sgdm",
        learning_rate=(0.03 if of_21k else 0.1) * 4096 / 256,
        schedule="cosine",
        warmup_steps=5000 if of_21k else 1000,
        weight_decay=1e-3,
        clip_norm=1.0,
    )


def bit_hyperrule(num_examples, area, variant=None, num_classes=None):
    """Fine-tuning by the BiT-HyperRule: all follows from how many images there are, and how large.

    Args:
        num_examples: training images.
        area: of an image in pixels, as a number or as (height, width).
        variant: such as `"R50x1"`, or `None`.
        num_classes: K, or `None`.

    Returns:
        A `Recipe`.

    Raises:
        ValueError: a number is not positive, or no such variant.
    """
    positive_int(num_examples, "num_examples")
    if isinstance(area, (tuple, list)):
        height, width = pair(area, "area")
        area = height * width
    small = positive_int(area, "area") < SMALL_AREA
    resize, crop = (160, 128) if small else (512, 480)
    warmup, *boundaries, steps = next(s for limit, s in SCHEDULES if num_examples < limit)
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
