"""This library's own recipes, and all recipes by name."""

import math

from keras_vit.checks import pair, positive_int
from keras_vit.data.transform import Transform
from keras_vit.data.vtab import VTAB_TASKS
from keras_vit.models.bit import BIT_VARIANTS
from keras_vit.recipes import methods, pretraining
from keras_vit.recipes.fields import epochs
from keras_vit.recipes.finetuning import LOW, TABLE_4, bit_hyperrule, finetune, length_for, vtab
from keras_vit.recipes.recipe import Recipe
from keras_vit.text import table, unknown

_STUDIED = [(v, dataset) for dataset in pretraining.CHOSEN for v in pretraining.STUDIED]


def digits() -> Recipe:
    """Scikit-learn's handwritten digits, enlarged to 16 x 16, in 45 epochs."""
    images = Transform(16, "squash", affine=(12.0, 0.12, 0.06))
    model = {"width": 64, "depth": 3, "num_heads": 4, "patch_size": 4}
    run = {"steps": 990, "warmup_steps": 100, "learning_rate": 3e-3, "weight_decay": 0.1}
    return _small("digits", 1438, transform=images, architecture=model, **run)


def fashion_mnist() -> Recipe:
    """Fashion-MNIST, 28 x 28, in 12 epochs: a hybrid, which learns faster than a plain ViT."""
    images = Transform(28, "squash", flip=True)
    model = {"width": 64, "depth": 4, "num_heads": 2, "stem": (1,), "patch_size": 1}
    model["position"] = "sincos_2d"
    run = {"steps": 11_250, "warmup_steps": 1125, "learning_rate": 2e-3, "weight_decay": 0.05}
    return _small("fashion_mnist", 60_000, transform=images, architecture=model, **run)


def _small(name, examples, transform, architecture, **settings):
    return Recipe(
        name=name,
        source="keras_vit's own",
        dataset=name,
        variant=None,
        architecture={**architecture, "pool": "mean", "channels": 1},
        examples=examples,
        num_classes=10,
        batch_size=64,
        train=transform,
        eval=Transform(transform.image_size, "squash"),
        label_smoothing=0.1,
        clip_norm=1.0,
        **settings,
    )


def own_images(
    num_examples: int,
    num_classes: int | None = None,
    variant: str | None = None,
    image_size: int | tuple[int, int] | None = None,
    pretrained: bool = True,
) -> Recipe:
    """A run on images of one's own, from a dozen photographs on, that ends in sensible time.

    Crops keep the aspect ratio and most of an image, because nothing is known about what it shows:
    where left and right matter, as for letters, replace `train` by a `Transform` without `flip`. A
    batch has 4 to 64 images, an eighth of all where that is between, so that an epoch has eight
    updates. A tenth of the updates warms up.

    Of a pre-trained model it is fine-tuning after Table 4 of the paper, with the learning rate
    of VTAB, whose sets have 1,000 images: 20 epochs, but at least 100 updates and no more images
    than the BiT-HyperRule shows. Choose among `recipe.learning_rates` with validation images.

    From scratch it follows "Better plain ViT baselines" (Beyer et al., 2022): positions that need
    no learning, mean pooling, AdamW, 90 epochs. An image has 64 patches, as a model from scratch
    has to learn from each: of 16 pixels in the 128 that the BiT-HyperRule cuts from small images.
    The size is Ti below 100,000 images, as larger models do worse where images are few (Figure 4),
    and S from there on.

    Args:
        num_examples: training images.
        num_classes: K, or `None`.
        variant: the model, or `None` for that of the weights, and from scratch for the one above.
        image_size: int or (height, width) in pixels; `None` for 224, and from scratch for 128.
        pretrained: whether the run begins with weights.

    Returns:
        A `Recipe`; its data set is `"folder"`, to be replaced by the folder's name.

    Raises:
        ValueError: a number is not positive, or no such variant.
    """
    count = positive_int(num_examples, "num_examples")
    size = pair((224 if pretrained else 128) if image_size is None else image_size, "image_size")
    batch_size = 64
    while batch_size > min(4, count) and batch_size * 8 > count:
        batch_size //= 2
    per_epoch = count // batch_size
    if pretrained:
        longest = 512 * length_for(count)[-1] // batch_size  # which BiT has in batches of 512
        steps, margin = max(100, min(20 * per_epoch, longest)), 256 / 224
        after = "Dosovitskiy et al., 2021, Table 4 and VTAB"
        note = "The learning rate is VTAB's; it was not tuned for your images."
        settings = {"optimizer": "sgdm", "learning_rate": 0.01, "learning_rates": LOW}
    else:
        steps, margin = 90 * per_epoch, 1.0  # of small images the middle alone is little
        after = "Beyer et al., 2022"
        note = "From scratch few images teach little: begin with weights if you can."
        settings = {"label_smoothing": 0.1, "weight_decay": 0.1}
        settings |= {"learning_rate": 1e-3, "learning_rates": (3e-4, 1e-3, 3e-3)}
        if variant not in BIT_VARIANTS and "-" not in str(variant):  # others have their own
            settings |= {"pool": "mean", "position": "sincos_2d"}
    scratch = f"{'Ti' if count < 100_000 else 'S'}/{_patch_of(size)}"
    rule = "Batch and length follow from the number of images; from scratch much is otherwise."
    return Recipe(
        name="own_images" + (f"-{variant}" if variant else ""),
        source=f"keras_vit's own, after {after}",
        notes=(rule, note),
        dataset="folder",
        variant=variant or (None if pretrained else scratch),
        examples=count,
        num_classes=num_classes,
        batch_size=batch_size,
        steps=steps,
        warmup_steps=steps // 10,
        train=Transform(size, "inception", area=(0.25, 1.0), flip=True),
        eval=Transform(size, "resize_small_center", resize_small=round(max(size) * margin)),
        clip_norm=1.0,
        keep_best=True,
        **settings,
    )


