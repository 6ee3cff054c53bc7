"""How far does attention look, block by block? (Figures 7 and 11)

The mean distance of each head in pixels, of models with patches of 4 pixels trained on
Fashion-MNIST, and of a hybrid whose tokens are 4 pixels apart. A head that looks everywhere alike
has the distance of the uniform line: 14.4 pixels here, 116.5 at 224 pixels with patches of 16. The
paper's signs: distance grows with depth, some heads of the first blocks look far already, and heads
of a hybrid's first blocks look farther than a ViT's. The control is the same models untrained:
what they show already, training has not taught.

It does not show objects in a scene: all images are one piece of clothing in the middle.
"""

import numpy as np

from keras_vit import inspection
from studies import positions
from studies.lab import SMALL_PATCHES, Finding, accuracy, build, dots, learn

PAPER = (
    "Distance grows with depth; some heads of the first blocks look at most of the image; "
    "hybrids have fewer local heads (Figures 7 and 11)."
)
CAPTION = (
    "Each dot is a head in one seed; bars are the seeds' means over heads with 95 % t-intervals."
)
USES = ("positions",)
ARMS = {
    "8 blocks": {"model": SMALL_PATCHES | {"depth": 8}, "rate": (2e-3, 4e-3, 8e-3)},
    "hybrid": {
        "model": {"patch_size": 1, "width": 32, "depth": 4, "stem": (), "stem_width": 0.5},
        "rate": (1e-3, 2e-3, 4e-3),
    },
}


def uniform(grid=7, patch=4):
    """The distance of a head that attends to all patches alike."""
    same = np.full((grid**2, grid**2), 1 / grid**2)
    return float(inspection.attention_distance(same, (grid, grid), patch))


SECONDS = 60


def run(lab, seed, model, rate):
    trained = build(28, 10, seed, **model)
    test = lab.part("test", seed=seed)
    untrained = positions.distances(trained, test)
    learn(trained, lab.part("train"), lab.steps(600), rate, seed)
    return {
        "held_out": accuracy(trained, lab.part("held_out")),
        "untrained": untrained,
        "distances": positions.distances(trained, test),
    }


def heads(results, arm, measure="distances"):
    """(seeds, blocks, heads)"""
    return np.array([results.rows[arm, seed][measure] for seed in results.seeds])


def findings(results):
    four, eight, hybrid = (heads(results, arm) for arm in ("1-D", "8 blocks", "hybrid"))
    growth = [each[:, -1].mean(axis=1) - each[:, 0].mean(axis=1) for each in (eight, four)]
    untrained = heads(results, "8 blocks", "untrained")
    spread = lambda each: np.ptp(each[:, :2], axis=(1, 2))  # noqa: E731
    first = hybrid[:, 0].mean(axis=1) - four[:, 0].mean(axis=1)
    return [
        Finding("last block - first block, of 8", growth[0], "above", "pixels"),
        Finding("last block - first block, of 4", growth[1], "above", "pixels"),
        Finding("first block of the hybrid - of the ViT", first, "above", "pixels"),
        Finding("farthest - nearest head of the first two blocks, trained - untrained",
                spread(eight) - spread(untrained), unit="pixels"),
        Finding("last block - first block, of 8, untrained",
                untrained[:, -1].mean(axis=1) - untrained[:, 0].mean(axis=1), unit="pixels"),
    ]  # fmt: skip


def figure(results, figure):
    axes = figure.subplots(1, 3, sharey=True)
    for place, arm in zip(axes, ("1-D", "8 blocks", "hybrid")):
        values = heads(results, arm)
        for block in range(values.shape[1]):
            place.plot([block] * values[:, block].size, values[:, block].ravel(), "C0.", alpha=0.2)
        dots(place, range(values.shape[1]), values.mean(axis=2).T, color="C0")
        place.axhline(uniform(), color="C1", linestyle="--", label="uniform")
        place.set(xlabel="block", title={"1-D": "4 blocks"}.get(arm, arm))
    axes[0].set(ylabel="attention distance, pixels")
    axes[0].legend()
