"""Trains a Vision Transformer on images and shows what it has learned.

    KERAS_BACKEND=jax python tutorials/train.py            (or tensorflow, or torch)

Without arguments it trains on scikit-learn's handwritten digits, which need no network, and
leaves in `output/`: metrics.json, history.csv, history.png, predictions.png and model.keras.
"""

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # run from a checkout

MINI = {"width": 64, "depth": 3, "num_heads": 4, "pool": "mean", "patch_size": 4}
MIRRORED = ("fashion_mnist",)  # and folders: here an image keeps its meaning in the mirror


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="The environment variable KERAS_BACKEND chooses jax, tensorflow or torch.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--output", default="output", help="folder for everything the run leaves")
    add(
        "--dataset",
        default="digits",
        help="digits, fashion_mnist, an .npz file, or a folder with one subfolder per class",
    )
    add("--data-dir", help="where the files of fashion_mnist are (IDX, or prepared by TFDS)")
    add("--skip-corrupt", action="store_true", help="leave unreadable images out and count them")
    add(
        "--model",
        default="mini",
        help="mini (3 blocks, width 64, 4x4 patches), or a published variant such as Ti/16",
    )
    add(
        "--image-size",
        type=int,
        nargs="+",
        help="side, or height and width, to resize to; "
        "None keeps the size of the images, but doubles the 8x8 digits",
    )
    add("--patch-size", type=int, nargs="+", help="side, or height and width, of a patch")
    add("--channels", type=int, choices=(1, 3), help="convert the images to so many channels")
    add("--epochs", type=int, default=45, help="passes through the training images")
    add("--batch-size", type=int, default=64, help="images in an update")
    add("--learning-rate", type=float, default=3e-3, help="the highest, after the warm-up")
    add("--warmup", type=float, default=0.1, help="share of the updates that warms up")
    add("--weight-decay", type=float, default=0.1, help="of the kernels, as in AdamW")
    add(
        "--augment",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="turn, scale and move the training images; mirror them where that keeps their meaning",
    )
    add(
        "--precision",
        default="float32",
        choices=("float32", "mixed_bfloat16", "float64"),
        help="type of the computation",
    )
    add("--seed", type=int, default=0, help="of the weights, the split, the order, the shifts")
    add("--resume", metavar="FOLDER", help="continue an interrupted run with its own settings")
    add("--evaluate", metavar="FOLDER", help="only reload a trained model and test it again")
    args = parser.parse_args(arguments)
    folder = args.resume or args.evaluate
    if folder:
        changed = {name for name, value in vars(args).items() if value != parser.get_default(name)}
        if changed - {"resume", "evaluate"}:
            parser.error(
                f"--resume and --evaluate take every setting from {folder}/settings.json. "
                f"Received also: {sorted(changed - {'resume', 'evaluate'})}; leave them out."
            )
        return read_settings(folder, args)
    if args.epochs < 1 or args.batch_size < 1 or not 0 <= args.warmup < 1:
        parser.error(
            "--epochs and --batch-size must be at least 1 and --warmup in [0, 1). Received: "
            f"{args.epochs}, {args.batch_size}, {args.warmup}."
        )
    return args


def read_settings(folder, args):
    path = pathlib.Path(folder) / "settings.json"
    if not path.is_file():
        raise ValueError(f"There is no run to read in {str(folder)!r}: {path.name} is missing.")
    settings = json.loads(path.read_text())
    settings.update(output=folder, resume=args.resume, evaluate=args.evaluate)
    return argparse.Namespace(**settings)


def load_data(args):
    from keras_vit import data

    dataset = data.load(
        args.dataset,
        data_dir=args.data_dir,
        image_size=_one_or_pair(args.image_size or ([16] if args.dataset == "digits" else None)),
        channels=args.channels,
        skip_corrupt=args.skip_corrupt,
        seed=args.seed,
    )
    print(dataset)
    if dataset.skipped:
        print(f"left out {len(dataset.skipped)} corrupt images:", *dataset.skipped, sep="\n  ")
    return dataset


def build_model(args, dataset):
    import keras_vit

    *image_size, channels = dataset.image_shape
    options = dict(image_size=image_size, channels=channels, num_classes=dataset.num_classes)
    if args.patch_size:
        options["patch_size"] = _one_or_pair(args.patch_size)
    if args.model == "mini":
        return keras_vit.VisionTransformer(**{**MINI, **options}, name="vit_mini")
    return keras_vit.VisionTransformer(args.model, **options)


