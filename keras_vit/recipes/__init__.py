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

__all__ = ["FewShotProtocol", "Recipe", "all_recipes", "get", "list_recipes"]
__all__ += ["bit_hyperrule", "fewshot", "finetune", "vtab"]
__all__ += ["digits", "fashion_mnist", "own_images"]
__all__ += ["deit_distilled", "flexivit", "mae_finetune", "mae_pretrain"]
__all__ += ["augreg", "augreg_grid", "better_plain", "bit_pretrain", "pretrain"]
