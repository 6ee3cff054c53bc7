"""Real results on Fashion-MNIST: from scratch, from a model pre-trained here, and at more pixels.

    python benchmarks/fashion_mnist.py --data-dir DIR [--part scratch transfer]
    python benchmarks/fashion_mnist.py --data-dir DIR --part transfer --results FILE

DIR holds the four IDX files (Debian: dataset-fashion-mnist). From scratch, a hybrid is trained.
For the transfer it is a plain ViT of the same blocks, which knows nothing of images before it has
seen some. Each draw divides the classes at random: a model is pre-trained on five of them, and
fine-tuned on 10 or 100 images of each of the others, which it has never seen; with 10, the mean
of several such choices of images is one result. Fine-tuning and training from scratch have the
same images and the same choice of learning rates, both choose on the same held-out images, and
the test images are looked at only then. Prints Markdown tables. With FILE every draw is kept as
a line of it when it is done, and a draw that it has is not made again.
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import time

import keras
import numpy as np

import keras_vit
from keras_vit import data, recipes

STEPS, HELD_OUT = 200, 1000  # of a run on few images, and images that choose its learning rate
RATES = (1e-3, 5e-3)
KINDS = ("fine-tuned", "from scratch")
CHOICES = {10: 3, 100: 1}  # images per class, and how often they are chosen in a draw
PRETRAINING = 2 / 3  # of the epochs of a training from scratch
PLAIN = {"patch_size": 4}  # 7 x 7 patches of 28 px, as many tokens as the hybrid has


def halves(draw):
    """The classes to pre-train on, and those to learn from few images."""
    classes = np.random.default_rng(draw).permutation(10)
    return np.sort(classes[:5]), np.sort(classes[5:])


def pick(images, labels, classes):
    """The images of some classes, with labels from 0."""
    chosen = np.isin(labels, classes)
    return images[chosen], np.searchsorted(classes, labels[chosen])


def new_model(recipe, num_classes):
    keras.utils.set_random_seed(recipe.seed)
    return keras_vit.VisionTransformer(**{**recipe.model_options(), "num_classes": num_classes})


def plain(recipe):
    """The recipe with a ViT without convolutions."""
    blocks = {k: v for k, v in dict(recipe.architecture).items() if k != "stem"}
    return recipe.replace(architecture={**blocks, **PLAIN})


def fit(model, recipe, images, labels):
    """Trains by a recipe, and returns the seconds it took."""
    pipeline = data.pipeline((images, labels), recipe, training=True)
    recipe.compile(model)
    start = time.perf_counter()
    model.fit(
        pipeline,
        epochs=-(-recipe.steps // pipeline.steps_per_epoch),
        callbacks=recipe.callbacks(),
        verbose=0,
    )
    return time.perf_counter() - start


def accuracy(model, recipe, images, labels):
    pipeline = data.pipeline((images, labels), recipe, training=False, batch_size=500)
    return model.evaluate(pipeline, verbose=0, return_dict=True)["accuracy"]


def scratch(fashion, recipe):
    model = new_model(recipe, 10)
    seconds = fit(model, recipe, fashion.train_images, fashion.train_labels)
    reached = accuracy(model, recipe, fashion.test_images, fashion.test_labels)
    print(
        f"From scratch, {recipe.passes:.0f} epochs of 60,000 images, {model.count_params():,} "
        f"parameters: {reached:.2%} of the test images in {seconds / 60:.1f} minutes.\n"
    )


def short(recipe, rate, per_class, seed, image_size):
    """The recipe of a run on few images."""
    return recipe.replace(
        examples=5 * per_class,
        num_classes=5,
        batch_size=min(recipe.batch_size, 5 * per_class // 2),
        steps=STEPS,
        warmup_steps=STEPS // 10,
        learning_rate=rate,
        seed=seed,
        image_size=image_size,
    )


def learn_few(pretrained, fashion, recipe, per_class, draw, image_size=28):
    """Test accuracy after training on few images of each class that was left for it.

    Args:
        pretrained: the model to begin with, or `None` for one from scratch.
    """
    choices = range(CHOICES[per_class])
    return statistics.mean(
        _learn(pretrained, fashion, recipe, per_class, (draw, choice), image_size)
        for choice in choices
    )


def _learn(pretrained, fashion, recipe, per_class, seed, image_size):
    draw, choice = seed
    classes = halves(draw)[1]
    images, labels = pick(fashion.train_images, fashion.train_labels, classes)
    order = np.random.default_rng(seed).permutation(len(labels))
    held_out, rest = order[:HELD_OUT], order[HELD_OUT:]
    few = np.concatenate([rest[labels[rest] == c][:per_class] for c in range(5)])
    best, chosen = -1.0, None
    for rate in RATES:
        run = short(recipe, rate, per_class, choice, image_size)
        model = new_model(run, 5)
        if pretrained is not None:
            take_body(model, pretrained, image_size)
        fit(model, run, images[few], labels[few])
        found = accuracy(model, run, images[held_out], labels[held_out])
        if found > best:
            best, chosen = found, model
    test = pick(fashion.test_images, fashion.test_labels, classes)
    return accuracy(chosen, run, *test)


def take_body(model, pretrained, image_size):
    """Gives a model the weights of another, but for its head, which is zero."""
    if image_size != pretrained.image_size[0]:
        pretrained = keras_vit.resize(pretrained, image_size=image_size)
    for layer in model.layers:
        if layer.name != "head":
            layer.set_weights(pretrained.get_layer(layer.name).get_weights())


def pretrain(fashion, recipe, draw):
    classes = halves(draw)[0]
    images, labels = pick(fashion.train_images, fashion.train_labels, classes)
    half = recipe.replace(examples=len(labels), num_classes=5, seed=draw, label_smoothing=0.0)
    half = half.scale(epochs=recipe.passes * PRETRAINING)
    model = new_model(half, 5)
    fit(model, half, images, labels)
    found = accuracy(model, half, *pick(fashion.test_images, fashion.test_labels, classes))
    print(f"Pre-trained on the classes {classes}: {found:.2%} of their test images.", flush=True)
    return model


def table(title, rows):
    """Prints mean and standard deviation over the draws, and of the difference of both columns."""
    names = list(rows[0][1][0])
    print(f"\n| {title} | {' | '.join(names)} | difference |\n|---|{'---|' * 3}")
    for name, found in rows:
        columns = [[100 * one[kind] for one in found] for kind in names]
        columns.append([a - b for a, b in zip(*columns)])
        cells = [
            f"{statistics.mean(c):.1f} ± {statistics.stdev(c) if len(c) > 1 else 0:.1f}"
            for c in columns
        ]
        print(f"| {name} | {' | '.join(cells)} |")
    print()


def make_draw(fashion, recipe, draw):
    """Test accuracies of one draw: by images per class and start, and of 28 and 40 pixels."""
    pretrained = pretrain(fashion, recipe, draw)
    found = {"draw": draw, "epochs": recipe.passes}
    for per_class in CHOICES:
        results = (
            learn_few(start, fashion, recipe, per_class, draw) for start in (pretrained, None)
        )
        found[str(per_class)] = dict(zip(KINDS, results))
    larger = learn_few(pretrained, fashion, recipe, 100, draw, image_size=40)
    found["resolution"] = {"28 px": found["100"][KINDS[0]], "40 px": larger}
    print(json.dumps(found), flush=True)
    return found


def on_few_images(fashion, recipe, draws, results):
    """Makes the draws that `results`, a file or `None`, does not have, and prints the tables."""
    lines = results.read_text().splitlines() if results and results.exists() else ()
    made = {found["draw"]: found for found in map(json.loads, lines)}
    if other := [d for d, found in made.items() if found["epochs"] != recipe.passes]:
        raise SystemExit(f"{results} has draws {other} of other --epochs; name another file.")
    for draw in draws:
        if draw not in made:
            made[draw] = make_draw(fashion, recipe, draw)
            if results:
                with results.open("a") as file:
                    file.write(json.dumps(made[draw]) + "\n")
    found = [made[draw] for draw in draws]
    rows = [(f"{n} images per class", [each[str(n)] for each in found]) for n in CHOICES]
    table("test accuracy, %", rows)
    rows = [("pre-trained at 28 px", [each["resolution"] for each in found])]
    table("fine-tuned, 100 images per class, %", rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data-dir", required=True)
    parts = ("scratch", "transfer")
    parser.add_argument("--part", nargs="+", choices=parts, default=parts)
    parser.add_argument(
        "--draws",
        type=int,
        nargs="+",
        default=(0, 1, 2, 3),
        help="seeds of the draws (default 0 to 3)",
    )
    parser.add_argument("--results", type=pathlib.Path, help="file of the draws that are made")
    parser.add_argument("--epochs", type=float, help="instead of the recipe's")
    options = parser.parse_args()
    fashion = data.load("fashion_mnist", data_dir=options.data_dir)
    recipe = recipes.fashion_mnist().scale(epochs=options.epochs)
    if "scratch" in options.part:
        scratch(fashion, recipe)
    if "transfer" in options.part:
        on_few_images(fashion, plain(recipe), options.draws, options.results)
    print(f"{keras.backend.backend()}, {os.cpu_count()} cores, {datetime.date.today():%B %Y}")


if __name__ == "__main__":
    main()
