"""Later ways of training: DeiT with a teacher, masked autoencoders, patches of many sizes."""

from keras_vit.checks import check_choice, positive_int
from keras_vit.data.transform import Transform
from keras_vit.recipes.datasets import BIG_VISION, TORCHVISION, big_vision, find_dataset, passes
from keras_vit.recipes.fields import check_known
from keras_vit.recipes.recipe import Recipe

IMAGENET = find_dataset("imagenet2012", ("imagenet2012",)).all_images()
CROP = {"crop": "random_resized", "ratio": (3 / 4, 4 / 3), "flip": True, **TORCHVISION}
EVAL = Transform(224, "resize_small_center", resize_small=256, **TORCHVISION)
# DeiT's augmentation, with which masked autoencoders are fine-tuned, too.
STRONG = {"mixup": 0.8, "cutmix": 1.0, "label_smoothing": 0.1, "weight_decay": 0.05, "eval": EVAL}
STRONG["train"] = Transform(224, area=(0.08, 1.0), randaugment=(2, 9), **CROP)
STRONG["warmup_steps"] = round(5 * IMAGENET["examples"] / 1024)
DEIT_MODELS = ("Ti/16", "S/16", "B/16")
MAE_AUTHORS = "He et al., 2022; facebookresearch/mae"
# FINETUNE.md: epochs, learning rate for 256 images, layer decay, stochastic depth.
MAE_FINETUNED = {
    "B/16": (100, 5e-4, 0.65, 0.1),
    "L/16": (50, 1e-3, 0.75, 0.2),
    "H/14": (50, 1e-3, 0.75, 0.3),
}
# Of images of 240 pixels: 5 to 30 patches on a side.
PATCH_SIZES = (48, 40, 30, 24, 20, 16, 15, 12, 10, 8)


def deit_distilled(variant: str = "B/16", epochs: int = 300) -> Recipe:
    """DeiT on ImageNet with a distillation token: AdamW, batch 1024, strong augmentation.

    It trains a `keras_vit.training.Distiller` with a teacher of your own; hard labels and half of
    the loss are the authors' and the default.

    Args:
        variant: `"Ti/16"`, `"S/16"` or `"B/16"`.
        epochs: 300, or 1000 for the longest run; 5 of them are the warm-up.

    Raises:
        ValueError: the authors trained no such model or length; use `scale` for the latter.
    """
    check_known("variant of DeiT", variant, DEIT_MODELS, "variant")
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
        **passes(IMAGENET, epochs, 1024, (300, 1000)),
        **STRONG,
        variant=f"DeiT-{variant}-distilled",
        stochastic_depth=0.1,
        learning_rate=5e-4 * 1024 / 512,
    )


def mae_pretrain(variant: str = "L/16", epochs: int = 800) -> Recipe:
    """Pre-training of a masked autoencoder on ImageNet: AdamW, batch 4096, three quarters hidden.

    The model is `keras_vit.training.MaskedAutoencoder`, whose own numbers (share, decoder,
    normalised pixels) are the authors' by default.

    Args:
        variant: `"B/16"`, `"L/16"` or `"H/14"`.
        epochs: passes through ImageNet, 40 of them the warm-up; the authors' longest run has 1600.

    Raises:
        ValueError: the authors trained no such model, or there are no more epochs than 40.
    """
    check_known("variant of the masked autoencoders", variant, MAE_FINETUNED, "variant")
    return Recipe(
        name=f"mae_pretrain-{variant}-{epochs}ep",
        source=f"{MAE_AUTHORS}, PRETRAIN.md and main_pretrain.py; Table 8 of the paper",
        notes=("The frequencies of the authors' positions lie a little closer together.",),
        **passes(IMAGENET, positive_int(epochs, "epochs"), 4096),
        variant=variant,
        position="sincos_2d",
        train=Transform(224, area=(0.2, 1.0), **CROP),
        eval=EVAL,
        loss="own",
        learning_rate=1.5e-4 * 4096 / 256,
        warmup_steps=round(40 * IMAGENET["examples"] / 4096),
        beta2=0.95,
        weight_decay=0.05,
        # timm spares biases and norms only; these are kernels and the learned tokens.
        decayed=("kernel", "class_token", "mask"),
    )


def mae_finetune(variant: str = "L/16") -> Recipe:
    """Fine-tuning of a masked autoencoder's encoder on ImageNet, mean of the patches pooled.

    Args:
        variant: `"B/16"`, `"L/16"` or `"H/14"`.

    Raises:
        ValueError: the authors fine-tuned no such model.
    """
    check_known("variant of the masked autoencoders", variant, MAE_FINETUNED, "variant")
    epochs, rate, layer_decay, stochastic_depth = MAE_FINETUNED[variant]
    return Recipe(
        name=f"mae_finetune-{variant}",
        source=f"{MAE_AUTHORS}, FINETUNE.md and main_finetune.py; Table 9 of the paper",
        notes=(
            "For models that were pre-trained on normalised pixels; the paper's table has 1e-3, "
            "0.75 and stochastic depth 0.1 (B, L) or 0.2 (H).",
            "The authors vary RandAugment's magnitude (standard deviation 0.5), erase random boxes "
            "(probability 0.25, within the noise), and end at a learning rate of 1e-6.",
        ),
        **passes(IMAGENET, epochs, 1024),
        **STRONG,
        variant=variant,
        architecture={"norm_after_pool": True},
        pool="mean",
        stochastic_depth=stochastic_depth,
        learning_rate=rate * 1024 / 256,
        layer_decay=layer_decay,
    )


def flexivit(size: str = "B", epochs: int = 90) -> Recipe:
    """FlexiViT on ImageNet-21k, without distillation: each batch has one of ten patch sizes.

    Args:
        size: `"S"`, `"B"` or `"L"`.
        epochs: 90, 300 or 1000.

    Raises:
        ValueError: another model or length; use `scale` for the latter.

    Source: Beyer et al., 2023.
    """
    check_choice("size", size, ("S", "B", "L"))
    images = find_dataset("imagenet21k", ("imagenet21k",)).without_held_out()
    return Recipe(
        name=f"flexivit-imagenet21k-{size}-{epochs}ep",
        source="Beyer et al., 2023; google-research/big_vision, configs/proj/flexivit/i21k_sup.py "
        "(its wd 1e-4 is 0.1 times its learning rate)",
        notes=(
            "The authors keep kernels of 8 x 8 pixels and a position table of 7 x 7; this model is "
            "one of patches of 30 pixels, whose table is 8 x 8, and is evaluated as such.",
        ),
        **passes(images, epochs, 4096, (90, 300, 1000)),
        variant=f"{size}/30",
        architecture={"interpolation": "bilinear_antialias"},
        patch_sizes=PATCH_SIZES,
        **big_vision(240, randaugment=(2, 10)),
        mixup=0.2,
        loss="sigmoid",
        head_bias=-10.0,
        **BIG_VISION,
    )
