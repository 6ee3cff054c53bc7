"""`keras-vit recipes`: the training recipes, or one of them."""

import argparse

HELP = "list the training recipes, or show one with all it says"
EXAMPLE = "keras-vit recipes digits"


def add_arguments(add):
    add("name", nargs="?", help="the recipe to show (default: a list of all)")
    add("--json", help="the one as JSON")


def run(args):
    import json

    from keras_vit import recipes

    if args.json and args.name is None:
        raise argparse.ArgumentError(None, "--json shows one recipe: give its name, too")
    if args.name is None:
        recipes.list_recipes()
        print("\nown_images is the recipe of any folder of images, here for 1,000 of them.")
    else:
        recipe = recipes.get(args.name)
        print(json.dumps(recipe.to_dict(), indent=1) if args.json else recipe)
