"""Fine-tuning as the paper and the authors' codebases do it, and on images of one's own."""

from keras_vit.checks import pair, positive_int
from keras_vit.data.transform import Transform
from keras_vit.recipes.datasets import big_vision, find_dataset, vit_jax
from keras_vit.recipes.paper import FINE_TUNING, LOW, TABLE_4, finetune_paper, vtab
from keras_vit.recipes.recipe import Recipe
from keras_vit.text import unknown

VT = "google-research/vision_transformer, vit_jax/configs"
IN_PARTS = "The authors compute a batch in 8 parts; replace(accumulate=8) does so."
DROPOUT = ("L/16", "H/14", "R50+B/16", "R50+L/32")  # 0.1 in VT's configs/models.py, else 0
# big_vision's best for ViT-B/32: crop, learning rate.
BEST = {
    "imagenet2012": ("inception_crop", 0.03),
    "cifar10": ("resmall_crop", 0.003),
    "cifar100": ("resmall_crop", 0.01),
    "oxford_iiit_pet": ("inception_crop", 0.003),
    "oxford_flowers102": ("inception_crop", 0.003),
}


def finetune(dataset, variant=None, source="paper"):
    """Fine-tuning of a pre-trained model: SGD with momentum, batch 512, cosine, clipping at 1.

    Args:
        dataset: `"imagenet2012"`, `"cifar10"`, `"cifar100"`, `"oxford_iiit_pet"`,
            `"oxford_flowers102"`, another name of these such as `"pets"`, or a task of VTAB-1k
            such as `"vtab/dtd"` (see `vtab`).
        variant: the model, such as `"B/16"`. It changes the resolution of the largest models
            (paper), and dropout and learning rate (vit_jax).
        source: whose settings:
            - `"paper"`: Table 4;
            - `"vit_jax"`: configs/vit.py of google-research/vision_transformer (no pets, flowers);
            - `"augreg"`: its configs/augreg.py, a short run for "How to train your ViT?";
            - `"big_vision"`: configs/transfer.py of google-research/big_vision.

    Raises:
        ValueError: no such data set or source; the message lists the nearest.
    """
    makers = {
        "paper": finetune_paper,
        "vit_jax": _vit_jax,
        "augreg": _augreg,
        "big_vision": _big_vision,
    }
    if source not in list(makers):
        raise unknown("source", source, makers)
    family, _, task = str(dataset).lower().partition("/")
    if family == "vtab":
        if source != "paper":
            raise ValueError(f"VTAB has the settings of the paper only. Received: {source=}.")
        return vtab(task, variant)
    return makers[source](dataset, variant)


def _codebase(facts, variant, suffix, **settings):
    """What the codebases share: all but length, learning rate, and images."""
    return Recipe(
        name=f"finetune-{facts.name}-{suffix}" + (f"-{variant}" if variant else ""),
        variant=variant,
        learning_rates=LOW,
        **FINE_TUNING,
        **settings,
    )


def _vit_jax(dataset, variant):
    facts = find_dataset(dataset, ("imagenet2012", "cifar10", "cifar100"))
    return _codebase(
        facts,
        variant,
        "vit_jax",
        source=f"{VT}/common.py, vit.py and models.py",
        notes=(IN_PARTS,),
        **facts.without_held_out(),
        **vit_jax(384 if variant != "H/14" else 378),
        steps=TABLE_4[facts.name][0],
        warmup_steps=500,
        learning_rate=0.01 if (facts.name, variant) == ("cifar10", "B/16") else 0.03,
        dropout=0.1 if variant in DROPOUT else 0.0,
    )


def _augreg(dataset, variant):
    facts = find_dataset(dataset, BEST)
    return _codebase(
        facts,
        variant,
        "augreg",
        source=f"{VT}/augreg.py",
        notes=("The published runs took the best of 500, 2500, 10000 and 20000 updates.", IN_PARTS),
        **facts.all_images(),
        **vit_jax(384),
        steps=500,
        warmup_steps=100,
        learning_rate=0.03,
    )


def _big_vision(dataset, variant):
    facts = find_dataset(dataset, BEST)
    crop, rate = BEST[facts.name]
    return _codebase(
        facts,
        variant,
        "big_vision",
        source="google-research/big_vision, configs/transfer.py",
        notes=("Crop and learning rate are the best for ViT-B/32 of augreg.",),
        **facts.without_held_out(),
        **big_vision(384, crop),
        steps=TABLE_4[facts.name][0],
        warmup_steps=TABLE_4[facts.name][3],
        learning_rate=rate,
    )


def own_images(num_examples, num_classes=None, variant=None, image_size=224):
    """Fine-tuning of a pre-trained model on a folder of one's own, of a few dozen images or more.

    It is Table 4, changed for a small set: at least eight batches make an epoch, images keep their
    aspect ratio, and crops keep most of an image, because nothing is known about what it shows.
    Choose among `recipe.learning_rates` with validation images, as the authors do.

        found = keras_vit.data.load("photos", image_size=224)
        recipe = keras_vit.recipes.own_images(len(found.train_images), found.num_classes)

    Args:
        num_examples: training images.
        num_classes: K, or `None`.
        variant: the model, or `None`.
        image_size: int or (height, width) in pixels.

    Returns:
        A `Recipe`; its data set is `"folder"`, to be replaced by the folder's name.

    Raises:
        ValueError: a number is not positive, or no such variant.
    """
    count, size = positive_int(num_examples, "num_examples"), pair(image_size, "image_size")
    batch_size = 512
    while batch_size > 1 and batch_size * 8 > count:
        batch_size //= 2
    # Updates and warm-up of Table 4 for sets of this size.
    lengths = ((20_000, 500, 100), (500_000, 10_000, 500), (float("inf"), 20_000, 500))
    steps, warmup = next((steps, warmup) for most, steps, warmup in lengths if count < most)
    return Recipe(
        name=f"own-{count}" + (f"-{variant}" if variant else ""),
        source="keras_vit's own, after Dosovitskiy et al., 2021, Table 4",
        notes=("The learning rate is that of Table 4's small sets; it was not tuned for yours.",),
        dataset="folder",
        variant=variant,
        examples=count,
        num_classes=num_classes,
        **{**FINE_TUNING, "batch_size": batch_size},
        steps=steps,
        train=Transform(size, "inception", area=(0.25, 1.0), flip=True),
        eval=Transform(size, "resize_small_center", resize_small=round(max(size) * 256 / 224)),
        learning_rate=0.003,
        learning_rates=LOW,
        warmup_steps=warmup,
    )
