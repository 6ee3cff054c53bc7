"""Does a masked autoencoder help where labels are scarce? An experiment on Fashion-MNIST.

    KERAS_BACKEND=jax OMP_NUM_THREADS=1 python studies/mae.py --data-dir DIR --output DIR

DIR holds the four IDX files (Debian: dataset-fashion-mnist). For each seed, a small ViT is
pre-trained as a masked autoencoder on all 60,000 training images without labels. Then it is
fine-tuned on 1,000 and on 5,000 labelled images, which the seed draws, and so is a fresh ViT: with
the same steps, batches and augmentation, and each with the learning rate that did best of the same
four on 2,000 held-out training images with the first seed. What counts is the accuracy on the
10,000 test images. A run that was stopped goes on; what it has found is in OUTPUT/mae.json.
"""

import argparse
import datetime
import json
import math
import os
import pathlib
import platform
import statistics
import time

import keras
import numpy as np

import keras_vit
from keras_vit import data, inspection, recipes, training

HELD_OUT, RATES = 2000, (5e-4, 1.5e-3, 4.5e-3, 1.35e-2)
UPDATES = {1000: 500, 5000: 750}  # by the number of labelled images
ARMS = ("from scratch", "pre-trained")
T_975 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # of Student's t, by the number of seeds
VIT = {"width": 64, "depth": 4, "num_heads": 4, "patch_size": 7, "channels": 1}
VIT |= {"pool": "mean", "class_token": False, "position": "sincos_2d"}
DECODER = {"decoder_width": 32, "decoder_depth": 2, "decoder_heads": 4}
RECIPE = recipes.Recipe(
    name="mae-fashion_mnist",
    source="keras_vit's own, after He et al., 2022",
    dataset="fashion_mnist",
    variant=None,
    architecture=VIT,
    examples=60_000,
    num_classes=10,
    batch_size=128,
    steps=1,
    train=data.Transform(28, "squash", flip=True),
    eval=data.Transform(28, "squash"),
    learning_rate=1.5e-3,
    beta2=0.95,
    weight_decay=0.05,
    loss="own",
)


def pretrained(fashion, seed, epochs, output):
    """A trained masked autoencoder, and the error of its last epoch."""
    steps = epochs * (RECIPE.examples // RECIPE.batch_size)
    recipe = RECIPE.replace(seed=seed, steps=steps, warmup_steps=steps // 20)
    keras.utils.set_random_seed(seed)
    encoder = keras_vit.VisionTransformer(**recipe.model_options())
    model = recipe.compile(training.MaskedAutoencoder(encoder, seed=seed, **DECODER))
    images = data.pipeline((fashion.train_images, fashion.train_labels), recipe, threads=1)
    history = training.fit(model, images, output / f"seed_{seed}", steps=recipe.steps, curves=False)
    return model, history["loss"][-1]


def accuracies(arm, masked, images, labels, rate, seed, evaluations):
    """Of the images of each evaluation, after training on few images and their labels."""
    recipe = RECIPE.replace(
        **{"loss": "softmax", "batch_size": 100, "beta2": 0.999, "learning_rate": rate},
        **{"examples": len(labels), "seed": seed, "steps": UPDATES[len(labels)]},
        **{"warmup_steps": UPDATES[len(labels)] // 10, "clip_norm": 1.0},
    )
    keras.utils.set_random_seed(seed)
    fresh = keras_vit.VisionTransformer(**recipe.model_options())
    model = recipe.compile(masked.classifier(10) if arm == "pre-trained" else fresh)
    batches = data.pipeline((images, labels), recipe, training=True, threads=1)
    model.fit(batches, epochs=recipe.epochs, verbose=0)
    options = {"training": False, "batch_size": 500, "threads": 1}
    parts = [data.pipeline(part, recipe, **options) for part in evaluations]
    return [model.evaluate(part, verbose=0, return_dict=True)["accuracy"] for part in parts]


def compare(fashion, masked, seed, found, save):
    """Fills `found` with what both arms reach, for each number of labelled images."""
    order = np.random.default_rng(seed).permutation(len(fashion.train_labels))
    held_out, rest = order[:HELD_OUT], order[HELD_OUT:]
    part = lambda rows: (fashion.train_images[rows], fashion.train_labels[rows])  # noqa: E731
    evaluations = part(held_out), (fashion.test_images, fashion.test_labels)
    for count in UPDATES:
        for arm in ARMS:
            case = found.setdefault(f"{arm}, {count}", {"runs": {}})
            runs = case["runs"].setdefault(str(seed), {})
            for rate in [case["rate"]] if "rate" in case else RATES:
                if str(rate) not in runs:
                    few = part(rest[:count])
                    runs[str(rate)] = accuracies(arm, masked, *few, rate, seed, evaluations)
                    save()
            # The held-out images decide, which come first; the test images have no say.
            best = case.setdefault("rate", float(max(runs, key=lambda rate: runs[rate][0])))
            print(f"seed {seed}, {arm}, {count}: {runs[str(best)][1]:.4f}", flush=True)


def differences(found):
    """(labelled images, mean of pre-trained minus from scratch, half its 95 % t-interval)."""
    rows = []
    for count in UPDATES:
        cases = [found[f"{arm}, {count}"] for arm in ARMS]
        tests = [[run[str(c["rate"])][1] for run in c["runs"].values()] for c in cases]
        paired = [100 * (tuned - scratch) for scratch, tuned in zip(*tests)]
        half = T_975[len(paired)] * statistics.stdev(paired) / math.sqrt(len(paired))
        rows.append((count, statistics.mean(paired), half))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--output", required=True, type=pathlib.Path)
    parser.add_argument("--epochs", type=int, default=12, help="of pre-training")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    file = args.output / "mae.json"
    results = json.loads(file.read_text()) if file.exists() else {"found": {}, "error": {}}
    results |= {"epochs": args.epochs, "backend": keras.backend.backend()}
    results["machine"] = (
        f"{platform.machine()}, OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS')}"
    )
    results["date"] = datetime.date.today().isoformat()
    results.setdefault("cpu_seconds", 0.0)
    last = time.process_time()

    def save():
        nonlocal last
        results["cpu_seconds"] += time.process_time() - last
        last = time.process_time()
        file.write_text(json.dumps(results, indent=1) + "\n")

    fashion = data.load("fashion_mnist", data_dir=args.data_dir)
    for seed in args.seeds:
        masked, error = pretrained(fashion, seed, args.epochs, args.output)
        results["error"][str(seed)] = round(error, 4)
        compare(fashion, masked, seed, results["found"], save)
    few = fashion.test_images[:6] / np.float32(127.5) - 1
    inspection.plot_reconstructions(few, *masked.reconstruct(few), args.output / "mae.png")
    results["differences"] = differences(results["found"])
    save()
    for count, mean, half in results["differences"]:
        print(f"{count} labelled images: {mean:+.2f} ± {half:.2f} points")


if __name__ == "__main__":
    main()
