"""`keras-vit train`: trains a model by a recipe, and shows what it has learned."""

import argparse
import dataclasses
import functools
import json
import math
import os
import pathlib
import shlex
import subprocess
import sys
import time

from keras_vit_cli import parser
from keras_vit_cli.arguments import (
    FLAG,
    MODEL,
    Settings,
    by_head,
    count,
    interval,
    not_negative,
    passes,
    positive,
    probability,
    seed,
    several,
    share,
)
from keras_vit_cli.models import file_of, settings_of_run, use_precision

# Flags that change one field of the recipe; --set changes any.
SHORTCUTS = ("learning_rate", "weight_decay", "image_size", "precision", "seed", "accumulate")
SHORTCUTS += ("keep_best", "early_stopping", "loss_weights")
# Fields of the recipe that flags of other names decide, and must then not be set as well.
OF_FLAGS = {"steps": "steps epochs warmup", "batch_size": "batch_size epochs"}
OF_FLAGS |= {"warmup_steps": "warmup", "variant": "model", "train": "random_erasing"}
# Fields that the data decides: only these flags, or other data, change them.
OF_DATA = {"dataset": "--dataset", "train_split": "--split", "test_split": "--test-split"}
OF_DATA |= {"problem": "--problem", "examples": "other data", "num_classes": "other data"}
# Fields that have an effect where another one has this value.
NEEDS = {"momentum": ("optimizer", "sgdm"), "end_learning_rate": ("schedule", "linear")}
NEEDS |= dict.fromkeys(("beta1", "beta2", "epsilon"), ("optimizer", "adam"))
NEEDS |= dict.fromkeys(("timescale", "cooldown_steps"), ("schedule", "rsqrt"))
NEEDS |= {"boundaries": ("schedule", "stairs")}
OWN_IMAGES = "own_images"  # the recipe for any folder, file or archive of images
OF_THE_JOB = """output dataset data_dir channels labels problem split test_split model weights
    freeze lora teacher save_every keep_checkpoints"""


def add_train(add):
    change = functools.partial(add, default_text="the recipe's")
    text = "what to do, see `keras-vit recipes` (default: own_images for a folder, or else digits)"
    add("--recipe", text)
    add("--list", "print the names of all recipes and end", **FLAG)
    text = "print the recipe, with every change, what it costs in memory and time, and end"
    add("--show --dry-run", text, **FLAG)
    add("-o --output", "folder for what the run leaves (default: output)", default="output")
    change("--dataset", "other than the recipe's: a name, .npz file, or folder", metavar="DATA")
    add("--labels")
    add("--problem", default_text="what the labels show")
    text = "weights of the losses of several heads, HEAD=WEIGHT,HEAD=WEIGHT"
    change("--loss-weights", text, type=by_head(positive), metavar="WEIGHTS")
    add("--data-dir", default_text="$TFDS_DATA_DIR, or ~/tensorflow_datasets")
    add("--split", "training images, such as train[:98%%] (default: the recipe's)")
    add("--test-split", "images to test on (default: the recipe's)", metavar="SPLIT")
    change("--variant --model", "architecture instead of the recipe's: B/16", dest="model")
    text = "checkpoint to begin from: name, file, folder or URL"
    add("--weights", text, default_text="none: it begins at random")
    add("--freeze", "layers that do not train, as block_[0-8]", **several(str, "PATTERN"))
    add("--lora", "train low-rank changes of the weights alone", type=count, metavar="RANK")
    add("--teacher", f"to learn from it, too (distillation): {MODEL}", metavar="MODEL")
    change("--epochs", "passes through the training images", type=passes)
    change("--steps", "updates, instead of --epochs", type=count)
    change("--batch-size", "images in an update; what follows from it is scaled too", default=None)
    change("--warmup", "share of the updates that warms up", type=share, metavar="SHARE")
    change("--learning-rate", "the highest, after the warm-up", type=positive)
    change("--weight-decay", "of the kernels, as in AdamW", type=not_negative)
    change("--image-size", "side, or height and width", type=count, nargs="+", metavar="PX")
    change("--accumulate", "parts that a batch is computed in, to save memory", type=count)
    change("--precision", "float32, mixed_bfloat16, mixed_float16 or float64")
    change("--seed", "of the weights, the order and the augmentation", type=seed)
    add("--set", "any other field of the recipe", action=Settings, default_text="no change")
    add("--channels", "convert the images to so many channels", type=int, choices=(1, 3))
    text = "updates between checkpoints, or seconds as 600s"
    add("--save-every", text, type=interval, default="600s")
    text = f"end with the weights of the best epoch on validation (default with {OWN_IMAGES})"
    change("--keep-best", text, action=argparse.BooleanOptionalAction)
    text = "end after so many epochs without a better one, with the weights of the best"
    change("--early-stopping", text, type=count, metavar="EPOCHS")
    text = "let rare classes count as much as frequent ones in the loss"
    change("--class-weights", text, choices=("balanced",))
    text = "erase a random box in this share of the training images (random erasing)"
    change("--random-erasing", text, type=probability, metavar="SHARE")
    text = "keep checkpoints after the end, several times as large as the model"
    add("--keep-checkpoints", text, **FLAG)
    add("--distribute", "such as auto or data_parallel", default="single", metavar="MODE")
    add("--evaluate", "only test the model of a run again, as after training", metavar="FOLDER")


