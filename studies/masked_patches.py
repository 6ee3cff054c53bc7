"""Does masked patch prediction help where labels are scarce? An experiment on 8 x 8 digits.

    KERAS_BACKEND=torch python studies/masked_patches.py [--target mean_color] [--epochs 60]

A small ViT is pre-trained on all training images of scikit-learn's digits without their labels.
Then two models learn from 10 labelled images per class: one goes on from the pre-trained encoder,
one from scratch, with the same steps. Each takes the learning rate that does best on 200 further
labelled training images. Printed is the accuracy on the 360 test images.
"""

import argparse

import keras
import numpy as np

import keras_vit
from keras_vit import data, training

PER_CLASS, VALIDATION, STEPS, BATCH = 10, 200, 150, 50
LEARNING_RATES = (3e-4, 1e-3, 3e-3)
ENCODER = {"image_size": 8, "patch_size": 2, "channels": 1, "width": 64, "depth": 4, "num_heads": 4}
ENCODER |= {"num_classes": 0, "pool": "mean", "class_token": False}


def adam(learning_rate, steps):
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, steps - steps // 10, warmup_target=learning_rate, warmup_steps=steps // 10
    )
    return keras.optimizers.Adam(schedule, global_clipnorm=1.0)


def masked_model(target="mean_color"):
    return training.MaskedPatchModel(keras_vit.VisionTransformer(**ENCODER), target)


def finetuned(make_model, train, validation):
    """The model of the learning rate that does best on the validation images."""
    best = (-1.0, None)
    for rate in LEARNING_RATES:
        model = make_model()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(adam(rate, STEPS), loss, metrics=["accuracy"])
        model.fit(*train, batch_size=BATCH, epochs=STEPS * BATCH // len(train[0]), verbose=0)
        accuracy = model.evaluate(*validation, verbose=0)[1]
        best = max(best, (accuracy, model), key=lambda entry: entry[0])
    return best[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="mean_color", choices=["mean_color", "pixels"])
    parser.add_argument("--epochs", type=int, default=60, help="of pre-training")
    parser.add_argument("--draws", type=int, default=5, help="of the labelled images")
    args = parser.parse_args()
    keras.utils.set_random_seed(0)
    digits = data.load("digits")
    top = float(digits.train_images.max())
    images, test = (x / top * 2.0 - 1.0 for x in (digits.train_images, digits.test_images))
    labels = digits.train_labels
    masked = masked_model(args.target)
    masked.compile(adam(1e-3, args.epochs * -(-len(images) // 128)))
    masked.fit(images, batch_size=128, epochs=args.epochs, verbose=0)
    print("pre-trained:", masked.evaluate(images, verbose=0, return_dict=True))
    arms = {
        "from scratch": lambda: masked_model().classifier(10),
        "pre-trained": lambda: masked.classifier(10),
    }
    accuracies = {name: [] for name in arms}
    for seed in range(args.draws):
        order = np.random.default_rng(seed).permutation(len(labels))
        chosen = np.concatenate([order[labels[order] == k][:PER_CLASS] for k in range(10)])
        held_out = np.setdiff1d(order, chosen, assume_unique=True)[:VALIDATION]
        for name, make_model in arms.items():
            train, validation = ((images[i], labels[i]) for i in (chosen, held_out))
            model = finetuned(make_model, train, validation)
            accuracies[name].append(model.evaluate(test, digits.test_labels, verbose=0)[1])
            print(f"draw {seed}, {name}: {accuracies[name][-1]:.3f}", flush=True)
    for name, values in accuracies.items():
        print(f"{name}: {np.mean(values):.3f} ± {np.std(values, ddof=1):.3f} (n={len(values)})")


if __name__ == "__main__":
    main()
