"""FlexiViT (Beyer et al., 2023): pre-training with patches of many sizes."""

from keras_vit.checks import check_choice
from keras_vit.recipes.datasets import big_vision, find_dataset
from keras_vit.recipes.recipe import Recipe

# Of images of 240 pixels: 5 to 30 patches on a side.
PATCH_SIZES = (48, 40, 30, 24, 20, 16, 15, 12, 10, 8)


def flexivit(size: str = "B", epochs: int = 90) -> Recipe:
    """FlexiViT on ImageNet-21k, without distillation: each batch has one of ten patch sizes.

    Args:
        size: `"S"`, `"B"` or `"L"`.
        epochs: 90, 300 or 1000.

    Raises:
        ValueError: another model or length; use `scale` for the latter.
    """
    check_choice("size", size, ("S", "B", "L"))
    check_choice("epochs", epochs, (90, 300, 1000))
    record = find_dataset("imagenet21k", ("imagenet21k",))
    images = record.without_held_out()
    return Recipe(
        name=f"flexivit-{record.name}-{size}-{epochs}ep",
        source="Beyer et al., 2023; google-research/big_vision, configs/proj/flexivit/i21k_sup.py "
        "(its wd 1e-4 is 0.1 times its learning rate)",
        notes=(
            "The authors keep kernels of 8 x 8 pixels and a position table of 7 x 7; this model is "
            "one of patches of 30 pixels, whose table is 8 x 8, and is evaluated as such.",
        ),
        **images,
        variant=f"{size}/30",
        architecture={"interpolation": "bilinear_antialias"},
        patch_sizes=PATCH_SIZES,
        batch_size=4096,
        steps=round(epochs * images["examples"] / 4096),
        **big_vision(240, randaugment=(2, 10)),
        mixup=0.2,
        loss="sigmoid",
        head_bias=-10.0,
        learning_rate=1e-3,
        warmup_steps=10_000,
        weight_decay=0.1,
        clip_norm=1.0,
    )
