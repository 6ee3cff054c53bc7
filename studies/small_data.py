"""Which positions where images are few: learned or fixed, near zero or large? (readers of Table 8)

Digits of 8 x 8 pixels, each of which is a patch, so that all structure has to come from positions.
A table of positions starts at random, as sums of random rows and columns (2-D), or as sines and
cosines; at the scale of ViT's initial weights (0.02) or at that of sines and cosines (0.7); and it
is learned or stays. The paper says nothing about few images.

It does not show what few photographs would: a digit has 64 pixels.
"""

import itertools

import numpy as np

from keras_vit.layers.position import sincos_2d
from studies.lab import Finding, accuracy, build, learn, side_by_side

COUNTS = (50, 1200)
TABLES, SCALES = ("random", "2-D", "sin-cos"), {"small": 0.02, "large": 0.7}
ARMS = {
    f"{table}, {scale}, {'learned' if learned else 'fixed'}, {count}": {
        "table": table,
        "scale": SCALES[scale],
        "learned": learned,
        "count": count,
        "rate": (1e-3, 3e-3, 1e-2),
    }
    for table, scale, learned, count in itertools.product(TABLES, SCALES, (True, False), COUNTS)
}
SECONDS = 20


def positions(table, seed, grid=8, width=32):
    """(1, 1 + grid squared, width), of mean square 1; zero for the class token."""
    random = np.random.default_rng(seed)
    if table == "random":
        patches = random.normal(size=(grid**2, width))
    elif table == "2-D":
        rows, columns = random.normal(size=(2, grid, width // 2))
        patches = np.concatenate([rows.repeat(grid, axis=0), np.tile(columns, (grid, 1))], axis=1)
    else:
        patches = np.reshape(sincos_2d((grid, grid), width), (grid**2, width))
    patches = patches / np.sqrt((patches**2).mean())
    return np.concatenate([np.zeros((1, width)), patches])[None]


def run(lab, seed, table, scale, learned, count, rate):
    train, test = lab.digits(8, seed)
    train = train.draw(len(train.labels), seed)
    held_out, few = train.rows(slice(200)), train.rows(slice(200, 200 + count))
    model = build(8, 10, seed, patch_size=1, width=32, depth=4, position="learned_1d")
    position = model.get_layer("patch_encoder").position
    position.embedding.assign(scale * positions(table, seed))
    position.trainable = learned
    learn(model, few, lab.steps(300), rate, seed)
    return {"held_out": accuracy(model, held_out), "test": accuracy(model, test)}


def effect(results, one, other, count):
    return results[f"{one}, {count}", "test"] - results[f"{other}, {count}", "test"]


def findings(results):
    pairs = {
        "large - small, random, learned": ("random, large, learned", "random, small, learned"),
        "2-D - random, small, learned": ("2-D, small, learned", "random, small, learned"),
        "2-D - random, large, learned": ("2-D, large, learned", "random, large, learned"),
        "sin-cos - random, large, fixed": ("sin-cos, large, fixed", "random, large, fixed"),
        "sin-cos - random, large, learned": ("sin-cos, large, learned", "random, large, learned"),
        "fixed - learned, random, large": ("random, large, fixed", "random, large, learned"),
    }
    return [
        Finding(f"{what}, {count:,} images", effect(results, *pair, count))
        for what, pair in pairs.items()
        for count in COUNTS
    ]


def figure(results, figure):
    starts = [f"{table}, {scale}" for table, scale in itertools.product(TABLES, SCALES)]
    for axes, count in zip(figure.subplots(1, 2), COUNTS):
        series = {
            learned: [results[f"{start}, {learned}, {count}", "test"] for start in starts]
            for learned in ("learned", "fixed")
        }
        side_by_side(axes, [start.replace(", ", ",\n") for start in starts], series)
        axes.set(title=f"{count:,} images", ylabel="test accuracy, %")
        axes.tick_params(axis="x", labelsize="small")