def run_train(args):
    """Train a model by a recipe, test it and draw what it has learned.

    keras-vit train --dataset photos --image-size 64 --epochs 30 -o photos_run
    """
    begin = time.perf_counter()
    if None not in (args.epochs, args.steps):
        args.refuse(f"give --epochs or --steps. Received: {args.epochs} and {args.steps}.")
    of_run = settings_of_run(args.evaluate).get("recipe", {}) if args.evaluate else {}
    use_precision(of_run.get("precision") or args.precision or args.set.get("precision"))
    from keras_vit import distribution, recipes
    from keras_vit.job import Job, configure
    from keras_vit.text import visible
    from keras_vit.writing import write_text

    if args.list:
        recipes.list_recipes()
        return 0
    if args.evaluate:
        usual = vars(parser().parse_args(["train"]))
        apart = {"evaluate", "output", "backend", "traceback", "refuse"}
        if given := [n for n in usual if n not in apart and getattr(args, n) != usual[n]]:
            received = f"Received: {', '.join(given)} beside it."
            args.refuse(f"--evaluate repeats a run as it was. {received}")
        Job.read(args.evaluate).evaluate()
        return 0
    job = make_job(args)
    configure(job.recipe)
    if args.show:
        show(job)
        return 0
    with distribution.setup(args.distribute):
        metrics = job.run()
    if metrics is None:  # another process tests the model and writes
        return 0
    output = pathlib.Path(args.output)
    name, value = test_again(output)
    metrics[f"test_{name}_reloaded"] = value
    metrics["seconds_in_all"] = round(time.perf_counter() - begin, 1)
    write_text(output / "metrics.json", json.dumps(metrics, indent=1))
    print(json.dumps(metrics, indent=1))
    figure = name.replace("_", " ")
    if value != (expected := metrics[f"test_{name}"]):
        text = f"error: the reloaded model does not repeat the {figure} of the trained one"
        print(text, file=sys.stderr)
        return 1
    expected = math.nan if expected is None else expected
    shown = f"{expected:.2%}" if name.endswith("accuracy") else f"{expected:.4g}"
    print(f"Test {figure} {shown}; see {visible(output)}")
    return 0


def check_settings(args):
    """Refuses a --set that would be overruled, or would overrule another flag."""
    for name, value in args.set.items():
        if name in OF_DATA:
            args.refuse(
                f"--set: {name} is what the data has; give {OF_DATA[name]} instead. Received: "
                f"{name}={value!r}"
            )
        for argument in OF_FLAGS.get(name, name).split():
            if (given := getattr(args, argument, None)) is not None:
                flag = {"model": "variant"}.get(argument, argument).replace("_", "-")
                args.refuse(f"give --{flag} or --set {name}. Received: {given} and {value!r}.")


