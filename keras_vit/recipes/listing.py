"""All recipes by name, and the two small ones that train from scratch without a network."""

from keras_vit.data.transform import Transform
from keras_vit.data.vtab import VTAB_TASKS
from keras_vit.recipes.fields import epochs
from keras_vit.recipes.finetuning import BEST, finetune
from keras_vit.recipes.paper import TABLE_3, TABLE_4, pretrain, vtab
from keras_vit.recipes.recipe import Recipe
from keras_vit.recipes.studies import (
    CHOSEN,
    STUDIED,
    augreg,
    augreg_grid,
    better_plain,
    bit_hyperrule,
    bit_pretrain,
)
from keras_vit.text import table, unknown


def digits():
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


def fashion_mnist():
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


def all_recipes():
    """Every recipe that is written somewhere, without the whole grid of augreg."""
    table_3 = [(v, d, n) for d, rows in TABLE_3.items() for v, row in rows.items() for n in row[0]]
    return (
        *(pretrain(*row) for row in table_3),
        *(augreg(variant, dataset) for dataset in CHOSEN for variant in STUDIED),
        *(better_plain(epochs) for epochs in (90, 150, 300)),
        *(bit_pretrain("R50x1", dataset) for dataset in ("imagenet2012", "imagenet21k")),
        *(finetune(dataset) for dataset in TABLE_4),
        *(finetune("imagenet2012", variant) for variant in ("L/16", "H/14")),
        *(finetune(d, None, "vit_jax") for d in ("imagenet2012", "cifar10", "cifar100")),
        *(finetune(dataset, None, "augreg") for dataset in BEST),
        *(finetune(dataset, None, "big_vision") for dataset in BEST),
        *(vtab(task) for task in VTAB_TASKS),
        *(bit_hyperrule(n, 224 * 224) for n in (1000, 50_000, 1_281_167)),
        digits(),
        fashion_mnist(),
    )


def list_recipes():
    """Prints a table of all recipes and returns them."""
    found = all_recipes()
    header = ("recipe", "data", "px", "batch", "updates", "epochs", "optimizer", "learning rate")
    rows = [
        (
            r.name,
            f"{r.dataset} {r.train_split}",
            r.image_size[0],
            f"{r.batch_size:,}",
            f"{r.steps:,}",
            epochs(r),
            r.optimizer,
            f"{r.learning_rate:.3g} {r.schedule}",
        )
        for r in found
    ]
    print(table(rows, header, left=2))
    return found


def get(name):
    """The recipe of a name as `list_recipes` prints it, or of a cell of the augreg grid.

    Args:
        name: such as `"finetune-cifar100"` or `"digits"`.

    Raises:
        ValueError: no such recipe; the message lists the nearest.
    """
    found = {recipe.name: recipe for recipe in all_recipes()}
    if str(name) not in found and str(name).startswith("augreg-"):
        grids = [augreg_grid(v, d) for d in CHOSEN for v in STUDIED]
        found |= {recipe.name: recipe for grid in grids for recipe in grid}
    if str(name) not in found:
        raise unknown("recipe", name, found, listed="keras_vit.recipes.list_recipes()")
    return found[str(name)]
