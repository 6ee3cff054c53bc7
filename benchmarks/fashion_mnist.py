"""Real results on Fashion-MNIST: from scratch, from a model pre-trained here, and at more pixels.

    python benchmarks/fashion_mnist.py --data-dir DIR [--part scratch transfer resolution]

DIR holds the four IDX files (Debian: dataset-fashion-mnist). Transfer pre-trains on the classes 0
to 4 and fine-tunes on 10 or 100 images of each of the classes 5 to 9, which the pre-training has
never seen; both it and the training from scratch choose their learning rate on the same held-out
images, and the test images are looked at once. Prints Markdown tables.
"""

import argparse
import datetime
import os
import statistics
import time

import keras
import numpy as np

import keras_vit
from keras_vit import data, recipes

OLD, NEW = range(5), range(5, 10)
STEPS, HELD_OUT = 200, 1000  # of a fine-tuning, and images that choose its learning rate
RATES = {"fine-tuned": (0.01, 0.03, 0.1), "from scratch": (1e-3, 3e-3)}


def pick(images, labels, classes):
    """The images of some classes, with labels from 0."""
    chosen = np.isin(labels, list(classes))
    return images[chosen], labels[chosen] - min(classes)


def new_model(recipe, num_classes):
    keras.utils.set_random_seed(recipe.seed)
    return keras_vit.VisionTransformer(**{**recipe.model_options(), "num_classes": num_classes})


def fit(model, recipe, images, labels):
    """Trains by a recipe, and returns the seconds it took."""
    pipeline = data.load((images, labels), recipe, training=True)
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
    pipeline = data.load((images, labels), recipe, training=False, batch=500)
    return model.evaluate(pipeline, verbose=0, return_dict=True)["accuracy"]


def scratch(fashion, recipe):
    model = new_model(recipe, 10)
    seconds = fit(model, recipe, fashion.train_images, fashion.train_labels)
    reached = accuracy(model, recipe, fashion.test_images, fashion.test_labels)
    print(
        f"From scratch, {recipe.passes:.0f} epochs of 60,000 images, {model.count_params():,} "
        f"parameters: {reached:.2%} of the test images in {seconds / 60:.1f} minutes.\n"
    )


def short(recipe, kind, rate, per_class, seed):
    """The recipe of a run on few images."""
    settings = {"optimizer": "sgdm", "weight_decay": 0.0} if kind == "fine-tuned" else {}
    return recipe.replace(
        **settings,
        examples=5 * per_class,
        num_classes=5,
        batch_size=min(recipe.batch_size, 5 * per_class // 2),
        steps=STEPS,
        warmup_steps=STEPS // 10,
        learning_rate=rate,
        seed=seed,
    )


def compare(pretrained, fashion, recipe, per_class, seed, image_size=28, kinds=tuple(RATES)):
    """Test accuracy of fine-tuning and of training from scratch on the same few images."""
    images, labels = pick(fashion.train_images, fashion.train_labels, NEW)
    order = np.random.default_rng(seed).permutation(len(labels))
    held_out, rest = order[:HELD_OUT], order[HELD_OUT:]
    few = np.concatenate([rest[labels[rest] == c][:per_class] for c in range(5)])
    reached = {}
    for kind in kinds:
        best = (-1.0, None)
        for rate in RATES[kind]:
            run = short(recipe, kind, rate, per_class, seed).replace(image_size=image_size)
            model = new_model(run, 5)
            if kind == "fine-tuned":
                take_body(model, pretrained, image_size)
            fit(model, run, images[few], labels[few])
            found = accuracy(model, run, images[held_out], labels[held_out])
            best = max(best, (found, model), key=lambda pair: pair[0])
        test = pick(fashion.test_images, fashion.test_labels, NEW)
        reached[kind] = accuracy(best[1], run, *test)
    return reached


def take_body(model, pretrained, image_size):
    """Gives a model the weights of another, but for its head, which is zero."""
    if image_size != pretrained.image_size[0]:
        pretrained = keras_vit.resize(pretrained, image_size=image_size)
    for layer in model.layers:
        if layer.name != "head":
            layer.set_weights(pretrained.get_layer(layer.name).get_weights())


def pretrain(fashion, recipe):
    images, labels = pick(fashion.train_images, fashion.train_labels, OLD)
    model = new_model(recipe, 5)
    half = recipe.replace(examples=len(labels), num_classes=5)
    half = half.scale(steps=recipe.steps // 2)
    fit(model, half, images, labels)
    test = pick(fashion.test_images, fashion.test_labels, OLD)
    print(
        f"Pre-trained on the classes 0 to 4: {accuracy(model, half, *test):.2%} of their test "
        "images.\n"
    )
    return model


def table(title, rows, draws):
    print(f"| {title} | {' | '.join(rows[0][1][0])} |\n|---|{'---|' * len(rows[0][1][0])}")
    for name, found in rows:
        cells = []
        for kind in found[0]:
            values = [100 * one[kind] for one in found]
            spread = statistics.stdev(values) if draws > 1 else 0.0
            cells.append(f"{statistics.mean(values):.1f} ± {spread:.1f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data-dir", required=True)
    parts = ("scratch", "transfer", "resolution")
    parser.add_argument("--part", nargs="+", choices=parts, default=parts)
    parser.add_argument("--draws", type=int, default=3, help="draws of the few images (default 3)")
    parser.add_argument("--epochs", type=float, help="instead of the recipe's")
    options = parser.parse_args()
    fashion = data.load("fashion_mnist", data_dir=options.data_dir)
    recipe = recipes.fashion_mnist().scale(epochs=options.epochs)
    if "scratch" in options.part:
        scratch(fashion, recipe)
    if set(options.part) & {"transfer", "resolution"}:
        pretrained = pretrain(fashion, recipe)
    if "transfer" in options.part:
        rows = [
            (
                f"{n} images per class",
                [compare(pretrained, fashion, recipe, n, s) for s in range(options.draws)],
            )
            for n in (10, 100)
        ]
        table("test accuracy, %", rows, options.draws)
    if "resolution" in options.part:
        found = []
        for seed in range(options.draws):
            found.append({})
            for pixels in (28, 40):
                reached = compare(
                    pretrained, fashion, recipe, 100, seed, pixels, kinds=("fine-tuned",)
                )
                found[-1][f"{pixels} px"] = reached["fine-tuned"]
        table(
            "fine-tuned, 100 images per class, %", [("pre-trained at 28 px", found)], options.draws
        )
    print(f"{keras.backend.backend()}, {os.cpu_count()} cores, {datetime.date.today():%B %Y}")


if __name__ == "__main__":
    main()
