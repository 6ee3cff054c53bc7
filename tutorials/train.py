"""Trains a Vision Transformer by a recipe, and shows what it has learned.

    KERAS_BACKEND=jax python tutorials/train.py            (or tensorflow, or torch)

Without arguments it trains on scikit-learn's handwritten digits, which need no network, and
leaves in `output/`: metrics.json, evaluation.json, history.csv, history.png, predictions.png and
model.keras. A run that was stopped or killed goes on when the same command is given again.
"""

import argparse
import ast
import itertools
import json
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # run from a checkout
# Flags that change one field of the recipe; --set changes any.
SHORTCUTS = ("learning_rate", "weight_decay", "image_size", "precision", "seed", "accumulate")


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


def choose_recipe(args):
    """The recipe of the command line with its changes, and the data to train on."""
    from keras_vit import recipes

    recipe = recipes.get(args.recipe)
    changes = {name: getattr(args, name) for name in SHORTCUTS if getattr(args, name) is not None}
    if args.image_size:
        changes["image_size"] = args.image_size[0] if len(args.image_size) == 1 else args.image_size
    changes |= dict(_field(text) for text in args.set)
    # Learning rate and decay that were asked for are not scaled with the batch; the others are.
    recipe = recipe.replace(**{n: v for n, v in changes.items() if n == "image_size"})
    if args.dataset or not (recipe.examples and recipe.num_classes):
        found = open_data(args, recipe, args.split, batch=1)
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
    return recipe.replace(**changes)


