"""Fine-tuning as the paper, and as each of the authors' codebases does it."""

from keras_vit.recipes import transforms
from keras_vit.recipes.datasets import find_dataset
from keras_vit.recipes.paper import LOW, TABLE_4, finetune_paper, vtab
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


def finetune(dataset, variant=None, source="paper", task=None):
    """Fine-tuning of a pre-trained model: SGD with momentum, batch 512, cosine, clipping at 1.

    Args:
        dataset: `"imagenet2012"`, `"cifar10"`, `"cifar100"`, `"oxford_iiit_pet"`,
            `"oxford_flowers102"`, another name of these such as `"pets"`, or `"vtab"` with a
            `task` (see `vtab`), or `"vtab/dtd"`.
        variant: the model, such as `"B/16"`, where it matters: for the resolution of the largest
            models (paper) and for the dropout and the learning rate (vit_jax).
        source: whose settings:
            - `"paper"`: Table 4;
            - `"vit_jax"`: configs/vit.py of google-research/vision_transformer (no pets, flowers);
            - `"augreg"`: its configs/augreg.py, a short run for "How to train your ViT?";
            - `"big_vision"`: configs/transfer.py of google-research/big_vision.
        task: a task of VTAB-1k.

    Returns:
        A `Recipe`.

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
    family, _, named = str(dataset).lower().partition("/")
    if family == "vtab":
        if source != "paper":
            raise ValueError(f"VTAB has the settings of the paper only. Received: {source=}.")
        return vtab(task or named or None, variant)
    if task is not None:
        raise ValueError(f"Only VTAB has tasks. Received: dataset={dataset!r}, task={task!r}.")
    return makers[source](dataset, variant)


def _base(facts, variant, source, suffix, image_pipeline, **settings):
    """What the codebases share: all but length, learning rate, and images."""
    train, evaluated = image_pipeline
    return Recipe(
        name=f"finetune-{facts.name}-{suffix}" + (f"-{variant}" if variant else ""),
        source=source,
        variant=variant,
        batch_size=512,
        train=train,
        eval=evaluated,
        optimizer="sgdm",
        learning_rates=LOW,
        schedule="cosine",
        clip_norm=1.0,
        **settings,
    )


def _vit_jax(dataset, variant):
    facts = find_dataset(dataset, ("imagenet2012", "cifar10", "cifar100"))
    return _base(
        facts,
        variant,
        f"{VT}/common.py, vit.py and models.py",
        "vit_jax",
        transforms.vit_jax(384 if variant != "H/14" else 378),
        notes=(IN_PARTS,),
        **facts.without_held_out(),
        steps=TABLE_4[facts.name][0],
        warmup_steps=500,
        learning_rate=0.01 if (facts.name, variant) == ("cifar10", "B/16") else 0.03,
        dropout=0.1 if variant in DROPOUT else 0.0,
    )


def _augreg(dataset, variant):
    facts = find_dataset(dataset, BEST)
    return _base(
        facts,
        variant,
        f"{VT}/augreg.py",
        "augreg",
        transforms.vit_jax(384),
        notes=(
            "The published runs took the best of 500, 2500, 10000 and 20000 updates.",
            IN_PARTS,
        ),
        **facts.all_images(),
        steps=500,
        warmup_steps=100,
        learning_rate=0.03,
    )


def _big_vision(dataset, variant):
    facts = find_dataset(dataset, BEST)
    crop, rate = BEST[facts.name]
    return _base(
        facts,
        variant,
        "google-research/big_vision, configs/transfer.py",
        "big_vision",
        transforms.big_vision(384, crop),
        notes=("Crop and learning rate are the best for ViT-B/32 of augreg.",),
        **facts.without_held_out(),
        steps=TABLE_4[facts.name][0],
        warmup_steps=TABLE_4[facts.name][3],
        learning_rate=rate,
    )
