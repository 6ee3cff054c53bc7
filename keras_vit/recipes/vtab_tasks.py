"""VTAB-1k: 19 tasks of 1,000 training images, one protocol for all."""

from keras_vit.data.transform import Transform
from keras_vit.data.vtab import VTAB_TASKS
from keras_vit.recipes.names import unknown
from keras_vit.recipes.recipe import Recipe

# Where the label says where something is, or how it is turned.
STRUCTURED = (
    "clevr_count",
    "clevr_distance",
    "dmlab",
    "dsprites_location",
    "dsprites_orientation",
    "kitti_distance",
    "smallnorb_azimuth",
    "smallnorb_elevation",
)


def vtab(task, variant=None):
    """Fine-tuning on one task of VTAB-1k: 2,500 updates, learning rate 0.01, 384 pixels.

    Args:
        task: such as `"dtd"`, `"eurosat"` or `"clevr_count"`.
        variant: the model, or `None`.

    Returns:
        A `Recipe`; its data set is `"vtab/<task>"`: 800 + 200 images for training, and the whole
        test set.

    Raises:
        ValueError: no such task; the message lists the nearest.
    """
    name = str(task).strip().lower().replace("-", "_").removeprefix("vtab/")
    if name not in VTAB_TASKS:
        raise unknown("VTAB task", task, VTAB_TASKS)
    structured = name in STRUCTURED
    size = 378 if variant == "H/14" else 384
    squashed = Transform(size, "squash")
    random = Transform(size, "squash_random", resize_small=round(size * 512 / 480), flip=True)
    return Recipe(
        name=f"vtab-{name}" + (f"-{variant}" if variant else ""),
        source="Dosovitskiy et al., 2021, Table 4 and appendix B.1.1; Zhai et al., 2020 (VTAB)",
        notes=(
            "Not mirrored and not cropped, because the label may depend on the place."
            if structured
            else "Crop and mirroring are BiT's; 410 in front of 384 keeps its 512 to 480.",
        ),
        dataset=f"vtab/{name}",
        train_split="train800val200",
        variant=variant,
        examples=1000,
        num_classes=VTAB_TASKS[name].num_classes,
        batch_size=512,
        steps=2500,
        train=squashed if structured else random,
        eval=squashed,
        optimizer="sgdm",
        learning_rate=0.01,
        learning_rates=(0.01,),
        schedule="cosine",
        warmup_steps=500,
        clip_norm=1.0,
    )