def _field(text):
    """`name=value` of --set."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--set takes NAME=VALUE, such as dropout=0.1. Received: {text!r}.")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value  # text needs no quotation marks


def open_data(args, recipe, split=None, batch=None):
    from keras_vit import data

    return data.pipeline(
        args.dataset or recipe.dataset,
        recipe,
        split,
        batch or recipe.micro_batch_size,
        data_dir=args.data_dir,
        channels=args.channels,
    )


def build_model(args, recipe, train):
    import keras_vit
    from keras_vit import training

    options = recipe.model_options() | {
        "channels": train.image_shape[-1],
        "num_classes": train.num_classes,
    }
    variant = args.model or recipe.variant
    if variant is None:
        if args.weights:
            raise ValueError("--weights needs --model, the variant whose weights they are.")
        model = keras_vit.VisionTransformer(**options, name="vit_mini")
    else:
        model = keras_vit.build(variant, weights=args.weights, **options)
        if args.weights:
            print(model.load_report)
    if args.freeze:
        print(training.freeze(model, args.freeze))
    if args.lora:
        print(training.enable_lora(model, args.lora))
    return model


def train(args, recipe, output, devices):
    """Fits a model, or goes on with an interrupted run; with its history and seconds spent."""
    from keras_vit import training

    pipeline = open_data(args, recipe, args.split)
    test = open_data(args, recipe, args.test_split or recipe.test_split)
    if devices.writes:
        print(recipe, pipeline, sep="\n")
    with devices.scope():
        model = recipe.compile(build_model(args, recipe, pipeline))
    start = time.perf_counter()
    history = training.fit(
        model,
        pipeline,
        output,
        steps=recipe.steps * recipe.accumulate,
        validation=test,
        save_every=args.save_every,
        callbacks=recipe.callbacks(),
        settings={"recipe": recipe.to_dict(), "weights": args.weights, "freeze": args.freeze},
        tensorboard=False,
    )
    model = devices.local_copy(model)
    if args.lora:
        model = training.merge_lora(model)
    return model, test, history, time.perf_counter() - start


def save(model, recipe, args, output):
    """Leaves the model and all that `--evaluate` needs."""
    from keras_vit.training.portable import save_portable

    save_portable(model, output / "model.keras")
    settings = {"recipe": recipe.to_dict(), "args": vars(args)}
    (output / "settings.json").write_text(json.dumps(settings, indent=1))


def evaluate(model, test):
    """Tests a model and prints the report."""
    from keras_vit import evaluation

    report = evaluation.evaluate(model, test)
    print(report)
    return report


def draw(model, test, output):
    """Test images with what the model sees in them, its mistakes first: they teach most.

    Returns the path of the picture, or `None` for a model without attention.
    """
    import keras
    import numpy as np

    import keras_vit
    from keras_vit import inspection

    if not isinstance(model, keras_vit.VisionTransformer):
        return None
    batches = list(itertools.islice(test, 8))
    images, labels = (np.concatenate([np.asarray(b[i]) for b in batches]) for i in (0, 1))
    logits = np.concatenate([model.predict_on_batch(b[0]) for b in batches])
    probabilities = keras.ops.convert_to_numpy(keras.ops.softmax(logits))
    chosen = np.argsort(probabilities.argmax(-1) == labels, kind="stable")[:12]
    inspection.plot_predictions(
        (images[chosen] + 1) / 2,  # shown with values of 0 to 1
        inspection.attention_maps(model, images[chosen]),
        labels[chosen],
        probabilities[chosen],
        test.class_names,
        output / "predictions.png",
    )
    return output / "predictions.png"


def evaluate_again(folder):
    """What `--evaluate` does: the saved model alone, tested again."""
    import keras

    import keras_vit  # noqa: F401  (registers its classes)
    from keras_vit import recipes

    output = pathlib.Path(folder)
    settings = output / "settings.json"
    if not settings.is_file():
        raise ValueError(f"There is no finished run in {folder!r}: {settings.name} is missing.")
    found = json.loads(settings.read_text())
    recipe, args = recipes.Recipe.from_dict(found["recipe"]), argparse.Namespace(**found["args"])
    test = open_data(args, recipe, args.test_split or recipe.test_split)
    model = keras.saving.load_model(output / "model.keras", compile=False)
    evaluate(model, test).save(output / "evaluation.json")


def main():
    args = parse_arguments()
    if "float64" in (args.precision or ""):
        os.environ["JAX_ENABLE_X64"] = "1"  # read when JAX is imported
    begin = time.perf_counter()
    import keras

    from keras_vit import distribution, recipes
    from keras_vit.training import set_random_seed

    if args.list:
        return recipes.list_recipes() and None
    if args.evaluate:
        return evaluate_again(args.evaluate)
    recipe = choose_recipe(args)
    if args.show:
        return print(recipe)
    set_random_seed(recipe.seed)
    keras.config.set_floatx("float64" if recipe.precision == "float64" else "float32")
    keras.config.set_dtype_policy(recipe.precision)
    output = pathlib.Path(args.output)
    with distribution.setup(args.distribute) as devices:
        model, test, history, seconds = train(args, recipe, output, devices)
    if not devices.writes:  # another process does
        return
    save(model, recipe, args, output)
    # A fresh process tests what was saved, and leaves the report, while this one goes on.
    again = [sys.executable, __file__, "--evaluate", str(output)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(again, text=True, **quiet) as process:
        report = evaluate(model, test)
        picture = draw(model, test, output)
        _, errors = process.communicate()
    if process.returncode:
        raise RuntimeError(f"The saved model cannot be tested again: {errors}")
    reloaded = json.loads((output / "evaluation.json").read_text())["top1"]
    metrics = {
        "test_accuracy": report.top1,
        "test_accuracy_reloaded": reloaded,
        "train_loss": history["loss"][-1],
        "test_loss": report.loss,
        "epochs": recipe.epochs,
        "seconds_training": round(seconds, 1),
        "seconds_in_all": round(time.perf_counter() - begin, 1),
        "parameters": model.count_params(),
        "skipped_images": len(test.skipped),
        "backend": keras.backend.backend(),
        "keras": keras.__version__,
    }
    (output / "metrics.json").write_text(json.dumps(metrics, indent=1))
    print(json.dumps(metrics, indent=1))
    if reloaded != report.top1:
        print("The reloaded model does not repeat the accuracy of the trained one.")
        return 1
    drawn = [file for file in (picture, output / "history.png") if file and file.exists()]
    print(f"Test accuracy {report.top1:.2%}; see {(drawn or [output / 'history.csv'])[0]}")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (ValueError, ImportError, ConnectionError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
