"""`keras-vit recipes` and `sweep`: the training recipes, and the learning rate that does best."""

import json
import sys

from keras_vit_cli import train_command
from keras_vit_cli.arguments import count, positive

# Arguments of `train` that `sweep` lacks, or has with another meaning.
OF_TRAINING = """--list --show --dry-run --evaluate --save-every --distribute --learning-rate
    --test-split -o""".split()


def add_recipes(add):
    add("name", "the recipe to show (default: a list of all)", nargs="?")
    add("--json", "the one as JSON")


def run_recipes(args):
    """List the training recipes, or show one with all it says.

    keras-vit recipes digits
    """
    from keras_vit import recipes

    if args.json and args.name is None:
        args.refuse("--json shows one recipe: give its name, too")
    if args.name is None:
        recipes.list_recipes()
        print("\nown_images is the recipe of any folder of images, here for 1,000 of them.")
    else:
        recipe = recipes.get(args.name)
        print(json.dumps(recipe.to_dict(), indent=1) if args.json else recipe)


def add_sweep(add):
    def add_shared(names, *text, **options):
        if not {*OF_TRAINING} & {*names.split()}:
            add(names, *text, **options)

    train_command.add_train(add_shared)
    text = "rates to try (default: the recipe's, or a third, once and three times its rate)"
    add("--learning-rates", text, type=positive, nargs="+", metavar="RATE")
    text = "images to choose by (default: the part validation, or the last tenth of train)"
    add("--validation-split", text, metavar="SPLIT")
    text = "end a run after so many epochs without a better score (default: never)"
    add("--early-stop", text, type=count, metavar="EPOCHS")
    text = "the result as a .json file, written after each rate (default: none)"
    add("-o --output", text, metavar="FILE")


def run_sweep(args):
    """Train at several learning rates, and tell which does best on images held out.

    keras-vit sweep --dataset photos --image-size 64 --epochs 10 --learning-rates 1e-4 1e-3
    """
    from keras_vit.job import configure
    from keras_vit.plan import sweep

    vars(args).update(learning_rate=None, test_split=None, save_every="600s")
    job = train_command.make_job(args)
    configure(job.recipe)
    options = {"early_stop": args.early_stop, "path": args.output}
    verbose = int(sys.stdout.isatty())
    result = sweep(job, args.learning_rates, args.validation_split, verbose=verbose, **options)
    print(result)
    if not result.learning_rate:
        print("No rate had a finite loss: try lower ones.")
        return 1
    print(f"best: --learning-rate {result.learning_rate:.6g}")
