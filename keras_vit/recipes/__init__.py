"""The paper's protocols, and those of its authors' codebases, as values."""

from keras_vit.recipes.augreg import augreg, augreg_grid, better_plain
from keras_vit.recipes.bit import bit_hyperrule, bit_pretrain
from keras_vit.recipes.fewshot import FewShotProtocol, fewshot
from keras_vit.recipes.finetuning import finetune
from keras_vit.recipes.listing import all_recipes, get, list_recipes
from keras_vit.recipes.own import own_images
from keras_vit.recipes.paper import pretrain, vtab
from keras_vit.recipes.recipe import Recipe
from keras_vit.recipes.small import digits, fashion_mnist

__all__ = [
    "FewShotProtocol",
    "Recipe",
    "all_recipes",
    "augreg",
    "augreg_grid",
    "better_plain",
    "bit_hyperrule",
    "bit_pretrain",
    "digits",
    "fashion_mnist",
    "fewshot",
    "finetune",
    "get",
    "list_recipes",
    "own_images",
    "pretrain",
    "vtab",
]
