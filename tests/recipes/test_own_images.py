"""The recipe for images of one's own: batch, length and model for so many of such a size."""

import json
import math

import pytest

from keras_vit import recipes
from keras_vit.recipes.listing import size_from_scratch
from keras_vit.variants import get_variant
from keras_vit_cli import main
from tests.support import refuses

pytestmark = pytest.mark.any_backend


@pytest.mark.parametrize(
    "count, batch_size, steps, from_scratch",
    [(1, 1, 100, 90), (10, 4, 100, 180), (105, 8, 260, 1170), (3680, 64, 1140, 5130)]
    + [(50_000, 64, 15_620, 70_290), (10**6, 64, 160_000, 1_406_250)],
)
def test_a_recipe_for_images_of_ones_own_fits_their_number(count, batch_size, steps, from_scratch):
    recipe = recipes.own_images(count, num_classes=3, image_size=(96, 64))
    assert (recipe.batch_size, recipe.steps, recipe.examples) == (batch_size, steps, count)
    assert count < 32 or count // batch_size >= 8, "updates an epoch"
    assert recipe.epochs <= 20 or recipe.steps == 100
    fresh = recipes.own_images(count, num_classes=3, image_size=(96, 64), pretrained=False)
    assert (fresh.batch_size, fresh.steps) == (batch_size, from_scratch) and fresh.epochs <= 90
    assert fresh.variant == ("Ti/8" if count < 100_000 else "S/8"), "about 64 patches"
    assert recipe.eval.crop == "resize_small_center", "the aspect ratio is kept"
    assert recipe.image_size == (96, 64) and recipe.num_classes == 3
    assert recipes.Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe
    refuses("num_examples must be a positive integer", recipes.own_images, 0)


@pytest.mark.parametrize(
    "side, size, patch",
    [(4000, 128, 16), (150, 128, 16), (126, 120, 15), (97, 96, 12), (32, 32, 4), (28, 28, 4)]
    + [(8, 8, 1), (3, 4, 1), (0, 128, 16)],
)
def test_small_images_get_small_patches(side, size, patch):
    assert size_from_scratch(side) == size
    recipe = recipes.own_images(100, 2, image_size=size, pretrained=False)
    assert recipe.variant == f"Ti/{patch}"
    assert 16 <= math.prod(get_variant(recipe.variant).grid(size)) <= 100


def test_a_variant_that_is_named_stays_the_one_that_is_published():
    def own(variant):
        return recipes.own_images(100, 2, variant, pretrained=False).replace(image_size=224)

    assert own("S/16").position == "sincos_2d" and own("S/16").name == "own_images-S/16"
    assert own("DINOv2-S/14").position is None and own("R50x1").pool is None
    assert recipes.own_images(100, 2, "S/16").position is None, "weights have their own"
    refuses("Received: variant='Q/16'", own, "Q/16")


def test_own_images_is_listed_and_found_by_its_name(capsys):
    assert main(["recipes"]) == 0
    printed = capsys.readouterr().out
    assert "\nown_images " in printed and "is the recipe of any folder" in printed
    assert recipes.get("own_images") == recipes.own_images(1000)
    refuses(r"recipe='own_image'; the nearest are .'own_images'", recipes.get, "own_image")
