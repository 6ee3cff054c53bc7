"""DeiT (Touvron et al., 2021): training on ImageNet alone, with a teacher."""

from keras_vit.data.transform import Transform
from keras_vit.recipes.datasets import TORCHVISION, find_dataset
from keras_vit.recipes.recipe import Recipe
from keras_vit.text import unknown

MODELS = ("Ti/16", "S/16", "B/16")


def deit_distilled(variant: str = "B/16", epochs: int = 300) -> Recipe:
    """DeiT on ImageNet with a distillation token: AdamW, batch 1024, strong augmentation.

    It trains a `keras_vit.training.Distiller` with a teacher of your own, whose own numbers (hard
    labels, half of the loss) are the authors' by default: theirs was a RegNetY-16GF, trained with
    the same augmentation, of 82.9 % accuracy.

    Args:
        variant: `"Ti/16"`, `"S/16"` or `"B/16"`.
        epochs: 300, or 1000 for the longest run; 5 of them are the warm-up.

    Raises:
        ValueError: the authors trained no such model or length; use `scale` for the latter.
    """
    if variant not in MODELS:
        raise unknown("variant of DeiT", variant, MODELS, "variant")
    if epochs not in (300, 1000):
        raise ValueError(f"epochs must be 300 or 1000; scale gives others. Received: {epochs=}.")
    images = find_dataset("imagenet2012", ("imagenet2012",)).all_images()
    updates = images["examples"] / 1024  # of an epoch
    return Recipe(
        name=f"deit_distilled-{variant}-{epochs}ep",
        source="Touvron et al., 2021, Table 9; facebookresearch/deit, main.py",
        notes=(
            "The teacher is yours; the authors' was a RegNetY-16GF, with hard labels and alpha "
            "0.5.",
            "The authors vary RandAugment's magnitude (standard deviation 0.5), erase random boxes "
            "(probability 0.25), show each image three times in an epoch with other augmentation "
            "(repeated augmentation), and end at a learning rate of 1e-5.",
            "The authors' learning rate begins at 1e-6 and changes once in an epoch; here it "
            "begins at 0 and changes with each update.",
        ),
        **images,
        variant=f"DeiT-{variant}-distilled",
        batch_size=1024,
        steps=round(epochs * updates),
        train=Transform(
            224,
            "random_resized",
            area=(0.08, 1.0),
            ratio=(3 / 4, 4 / 3),
            flip=True,
            randaugment=(2, 9),
            **TORCHVISION,
        ),
        eval=Transform(224, "resize_small_center", resize_small=256, **TORCHVISION),
        mixup=0.8,
        cutmix=1.0,
        label_smoothing=0.1,
        stochastic_depth=0.1,
        learning_rate=5e-4 * 1024 / 512,
        warmup_steps=round(5 * updates),
        weight_decay=0.05,
    )
