"""Fashion-MNIST: from scratch, and from a model that was pre-trained on half of the classes.

    python studies/fashion_mnist.py --data-dir DIR [--part scratch transfer]

DIR holds the four IDX files (Debian: dataset-fashion-mnist). From scratch, a hybrid is trained.
For the transfer each draw divides the classes at random: a plain ViT of the same blocks is
pre-trained on five of them and fine-tuned on 10 or 100 images of each of the others, at 28 and at
40 pixels. Training from scratch has the same images. Both choose between two learning rates on the
same 1,000 held-out images; the test images are looked at only then.
"""

import argparse
import statistics
import time

import keras
import numpy as np

import keras_vit
from keras_vit import data, recipes

STEPS, HELD_OUT, RATES = 200, 1000, (1e-3, 5e-3)
CHOICES = {10: 3, 100: 1}  # images per class, and how often they are chosen in a draw


def pick(images, labels, classes):
    """The images of some classes, with labels from 0."""
    chosen = np.isin(labels, classes)
    return images[chosen], np.searchsorted(classes, labels[chosen])


def train(recipe, images, labels, pretrained=None):
    """A model trained by a recipe, from scratch or with a body that is resized to it."""
    keras.utils.set_random_seed(recipe.seed)
    model = keras_vit.VisionTransformer(**recipe.model_options())
    if pretrained is not None:
        body = keras_vit.resize(pretrained, image_size=recipe.image_size)
        for layer in model.layers:
            if layer.name != "head":
                layer.set_weights(body.get_layer(layer.name).get_weights())
    batches = data.pipeline((images, labels), recipe, training=True)
    recipe.compile(model)
    epochs = -(-recipe.steps // batches.steps_per_epoch)
    model.fit(batches, epochs=epochs, callbacks=recipe.callbacks(), verbose=0)
    return model


def accuracy(model, recipe, images, labels):
    batches = data.pipeline((images, labels), recipe, training=False, batch_size=500)
    return model.evaluate(batches, verbose=0, return_dict=True)["accuracy"]


def learn_few(pretrained, fashion, recipe, classes, per_class, seed, size=28):
    """Test accuracy after training on few images of each class that was left for it."""
    images, labels = pick(fashion.train_images, fashion.train_labels, classes)
    order = np.random.default_rng(seed).permutation(len(labels))
    held_out, rest = order[:HELD_OUT], order[HELD_OUT:]
    few = np.concatenate([rest[labels[rest] == c][:per_class] for c in range(5)])
    best = (-1.0, None)
    options = {"examples": len(few), "num_classes": 5, "image_size": size, "seed": seed[1]}
    options |= {"batch_size": min(recipe.batch_size, len(few) // 2)}
    options |= {"steps": STEPS, "warmup_steps": STEPS // 10}
    for rate in RATES:
        run = recipe.replace(learning_rate=rate, **options)
        model = train(run, images[few], labels[few], pretrained)
        found = accuracy(model, run, images[held_out], labels[held_out])
        best = max(best, (found, model), key=lambda entry: entry[0])
    return accuracy(best[1], run, *pick(fashion.test_images, fashion.test_labels, classes))


def transfer(fashion, recipe, draw):
    """Test accuracies of one draw: (what, images per class) -> accuracy."""
    classes = np.random.default_rng(draw).permutation(10)
    first, others = np.sort(classes[:5]), np.sort(classes[5:])
    images, labels = pick(fashion.train_images, fashion.train_labels, first)
    half = recipe.replace(examples=len(labels), num_classes=5, seed=draw, label_smoothing=0.0)
    pretrained = train(half.scale(epochs=recipe.passes * 2 / 3), images, labels)
    found = {}
    for what, start, size in (
        *(("fine-tuned", pretrained, 28), ("from scratch", None, 28)),
        ("fine-tuned at 40 px", pretrained, 40),
    ):
        for few, times in CHOICES.items() if size == 28 else [(100, 1)]:
            seeds = [(draw, choice) for choice in range(times)]
            reached = (learn_few(start, fashion, recipe, others, few, s, size) for s in seeds)
            found[what, few] = statistics.mean(reached)
            print(f"draw {draw}, {what}, {few} per class: {found[what, few]:.3f}", flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--part", nargs="+", default=["scratch", "transfer"])
    parser.add_argument("--draws", type=int, nargs="+", default=[0, 1, 2], help="seeds")
    parser.add_argument("--epochs", type=float, help="instead of the recipe's")
    args = parser.parse_args()
    fashion = data.load("fashion_mnist", data_dir=args.data_dir)
    recipe = recipes.fashion_mnist().scale(epochs=args.epochs)
    if "scratch" in args.part:
        start = time.perf_counter()
        model = train(recipe, fashion.train_images, fashion.train_labels)
        seconds = time.perf_counter() - start
        reached = accuracy(model, recipe, fashion.test_images, fashion.test_labels)
        print(f"from scratch: {reached:.2%} of the test images, {seconds / 60:.1f} minutes")
    if "transfer" in args.part:
        blocks = {k: v for k, v in dict(recipe.architecture).items() if k != "stem"}
        plain = recipe.replace(architecture={**blocks, "patch_size": 4})
        found = [transfer(fashion, plain, draw) for draw in args.draws]
        for case in found[0]:
            values = [100 * each[case] for each in found]
            spread = statistics.stdev(values) if values[1:] else 0
            print(
                f"| {case[0]}, {case[1]} per class | {statistics.mean(values):.1f} ± {spread:.1f} |"
            )


if __name__ == "__main__":
    main()