def train(args, dataset, output):
    """Fits a new model, or goes on with an interrupted one; with its history and seconds spent."""
    import keras

    from keras_vit import data, training

    batch_size = min(args.batch_size, len(dataset.train_images))
    steps = len(dataset.train_images) // batch_size
    if args.resume:
        if args.backend != keras.backend.backend():
            raise ValueError(
                f"An optimizer goes on only where it began. Received: a run on {args.backend}, "
                f"resumed on {keras.backend.backend()}; set KERAS_BACKEND={args.backend}."
            )
        model = keras.saving.load_model(output / "checkpoint.keras")
        model.optimizer.exclude_from_weight_decay(var_names=list(training.NO_DECAY))
    else:
        model = build_model(args, dataset)
        total = steps * args.epochs
        model.compile(
            optimizer=training.adamw(
                args.learning_rate, total, int(args.warmup * total), args.weight_decay
            ),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    first_epoch = int(model.optimizer.iterations) // steps
    mirror = args.dataset in MIRRORED or pathlib.Path(args.dataset).is_dir()
    augment = data.compose(data.affine(), *[data.flip()] * mirror) if args.augment else None
    batches = data.Batches(
        dataset.train_images,
        dataset.train_labels,
        batch_size,
        shuffle=True,
        augment=augment,
        seed=args.seed,
        drop_remainder=True,  # a batch of another size would compile the step a second time
        start_epoch=first_epoch,
    )
    settings = {**vars(args), "backend": keras.backend.backend()}
    (output / "settings.json").write_text(json.dumps(settings, indent=1))
    history = training.HistoryCSV(output / "history.csv", first_epoch)
    start = time.perf_counter()
    model.fit(
        batches,
        validation_data=(data.preprocess(dataset.test_images), dataset.test_labels),
        validation_batch_size=batch_size,
        initial_epoch=first_epoch,
        epochs=args.epochs,
        shuffle=False,  # `Batches` does it, in an order that resuming repeats
        callbacks=[
            keras.callbacks.TerminateOnNaN(),
            history,
            training.Checkpoint(output / "checkpoint.keras"),
            training.StopOnInterrupt(),
        ],
    )
    if not math.isfinite(history.read()["loss"][-1]):
        raise ValueError(
            f"The loss is no longer finite, so training stopped. Lower --learning-rate "
            f"({args.learning_rate}), lengthen --warmup ({args.warmup}), or use --precision "
            f"float32. {output / 'checkpoint.keras'} is from the last good epoch."
        )
    return model, history.read(), time.perf_counter() - start


def test(model, dataset, batch_size):
    """The probabilities of the classes of every test image, and how many are right."""
    import keras

    from keras_vit import data

    logits = model.predict(data.preprocess(dataset.test_images), batch_size=batch_size, verbose=0)
    probabilities = keras.ops.convert_to_numpy(keras.ops.softmax(logits))
    return probabilities, int((probabilities.argmax(-1) == dataset.test_labels).sum())


def draw(model, history, dataset, probabilities, output):
    """The curves of the training, and test images with what the model sees in them."""
    from keras_vit import data, inspection

    inspection.plot_history(history, output / "history.png")
    wrong = probabilities.argmax(-1) != dataset.test_labels
    chosen = (-wrong.astype(int)).argsort(kind="stable")[:6]  # mistakes first: they teach most
    chosen = [*chosen, *[i for i in range(len(wrong)) if i not in chosen][:6]]
    images = dataset.test_images[chosen]
    inspection.plot_predictions(
        images,
        inspection.attention_maps(model, data.preprocess(images)),
        dataset.test_labels[chosen],
        probabilities[chosen],
        dataset.class_names,
        output / "predictions.png",
    )


def evaluate(args, dataset, output):
    """What `--evaluate` does: the saved model alone, tested again."""
    import keras

    import keras_vit  # noqa: F401  (registers its classes)

    model = keras.saving.load_model(output / "model.keras", compile=False)
    _, right = test(model, dataset, args.batch_size)
    print(json.dumps({"correct": right, "of": len(dataset.test_labels)}))


def main():
    args = parse_arguments()
    if args.precision == "float64":
        os.environ["JAX_ENABLE_X64"] = "1"  # read when JAX is imported
    begin = time.perf_counter()
    import keras

    keras.utils.set_random_seed(args.seed)
    keras.config.set_floatx("float64" if args.precision == "float64" else "float32")
    keras.config.set_dtype_policy(args.precision)
    output = pathlib.Path(args.output)
    dataset = load_data(args)
    if args.evaluate:
        return evaluate(args, dataset, output)
    output.mkdir(parents=True, exist_ok=True)
    try:
        model, history, seconds = train(args, dataset, output)
    except KeyboardInterrupt:
        print(
            f"\nInterrupted. {output / 'checkpoint.keras'} holds the last finished epoch; resume "
            f"with: KERAS_BACKEND={keras.backend.backend()} python {sys.argv[0]} --resume {output}"
        )
        return 130
    probabilities, right = test(model, dataset, args.batch_size)
    # Without its optimizer, which only the backend that made it could use.
    portable = type(model).from_config(model.get_config())
    portable.set_weights(model.get_weights())
    portable.save(output / "model.keras")
    draw(model, history, dataset, probabilities, output)
    command = [sys.executable, __file__, "--evaluate", str(output)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    reloaded = json.loads(printed.splitlines()[-1])
    metrics = {
        "test_accuracy": right / len(dataset.test_labels),
        "test_accuracy_reloaded": reloaded["correct"] / reloaded["of"],
        "test_loss": history["val_loss"][-1],
        "train_loss": history["loss"][-1],
        "epochs": args.epochs,
        "seconds_training": round(seconds, 1),
        "seconds_in_all": round(time.perf_counter() - begin, 1),
        "parameters": model.count_params(),
        "skipped_images": len(dataset.skipped),
        "backend": keras.backend.backend(),
        "keras": keras.__version__,
    }
    (output / "metrics.json").write_text(json.dumps(metrics, indent=1))
    print(json.dumps(metrics, indent=1))
    if reloaded["correct"] != right:
        print("The reloaded model does not repeat the accuracy of the trained one.")
        return 1
    print(f"Test accuracy {metrics['test_accuracy']:.2%}; see {output}/predictions.png")


def _one_or_pair(values):
    return values[0] if values and len(values) == 1 else values


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (ValueError, ImportError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
