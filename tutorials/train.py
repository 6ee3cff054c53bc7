"""Trains a Vision Transformer by a recipe, and shows what it has learned.

    KERAS_BACKEND=jax python tutorials/train.py            (or tensorflow, or torch)

Without arguments it trains on scikit-learn's handwritten digits, which need no network, and
leaves in `output/`: metrics.json, evaluation.json, history.csv, history.png, predictions.png and
model.keras. A run that was stopped or killed goes on when the same command is given again.
"""

import argparse
import ast
import json
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # run from a checkout
# Flags that change one field of the recipe; --set changes any.
SHORTCUTS = ("learning_rate", "weight_decay", "image_size", "precision", "seed", "accumulate")
OF_THE_JOB = (
    "output dataset data_dir channels split test_split model weights freeze lora teacher save_every"
)


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="The environment variable KERAS_BACKEND chooses jax, tensorflow or torch.",
    )
    add = parser.add_argument
    add("--recipe", default="digits", help="what to do, see --list (default: digits)")
    add("--list", action="store_true", help="print the names of all recipes and end")
    add("--show", action="store_true", help="print the recipe, with every change, and end")
    add("--output", default="output", help="folder for everything the run leaves")
    add("--dataset", help="another than the recipe's: a name, an .npz file, or a folder of images")
    add("--data-dir", help="where fashion_mnist or the prepared sets of TFDS lie")
    add("--split", help="training images, such as train[:98%%]; default: the recipe's")
    add("--test-split", help="images to test on; default: the recipe's")
    add("--model", help="another than the recipe's: a published variant such as B/16 or R50x1")
    add("--weights", help="checkpoint to begin from: a name, a path, or a URL")
    add("--freeze", nargs="+", metavar="PATTERN", help="layers that do not train, as block_[0-8]")
    add("--lora", type=int, metavar="RANK", help="train low-rank changes of the weights alone")
    add("--teacher", metavar="FILE", help="a trained model to learn from, too (distillation)")
    add("--epochs", type=float, help="passes through the training images")
    add("--steps", type=int, help="updates, instead of --epochs")
    add("--batch-size", type=int, help="images in an update; what follows from it is scaled too")
    add("--warmup", type=float, help="share of the updates that warms up")
    add("--learning-rate", type=float, help="the highest, after the warm-up")
    add("--weight-decay", type=float, help="of the kernels, as in AdamW")
    add("--image-size", type=int, nargs="+", help="side, or height and width, of the images")
    add("--accumulate", type=int, help="parts that a batch is computed in, to save memory")
    add("--precision", help="float32, mixed_bfloat16, mixed_float16 or float64")
    add("--seed", type=int, help="of the weights, the order and the augmentation")
    add("--set", nargs="+", default=[], metavar="NAME=VALUE", help="any other field of the recipe")
    add("--channels", type=int, choices=(1, 3), help="convert the images to so many channels")
    add("--save-every", default="600s", help="updates between checkpoints, or seconds as 600s")
    add("--distribute", default="single", metavar="MODE", help="such as auto or data_parallel")
    add("--evaluate", metavar="FOLDER", help="only test the trained model of a run again")
    args = parser.parse_args(arguments)
    if args.warmup is not None and not 0 <= args.warmup < 1:
        parser.error(f"--warmup is a share of the run in [0, 1). Received: {args.warmup}.")
    if args.epochs is not None and args.steps is not None:
        parser.error(f"Give --epochs or --steps. Received: {args.epochs} and {args.steps}.")
    if args.epochs is not None and args.epochs <= 0:
        parser.error(f"--epochs must be above 0. Received: {args.epochs}.")
    if args.save_every.isdigit():
        args.save_every = int(args.save_every)
    return args


def make_job(args):
    """The job that the command line describes."""
    from keras_vit import recipes
    from keras_vit.job import Job

    fields = {name: getattr(args, name) for name in OF_THE_JOB.split()}
    recipe = recipes.get(args.recipe)
    changes = {name: getattr(args, name) for name in SHORTCUTS if getattr(args, name) is not None}
    changes |= dict(field_and_value(text) for text in args.set)
    # Learning rate and decay that were asked for are not scaled with the batch; the others are.
    if args.image_size:
        size = args.image_size[0] if len(args.image_size) == 1 else args.image_size
        recipe = recipe.replace(image_size=size)
        del changes["image_size"]
    if args.dataset or not (recipe.examples and recipe.num_classes):
        found = Job(recipe, **fields).load(args.split, batch_size=1)
        recipe = recipe.replace(
            dataset=found.name, examples=found.num_examples, num_classes=found.num_classes
        )
    recipe = recipe.scale(args.batch_size)
    if args.epochs:  # whole batches alone make an epoch
        recipe = recipe.scale(steps=round(args.epochs * (recipe.examples // recipe.batch_size)))
    elif args.steps:
        recipe = recipe.scale(steps=args.steps)
    if args.warmup is not None:
        changes["warmup_steps"] = int(args.warmup * recipe.steps)
    return Job(recipe.replace(**changes), **fields)


def field_and_value(text):
    """The parts of `name=value`; text needs no quotation marks."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--set takes NAME=VALUE, such as dropout=0.1. Received: {text!r}.")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def main():
    args, begin = parse_arguments(), time.perf_counter()
    if "float64" in (args.precision or ""):
        os.environ["JAX_ENABLE_X64"] = "1"  # read when JAX is imported
    from keras_vit import distribution, recipes
    from keras_vit.job import Job, configure

    if args.list:
        return recipes.list_recipes() and None
    if args.evaluate:
        return Job.read(args.evaluate).evaluate() and None
    job = make_job(args)
    if args.show:
        return print(job.recipe)
    configure(job.recipe)
    with distribution.setup(args.distribute):
        metrics = job.run()
    if metrics is None:  # another process tests the model and writes
        return
    output = pathlib.Path(args.output)
    # A fresh process tests what was saved, and writes the report again.
    again = [sys.executable, __file__, "--evaluate", str(output)]
    subprocess.run(again, check=True, stdout=subprocess.DEVNULL)
    metrics["test_accuracy_reloaded"] = json.loads((output / "evaluation.json").read_text())["top1"]
    metrics["seconds_in_all"] = round(time.perf_counter() - begin, 1)
    (output / "metrics.json").write_text(json.dumps(metrics, indent=1))
    print(json.dumps(metrics, indent=1))
    if metrics["test_accuracy_reloaded"] != metrics["test_accuracy"]:
        return "The reloaded model does not repeat the accuracy of the trained one."
    print(f"Test accuracy {metrics['test_accuracy']:.2%}; see {output / 'predictions.png'}")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (ValueError, ImportError, OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
