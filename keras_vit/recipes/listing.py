"""All recipes by name."""

from keras_vit.data.vtab import VTAB_TASKS
from keras_vit.recipes.augreg import CHOSEN, STUDIED, augreg, augreg_grid, better_plain
from keras_vit.recipes.bit import bit_hyperrule, bit_pretrain
from keras_vit.recipes.describe import epochs
from keras_vit.recipes.finetuning import BEST, finetune
from keras_vit.recipes.paper import TABLE_3, TABLE_4, pretrain, vtab
from keras_vit.recipes.small import digits, fashion_mnist
from keras_vit.text import table, unknown


def all_recipes():
    """Every recipe that is written somewhere, without the whole grid of augreg.

    Returns:
        A tuple of `Recipe`.
    """
    return (
        *(pretrain(v, d, epochs) for (d, v), row in TABLE_3.items() for epochs in row[0]),
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
    """Prints a table of all recipes and returns them.

    Returns:
        A tuple of `Recipe`.
    """
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

    Returns:
        A `Recipe`.

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
