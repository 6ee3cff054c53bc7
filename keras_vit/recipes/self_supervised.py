"""Pre-training without labels, and what follows it: masked autoencoders (He et al., 2022)."""

from keras_vit.checks import positive_int
from keras_vit.data.transform import Transform
from keras_vit.recipes.datasets import TORCHVISION, find_dataset
from keras_vit.recipes.recipe import Recipe
from keras_vit.text import unknown

AUTHORS = "He et al., 2022; facebookresearch/mae"
MODELS = ("B/16", "L/16", "H/14")
# FINETUNE.md: epochs, learning rate for 256 images, layer decay, stochastic depth.
FINETUNED = {
    "B/16": (100, 5e-4, 0.65, 0.1),
    "L/16": (50, 1e-3, 0.75, 0.2),
    "H/14": (50, 1e-3, 0.75, 0.3),
}
CROP = {"crop": "random_resized", "ratio": (3 / 4, 4 / 3), "flip": True, **TORCHVISION}
EVAL = Transform(224, "resize_small_center", resize_small=256, **TORCHVISION)


def _images(variant):
    if variant not in MODELS:
        raise unknown("variant of the masked autoencoders", variant, MODELS, "variant")
    return find_dataset("imagenet2012", ("imagenet2012",)).all_images()


def mae_pretrain(variant: str = "L/16", epochs: int = 800) -> Recipe:
    """Pre-training of a masked autoencoder on ImageNet: AdamW, batch 4096, three quarters hidden.

    The model is `keras_vit.training.MaskedAutoencoder`, whose own numbers (share, decoder,
    normalised pixels) are the authors' by default.

    Args:
        variant: `"B/16"`, `"L/16"` or `"H/14"`.
        epochs: passes through ImageNet, of which 40 are the warm-up; the authors' longest run has
            1600.

    Raises:
        ValueError: the authors trained no such model, or there are no more epochs than 40.
    """
    images = _images(variant)
    updates = images["examples"] / 4096  # of an epoch
    return Recipe(
        name=f"mae_pretrain-{variant}-{epochs}ep",
        source=f"{AUTHORS}, PRETRAIN.md and main_pretrain.py; Table 8 of the paper",
        notes=("The frequencies of the authors' positions lie a little closer together.",),
        **images,
        variant=variant,
        position="sincos_2d",
        batch_size=4096,
        steps=round(positive_int(epochs, "epochs") * updates),
        train=Transform(224, area=(0.2, 1.0), **CROP),
        eval=EVAL,
        loss="own",
        learning_rate=1.5e-4 * 4096 / 256,
        warmup_steps=round(40 * updates),
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
    images = _images(variant)
    epochs, rate, layer_decay, stochastic_depth = FINETUNED[variant]
    updates = images["examples"] / 1024
    return Recipe(
        name=f"mae_finetune-{variant}",
        source=f"{AUTHORS}, FINETUNE.md and main_finetune.py; Table 9 of the paper",
        notes=(
            "For models that were pre-trained on normalised pixels; the paper's table has 1e-3, "
            "0.75 and stochastic depth 0.1 (B, L) or 0.2 (H).",
            "The authors vary RandAugment's magnitude (standard deviation 0.5), erase random boxes "
            "(probability 0.25, within the noise), and end at a learning rate of 1e-6.",
        ),
        **images,
        variant=variant,
        architecture={"norm_after_pool": True},
        pool="mean",
        batch_size=1024,
        steps=round(epochs * updates),
        train=Transform(224, area=(0.08, 1.0), randaugment=(2, 9), **CROP),
        eval=EVAL,
        mixup=0.8,
        cutmix=1.0,
        label_smoothing=0.1,
        stochastic_depth=stochastic_depth,
        learning_rate=rate * 1024 / 256,
        warmup_steps=round(5 * updates),
        weight_decay=0.05,
        layer_decay=layer_decay,
    )
