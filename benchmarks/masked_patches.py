"""Does masked patch prediction help where labels are scarce? An experiment on 8 x 8 digits.

    KERAS_BACKEND=torch python benchmarks/masked_patches.py [--target mean_color] [--epochs 60]

A small ViT is pre-trained on all training images of scikit-learn's digits without their labels.
Then two models learn from 10 labelled images per class: one goes on from the pre-trained encoder,
one from scratch. Both have the same architecture, steps and choice of learning rates, and each
takes the rate that does best on 200 further labelled training images. What is printed is the
accuracy on the 360 test images, for several draws of the labelled images.
"""

import argparse
import time

import keras
import numpy as np

import keras_vit
from keras_vit import data, training

PER_CLASS, VALIDATION, STEPS, BATCH = 10, 200, 150, 50
LEARNING_RATES = (3e-4, 1e-3, 3e-3)
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def load_digits():
    """Training and test images in [-1, 1], and their labels."""
    digits = data.load("digits")
    top = float(digits.train_images.max())
    images = [x.astype("float32") / top * 2 - 1 for x in (digits.train_images, digits.test_images)]
    return images[0], digits.train_labels, images[1], digits.test_labels


def make_encoder():
    return keras_vit.VisionTransformer(
        image_size=8,
        patch_size=2,
        channels=1,
        width=64,
        depth=4,
        num_heads=4,
        num_classes=0,
        pool="mean",
        class_token=False,
    )


def adam(learning_rate, steps):
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, steps - steps // 10, warmup_target=learning_rate, warmup_steps=steps // 10
    )
    return keras.optimizers.Adam(schedule, global_clipnorm=1.0)


def pretrain(images, target, epochs):
    """A `MaskedPatchModel` trained on the images."""
    masked = training.MaskedPatchModel(make_encoder(), target)
    steps = epochs * -(-len(images) // 128)
    masked.compile(adam(1e-3, steps))
    before = masked.evaluate(images, verbose=0, return_dict=True)
    start = time.perf_counter()
    masked.fit(images, batch_size=128, epochs=epochs, verbose=0)
    after = masked.evaluate(images, verbose=0, return_dict=True)
    seconds = time.perf_counter() - start
    print(f"pre-training, {steps} steps in {seconds:.0f} s: {rounded(before)} -> {rounded(after)}")
    return masked


def rounded(logs):
    return {name: round(float(value), 3) for name, value in logs.items()}


def split(labels, seed):
    """Indices of the labelled images, the same number of each class, and of the validation."""
    order = np.random.default_rng(seed).permutation(len(labels))
    chosen = [order[labels[order] == k][:PER_CLASS] for k in range(10)]
    chosen = np.concatenate(chosen)
    return chosen, np.setdiff1d(order, chosen, assume_unique=True)[:VALIDATION]


def finetuned(make_model, train, validation):
    """The model of the learning rate that does best on the validation images, and that rate."""
    best = (-1.0, None, None)
    for rate in LEARNING_RATES:
        model = make_model()
        model.compile(adam(rate, STEPS), LOSS, metrics=["accuracy"])
        epochs = STEPS * BATCH // len(train[0])
        model.fit(*train, batch_size=BATCH, epochs=epochs, verbose=0)
        accuracy = model.evaluate(*validation, verbose=0)[1]
        best = max(best, (accuracy, -rate, model), key=lambda entry: entry[:2])
    return best[2], -best[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="mean_color", choices=["mean_color", "pixels"])
    parser.add_argument("--epochs", type=int, default=60, help="of pre-training")
    parser.add_argument("--draws", type=int, default=5, help="of the labelled images")
    args = parser.parse_args()
    keras.utils.set_random_seed(0)
    images, labels, test_images, test_labels = load_digits()
    masked = pretrain(images, args.target, args.epochs)
    arms = {
        "from scratch": lambda: training.MaskedPatchModel(make_encoder()).classifier(10),
        "pre-trained": lambda: masked.classifier(10),
    }
    accuracies = {name: [] for name in arms}
    for seed in range(args.draws):
        chosen, held_out = split(labels, seed)
        for name, make_model in arms.items():
            train, validation = ((images[i], labels[i]) for i in (chosen, held_out))
            model, rate = finetuned(make_model, train, validation)
            accuracy = model.evaluate(test_images, test_labels, verbose=0)[1]
            accuracies[name].append(accuracy)
            print(f"draw {seed}, {name:>12}: {accuracy:.3f} (learning rate {rate:g})", flush=True)
    for name, values in accuracies.items():
        print(f"{name:>12}: {np.mean(values):.3f} ± {np.std(values, ddof=1):.3f} (n={len(values)})")


if __name__ == "__main__":
    main()
