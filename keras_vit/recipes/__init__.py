"""The paper's protocols, and those of its authors' codebases, as values: each is a `Recipe`."""

from keras_vit.recipes.finetuning import FewShotProtocol, bit_hyperrule, fewshot, finetune, vtab
from keras_vit.recipes.listing import (
    all_recipes,
    digits,
    fashion_mnist,
    get,
    list_recipes,
    own_images,
)
from keras_vit.recipes.methods import deit_distilled, flexivit, mae_finetune, mae_pretrain
from keras_vit.recipes.pretraining import augreg, augreg_grid, better_plain, bit_pretrain, pretrain
from keras_vit.recipes.recipe import Recipe

__all__ = [
    "FewShotProtocol",
    "Recipe",
    "all_recipes",
    "augreg",
    "augreg_grid",
    "better_plain",
    "bit_hyperrule",
    "bit_pretrain",
    "deit_distilled",
    "digits",
    "fashion_mnist",
    "fewshot",
    "finetune",
    "flexivit",
    "get",
    "list_recipes",
    "mae_finetune",
    "mae_pretrain",
    "own_images",
    "pretrain",
    "vtab",
]
