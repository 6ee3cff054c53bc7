"""This library's own recipes, and all recipes by name."""

from keras_vit.checks import pair, positive_int
from keras_vit.data.transform import Transform
from keras_vit.data.vtab import VTAB_TASKS
from keras_vit.recipes import pretraining, self_supervised
from keras_vit.recipes.deit import MODELS, deit_distilled
from keras_vit.recipes.fields import epochs
from keras_vit.recipes.finetuning import (
    LOW,
    SHARED,
    TABLE_4,
    bit_hyperrule,
    finetune,
    length_for,
    named,
    vtab,
)
from keras_vit.recipes.flexivit import flexivit
from keras_vit.recipes.recipe import Recipe
from keras_vit.text import table, unknown

_STUDIED = [(v, dataset) for dataset in pretraining.CHOSEN for v in pretraining.STUDIED]


def digits() -> Recipe:
    """Scikit-learn's handwritten digits, enlarged to 16 x 16, in 45 epochs."""
    return _small(
        "digits",
        1438,
        Transform(16, "squash", affine=(12.0, 0.12, 0.06)),
        {"width": 64, "depth": 3, "num_heads": 4, "patch_size": 4},
        steps=990,
        warmup_steps=100,
        learning_rate=3e-3,
        weight_decay=0.1,
    )


def fashion_mnist() -> Recipe:
    """Fashion-MNIST, 28 x 28, in 12 epochs: a hybrid, which learns faster than a plain ViT."""
    model = {"width": 64, "depth": 4, "num_heads": 2, "stem": (1,), "patch_size": 1}
    return _small(
        "fashion_mnist",
        60_000,
        Transform(28, "squash", flip=True),
        {**model, "position": "sincos_2d"},
        steps=11_250,
        warmup_steps=1125,
        learning_rate=2e-3,
        weight_decay=0.05,
    )


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
    image_size: int | tuple[int, int] = 224,
) -> Recipe:
    """Fine-tuning of a pre-trained model on a folder of one's own, of a few dozen images or more.

    It is Table 4, changed for a small set: at least eight batches make an epoch, images keep their
    aspect ratio, and crops keep most of an image, because nothing is known about what it shows.
    Choose among `recipe.learning_rates` with validation images, as the authors do.

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
    warmup, *_, steps = length_for(count)  # as in Table 4 for sets of this size
    batch_size = 512
    while batch_size > 1 and batch_size * 8 > count:
        batch_size //= 2
    return Recipe(
        name=named(f"own-{count}", variant),
        source="keras_vit's own, after Dosovitskiy et al., 2021, Table 4",
        notes=("The learning rate is that of Table 4's small sets; it was not tuned for yours.",),
        dataset="folder",
        variant=variant,
        examples=count,
        num_classes=num_classes,
        **{**SHARED, "batch_size": batch_size},
        steps=steps,
        train=Transform(size, "inception", area=(0.25, 1.0), flip=True),
        eval=Transform(size, "resize_small_center", resize_small=round(max(size) * 256 / 224)),
        learning_rate=0.003,
        learning_rates=LOW,
        warmup_steps=warmup,
        keep_best=True,
    )


def all_recipes() -> tuple[Recipe, ...]:
    """Every recipe that is written somewhere, without the whole grid of augreg."""
    table_3 = pretraining.TABLE_3.items()
    table_3 = [(v, d, n) for d, rows in table_3 for v, row in rows.items() for n in row[0]]
    return (
        *(pretraining.pretrain(*row) for row in table_3),
        *(pretraining.augreg(*row) for row in _STUDIED),
        *(pretraining.better_plain(epochs) for epochs in (90, 150, 300)),
        *(flexivit(size) for size in ("S", "B", "L")),
        *(pretraining.bit_pretrain("R50x1", data) for data in ("imagenet2012", "imagenet21k")),
        *(deit_distilled(variant) for variant in MODELS),
        *(self_supervised.mae_pretrain(variant) for variant in self_supervised.MODELS),
        *(self_supervised.mae_finetune(variant) for variant in self_supervised.MODELS),
        *(finetune(dataset) for dataset in TABLE_4),
        *(finetune("imagenet2012", variant) for variant in ("L/16", "H/14")),
        *(finetune(d, None, "vit_jax") for d in ("imagenet2012", "cifar10", "cifar100")),
        *(finetune(dataset, None, "augreg") for dataset in TABLE_4),
        *(finetune(dataset, None, "big_vision") for dataset in TABLE_4),
        *(vtab(task) for task in VTAB_TASKS),
        *(bit_hyperrule(n, 224 * 224) for n in (1000, 50_000, 1_281_167)),
        digits(),
        fashion_mnist(),
    )


def list_recipes() -> tuple[Recipe, ...]:
    """Prints a table of all recipes and returns them."""
    found = all_recipes()
    header = ("recipe", "data", "px", "batch", "updates", "epochs", "optimizer", "learning rate")
    rows = []
    for r in found:
        sizes = r.image_size[0], f"{r.batch_size:,}", f"{r.steps:,}", epochs(r)
        rate = f"{r.learning_rate:.3g} {r.schedule}"
        rows.append((r.name, f"{r.dataset} {r.train_split}", *sizes, r.optimizer, rate))
    print(table(rows, header, left=2))
    return found


def get(name: str) -> Recipe:
    """The recipe of a name as `list_recipes` prints it, or of a cell of the augreg grid.

    Args:
        name: such as `"finetune-cifar100"` or `"digits"`.

    Raises:
        ValueError: no such recipe; the message lists the nearest.
    """
    found = {recipe.name: recipe for recipe in all_recipes()}
    if str(name) not in found and str(name).startswith("augreg-"):
        grids = (pretraining.augreg_grid(*row) for row in _STUDIED)
        found |= {recipe.name: recipe for grid in grids for recipe in grid}
    if str(name) not in found:
        listed = "`keras-vit recipes` or keras_vit.recipes.list_recipes()"
        raise unknown("recipe", name, found, listed=listed)
    return found[str(name)]