def make_job(args):
    """The job that the command line describes."""
    from keras_vit import recipes
    from keras_vit.data.load import is_named
    from keras_vit.job import Job

    fields = {name: getattr(args, name) for name in OF_THE_JOB.split()}
    fields["teacher"] = args.teacher and file_of(args.teacher)
    check_settings(args)
    if args.labels and not args.dataset:
        args.refuse("--labels needs --dataset, the folder of the images.")
    if args.weights and file_of(args.weights).endswith(".keras"):
        args.refuse(
            "--weights takes a checkpoint, which `keras-vit convert` makes of a Keras model: "
            f"keras-vit convert {shlex.quote(args.weights)} start.safetensors. "
            f"Received: {args.weights!r}"
        )
    is_own = args.labels or (args.dataset and not is_named(args.dataset, args.data_dir))
    name, images = args.recipe or (OWN_IMAGES if is_own else "digits"), None
    recipe = recipes.get(name)
    if name == OWN_IMAGES and not args.dataset:
        args.refuse(f"--recipe {OWN_IMAGES} needs --dataset, your images.")
    if args.dataset or args.split or not (recipe.examples and recipe.num_classes):
        images = Job(recipe, **fields).load_train(batch_size=1)
    if name == OWN_IMAGES:
        recipe = recipe_of_images(args, images)
    if images is not None:
        recipe = recipe.for_problem(images.problem)
    if (args.model or args.weights) and recipe.variant is None:  # a whole model's architecture
        recipe = recipe.replace(architecture=())
    changes = {name: getattr(args, name) for name in SHORTCUTS if getattr(args, name) is not None}
    if args.image_size and len(args.image_size) == 1:
        changes["image_size"] = args.image_size[0]
    changes |= args.set
    # Learning rate and decay that were asked for are not scaled with the batch; the others are.
    if args.class_weights:
        train = images or Job(recipe, **fields).load_train(batch_size=1)
        changes["class_weights"] = train.balanced_class_weights()
    if args.random_erasing:
        augment = (*recipe.train.augment, ("random_erasing", args.random_erasing))
        recipe = recipe.replace(train=dataclasses.replace(recipe.train, augment=augment))
    if images is not None:
        recipe = recipe.replace(
            dataset=images.name, examples=images.num_examples, num_classes=images.num_classes
        )
    recipe = recipe.scale(args.batch_size)
    steps = args.steps
    if args.epochs is not None:  # an epoch has whole batches only
        steps = max(1, round(args.epochs * (recipe.examples // recipe.batch_size)))
    if steps is not None:
        recipe = recipe.scale(steps=steps)
    if args.warmup is not None:
        changes["warmup_steps"] = int(args.warmup * recipe.steps)
    recipe = recipe.replace(**changes)
    for name in NEEDS.keys() & args.set.keys():
        field, value = NEEDS[name]
        if (present := getattr(recipe, field)) != value:
            args.refuse(
                f"--set: {name} has an effect with {field}={value!r} only. Received: {name} and "
                f"{field}={present!r}"
            )
    return Job(recipe, **fields)


def show(job):
    """Prints a recipe and what its run costs; that is unknown where the images are not here."""
    from keras_vit.plan import cost, planned

    try:
        job.load_train(batch_size=1)
    except (ValueError, ImportError) as error:
        print(job.recipe, f"What it costs is not known without its images: {error}", sep="\n\n")
        return
    job, model = planned(job)
    print(job.recipe, end="\n\n", flush=True)
    print(cost(job, model))


def recipe_of_images(args, images):
    """The recipe for a pipeline of one's own images, with the size of weights or of the images."""
    from keras_vit import recipes
    from keras_vit.data.pixels import shorter_side
    from keras_vit.recipes.listing import size_from_scratch
    from keras_vit.weights.load import image_size_of

    size = args.image_size and (args.image_size * 2)[:2]
    if size is None and args.weights:
        size = image_size_of(args.weights)
    elif size is None:
        size = size_from_scratch(shorter_side(images.source, images.rows))
    options = {"image_size": size, "pretrained": bool(args.weights)}
    return recipes.own_images(images.num_examples, None, args.model, **options)


def test_again(output):
    """(name, value) of the first figure that a fresh process finds with what was saved.

    It writes the report again.
    """
    command = [sys.executable, "-P", "-m", "keras_vit_cli", "train", "--evaluate", str(output)]
    # It finds modules where this process does: a checkout need not be installed.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    figures = json.loads((output / "evaluation.json").read_text())["figures"]
    return next(iter(figures.items()))
