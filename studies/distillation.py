"""Does a teacher help a small ViT where labels are few? An experiment on Fashion-MNIST.

    KERAS_BACKEND=jax OMP_NUM_THREADS=1 python studies/distillation.py --data-dir DIR --output DIR

DIR holds the four IDX files (Debian: dataset-fashion-mnist). For each seed, 2,000 training images
are drawn. A small BiT ResNet learns from them and becomes the teacher; then a ViT learns from the
same images alone, and with the teacher in three ways (DeiT, Touvron et al., 2021, Table 3). In the
last arm the teacher is the ViT that learned alone, instead of a convolutional network. All ViTs
have the same steps, batches and augmentation, and the learning rate that did best of three for the
ViT alone, on 2,000 other training images with the first seed. What counts is the accuracy on the
10,000 test images. A run that was stopped goes on; OUTPUT/distillation.json has what it has found.
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
from keras_vit import data, recipes, training

LABELS, HELD_OUT, RATES = 2000, 2000, (5e-4, 1.5e-3, 4.5e-3)
T_975 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # of Student's t, by the number of seeds
VIT = {"width": 64, "depth": 4, "num_heads": 4, "patch_size": 7, "channels": 1}
BIT = {"blocks": (1, 1), "width": 0.5, "channels": 1}
ALONE = "alone"
ARMS = {  # arguments of the Distiller; Table 3 has alpha 0.1 and temperature 3 for soft labels
    ALONE: None,
    "soft": {"hard": False, "alpha": 0.1, "temperature": 3.0},
    "hard": {"hard": True, "alpha": 0.5},
    "hard, token": {"hard": True, "alpha": 0.5},
    "hard, token, ViT teacher": {"hard": True, "alpha": 0.5},
}
RECIPE = recipes.Recipe(
    name="distillation-fashion_mnist",
    source="keras_vit's own, after Touvron et al., 2021",
    dataset="fashion_mnist",
    variant=None,
    architecture=VIT,
    examples=LABELS,
    num_classes=10,
    batch_size=100,
    steps=400,
    warmup_steps=40,
    train=data.Transform(28, "squash", flip=True),
    eval=data.Transform(28, "squash"),
    learning_rate=1.5e-3,
    weight_decay=0.05,
    clip_norm=1.0,
    label_smoothing=0.1,
)


def trained(images, rate, seed, teacher=None, bit=False, token=False, **options):
    """A ViT, or the BiT teacher, after training on few images; and its last agreement."""
    recipe = RECIPE.replace(learning_rate=rate, seed=seed)
    training.set_random_seed(seed)
    common = {"image_size": 28, "num_classes": 10}
    own = BIT if bit else {**VIT, "distillation": token}
    model = (keras_vit.BiT if bit else keras_vit.VisionTransformer)(**common, **own)
    learner = model if teacher is None else training.Distiller(model, teacher, **options)
    recipe.compile(learner)
    batches = data.pipeline(images, recipe, training=True, threads=1)
    history = learner.fit(batches, epochs=recipe.epochs, verbose=0).history
    return model, history.get("agreement", [None])[-1]


def accuracy(model, images):
    batches = data.pipeline(images, RECIPE, training=False, batch_size=500, threads=1)
    model.compile(loss=RECIPE.make_loss(), metrics=RECIPE.metrics())
    return model.evaluate(batches, verbose=0, return_dict=True)["accuracy"]


def compare(fashion, seed, results, save):
    """Fills `results` with what the teacher and each arm reach with one seed."""
    order = np.random.default_rng(seed).permutation(len(fashion.train_labels))
    part = lambda rows: (fashion.train_images[rows], fashion.train_labels[rows])  # noqa: E731
    few, held_out = part(order[HELD_OUT:][:LABELS]), part(order[:HELD_OUT])
    test = fashion.test_images, fashion.test_labels
    if "rate" not in results:  # the test images have no say
        found = {rate: accuracy(trained(few, rate, seed)[0], held_out) for rate in RATES}
        results |= {"held_out": found, "rate": max(found, key=found.get)}
    teacher, _ = trained(few, 3e-3, seed, bit=True)
    results["teacher"][str(seed)] = round(accuracy(teacher, test), 4)
    alone = None
    for arm, options in ARMS.items():
        runs = results["arms"].setdefault(arm, {})
        if str(seed) in runs and arm != ALONE:  # which is a teacher, too
            continue
        how = {"token": "token" in arm, **(options or {})}
        how["teacher"] = options and (alone if "ViT" in arm else teacher)
        model, agreement = trained(few, results["rate"], seed, **how)
        alone = model if arm == ALONE else alone
        runs[str(seed)] = {"accuracy": round(accuracy(model, test), 4), "agreement": agreement}
        print(f"seed {seed}, {arm}: {runs[str(seed)]}, teacher {results['teacher'][str(seed)]}")
        save()


def differences(arms):
    """Arm -> mean of its accuracy minus that of the ViT alone, in points, and half its interval."""
    found = {}
    for arm, runs in arms.items():
        if arm == ALONE or len(runs) < 2:
            continue
        pairs = [100 * (runs[s]["accuracy"] - arms[ALONE][s]["accuracy"]) for s in runs]
        half = T_975[len(pairs)] * statistics.stdev(pairs) / math.sqrt(len(pairs))
        found[arm] = {"mean": round(statistics.mean(pairs), 2), "interval": round(half, 2)}
        found[arm]["verdict"] = "resolved" if abs(statistics.mean(pairs)) > half else "not resolved"
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--output", required=True, type=pathlib.Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    file = args.output / "distillation.json"
    results = {"arms": {}, "teacher": {}, "cpu_seconds": 0.0}
    results |= json.loads(file.read_text()) if file.exists() else {}
    threads = os.environ.get("OMP_NUM_THREADS")
    results |= {"backend": keras.backend.backend(), "date": datetime.date.today().isoformat()}
    results |= {"machine": f"{platform.machine()}, OMP_NUM_THREADS={threads}"}
    last = time.process_time()

    def save():
        nonlocal last
        results["cpu_seconds"] += time.process_time() - last
        last, results["differences"] = time.process_time(), differences(results["arms"])
        file.write_text(json.dumps(results, indent=1) + "\n")

    fashion = data.load("fashion_mnist", data_dir=args.data_dir)
    for seed in args.seeds:
        compare(fashion, seed, results, save)
    for arm, found in results["differences"].items():
        print(f"{arm}: {found['mean']:+.2f} ± {found['interval']:.2f} points, {found['verdict']}")


if __name__ == "__main__":
    main()