def size_from_scratch(shorter_side):
    """The side in pixels that `own_images` trains at from scratch on images of this shorter side.

    It is the BiT-HyperRule's 128, or that of smaller images, rounded down to what patches tile.
    """
    side = min(shorter_side, 128) or 128
    return max(side - side % (8 if side > 64 else 4), 4)


def _patch_of(image_size):
    """The side of patches, up to 16 pixels, that tile an image and are an eighth of it or about."""
    wanted = min(image_size) / 8
    fit = [side for side in range(1, 17) if math.gcd(*image_size) % side == 0]
    best = min(fit, key=lambda side: abs(math.log(side / min(wanted, 16))))
    # An image that no such patch tiles is refused, with the nearest size that one does.
    return best if best * 2 >= min(wanted, 16) else round(min(wanted, 16))


def all_recipes() -> tuple[Recipe, ...]:
    """Every recipe that is written somewhere, without the whole grid of augreg."""
    table_3 = pretraining.TABLE_3.items()
    table_3 = [(v, d, n) for d, rows in table_3 for v, row in rows.items() for n in row[0]]
    return (
        *(pretraining.pretrain(*row) for row in table_3),
        *(pretraining.augreg(*row) for row in _STUDIED),
        *map(pretraining.better_plain, (90, 150, 300)),
        *map(methods.flexivit, "SBL"),
        *(pretraining.bit_pretrain("R50x1", data) for data in ("imagenet2012", "imagenet21k")),
        *map(methods.deit_distilled, methods.DEIT_MODELS),
        *map(methods.mae_pretrain, methods.MAE_FINETUNED),
        *map(methods.mae_finetune, methods.MAE_FINETUNED),
        *map(finetune, TABLE_4),
        *(finetune("imagenet2012", variant) for variant in ("L/16", "H/14")),
        *(finetune(d, None, "vit_jax") for d in ("imagenet2012", "cifar10", "cifar100")),
        *(finetune(d, None, source) for source in ("augreg", "big_vision") for d in TABLE_4),
        *map(vtab, VTAB_TASKS),
        *(bit_hyperrule(n, 224 * 224) for n in (1000, 50_000, 1_281_167)),
        digits(),
        fashion_mnist(),
        own_images(1000),
    )


def list_recipes() -> tuple[Recipe, ...]:
    """Prints a table of all recipes and returns them."""
    listed = all_recipes()
    header = ("recipe", "data", "px", "batch", "updates", "epochs", "optimizer", "learning rate")
    rows = []
    for r in listed:
        sizes = r.image_size[0], f"{r.batch_size:,}", f"{r.steps:,}", epochs(r)
        rate = f"{r.learning_rate:.3g} {r.schedule}"
        rows.append((r.name, f"{r.dataset} {r.train_split}", *sizes, r.optimizer, rate))
    print(table(rows, header, left=2))
    return listed


def get(name: str) -> Recipe:
    """The recipe of a name as `list_recipes` prints it, or of a cell of the augreg grid.

    Raises:
        ValueError: no such recipe; the message lists the nearest.
    """
    grids = [pretraining.augreg_grid(*row) for row in _STUDIED if str(name).startswith("augreg-")]
    by_name = {recipe.name: recipe for each in (*grids, all_recipes()) for recipe in each}
    if str(name) not in by_name:
        listed = "`keras-vit recipes` or keras_vit.recipes.list_recipes()"
        raise unknown("recipe", name, by_name, listed=listed)
    return by_name[str(name)]
