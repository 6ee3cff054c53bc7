"""Token merging (ToMe): accuracy and speed of a ViT trained on Fashion-MNIST, speed of ViT-S/16.

    python studies/token_merging.py --data-dir DIR [--epochs 5] [--output FILE]

DIR holds the four IDX files (Debian: dataset-fashion-mnist). A plain ViT with 49 patches is trained
as the recipe has it; then r tokens are merged in each block, without any further training. Speeds
are images per second of processor time in `predict`, the best of five runs; let the process have
one thread (taskset -c 0, OMP_NUM_THREADS=1), so that others on the machine count for little.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import time

import keras
import numpy as np

import keras_vit
from keras_vit import data, recipes

MERGED = (0, 2, 4, 8, 12)
MERGED_S16 = (0, 8, 13, 16)
OUTPUT = pathlib.Path(__file__).parent / "results" / "token_merging.json"


def train(recipe, fashion):
    keras_vit.training.set_random_seed(recipe.seed)
    model = keras_vit.VisionTransformer(**recipe.model_options())
    images = (fashion.train_images, fashion.train_labels)
    batches = data.pipeline(images, recipe, training=True)
    epochs = -(-recipe.steps // batches.steps_per_epoch)
    recipe.compile(model).fit(batches, epochs=epochs, callbacks=recipe.callbacks(), verbose=0)
    return model


def speeds(model, counts, images, batch_size):
    """Images per second of processor time, for each number of merged tokens, in turn."""
    merged = [keras_vit.merge_tokens(model, r) for r in counts]
    best = np.full(len(counts), np.inf)
    for run in range(6):
        for i, each in enumerate(merged):
            start = time.process_time()
            each.predict(images, batch_size=batch_size, verbose=0)
            if run:  # the first one compiles
                best[i] = min(best[i], time.process_time() - start)
    return [round(len(images) / seconds, 1) for seconds in best]


def tokens(model, r):
    """After the last block."""
    blocks = [layer for layer in keras_vit.merge_tokens(model, r).layers if "block" in layer.name]
    return keras.tree.flatten(blocks[-1].output)[0].shape[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--epochs", type=float, default=5)
    parser.add_argument("--output", type=pathlib.Path, default=OUTPUT)
    args = parser.parse_args()
    fashion = data.load("fashion_mnist", data_dir=args.data_dir)
    recipe = recipes.fashion_mnist().scale(epochs=args.epochs)
    plain = {k: v for k, v in dict(recipe.architecture).items() if k != "stem"}
    recipe = recipe.replace(architecture={**plain, "patch_size": 4, "depth": 6})
    start = time.perf_counter()
    model = train(recipe, fashion)
    minutes = (time.perf_counter() - start) / 60
    test = data.pipeline(
        (fashion.test_images, fashion.test_labels), recipe, training=False, batch_size=500
    )
    rng = np.random.default_rng(0)
    own = rng.uniform(-1, 1, (1024, 28, 28, 1)).astype("float32")
    rows = [{"r": r, "tokens": tokens(model, r)} for r in MERGED]
    for row, speed in zip(rows, speeds(model, MERGED, own, 64)):
        merged = recipe.compile(keras_vit.merge_tokens(model, row["r"]))
        row["accuracy"] = merged.evaluate(test, verbose=0, return_dict=True)["accuracy"]
        row["images_per_second"] = speed
        print(row, flush=True)
    large = keras_vit.ViT_S16()
    photos = rng.uniform(-1, 1, (16, 224, 224, 3)).astype("float32")
    rows_s16 = [
        {"r": r, "tokens": tokens(large, r), "images_per_second": speed}
        for r, speed in zip(MERGED_S16, speeds(large, MERGED_S16, photos, 8))
    ]
    print(*rows_s16, sep="\n")
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        processor = next(line.split(": ")[1].strip() for line in file if "model name" in line)
    result = {
        "date": datetime.date.today().isoformat(),
        "machine": f"{processor}, {os.cpu_count()} cores, one thread; {platform.system()}",
        "versions": {"keras_vit": keras_vit.__version__, "keras": keras.__version__},
        "backend": keras.backend.backend(),
        "model": dict(recipe.architecture),
        "training": {"epochs": args.epochs, "minutes": round(minutes, 1), "seed": recipe.seed},
        "fashion_mnist": rows,
        "ViT-S/16, 224 px, fresh": rows_s16,
    }
    args.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
