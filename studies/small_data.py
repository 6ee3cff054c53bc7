"""Do 2-D positions help where images are few? (a question of readers of Table 8)

Digits of 8 x 8 pixels, each of which is a patch, so that all structure has to come from positions.
A control: where the pixels of all images are shuffled in the same way, 2-D structure is gone and
its advantage must go as well. The paper says nothing about few images.

It does not show what few photographs would: a digit has 64 pixels.
"""

import numpy as np

from studies.lab import Finding, Part, accuracy, build, dots, learn, log_axis

SEEDS = 5
COUNTS = (50, 200, 1200)
KINDS = {"1-D": "learned_1d", "2-D": "learned_2d", "sin-cos": "sincos_2d", "none": "none"}
RATES = (1e-3, 3e-3, 1e-2)
ARMS = {
    f"{kind}{', shuffled' if shuffled else ''}, {count}": {
        "position": position,
        "count": count,
        "shuffled": shuffled,
        "rate": RATES,
    }
    for shuffled in (False, True)
    for kind, position in KINDS.items()
    for count in COUNTS
    if not (shuffled and kind == "none")
}


def shuffle(part):
    """The same pixels of all images, in another order."""
    order = np.random.default_rng(0).permutation(part.images[0].size)
    return Part(part.images.reshape(len(part.labels), -1)[:, order].reshape(part.images.shape),
                part.labels)  # fmt: skip


def run(lab, seed, position, count, shuffled, rate):
    train, test = lab.digits(8)
    if shuffled:
        train, test = shuffle(train), shuffle(test)
    train = train.draw(len(train.labels), seed)
    held_out, few = train.rows(slice(200)), train.rows(slice(200, 200 + count))
    model = build(8, 10, seed, patch_size=1, width=32, depth=4, position=position)
    learn(model, few, lab.steps(300), rate, seed)
    return {"held_out": accuracy(model, held_out), "test": accuracy(model, test)}


def gain(results, kind="2-D", shuffled=""):
    """(counts, seeds): how much better than 1-D."""
    return np.stack([
        results[f"{kind}{shuffled}, {n}", "test"] - results[f"1-D{shuffled}, {n}", "test"]
        for n in COUNTS
    ])  # fmt: skip


def findings(results):
    slope = np.polyfit(np.log10(COUNTS), gain(results), 1)[0]
    return [
        Finding("2-D - 1-D with 50 images", gain(results)[0]),
        Finding("2-D - 1-D, per ten times as many images", slope),
        Finding("sin-cos - 1-D with 50 images", gain(results, "sin-cos")[0]),
        Finding("2-D - 1-D with 50 images, shuffled", gain(results, "2-D", ", shuffled")[0], "tie"),
        Finding("2-D - 1-D with all images", gain(results)[-1]),
    ]


def figure(results, figure):
    axes = figure.subplots(1, 2, sharey=True)
    for place, shuffled in zip(axes, ("", ", shuffled")):
        for kind in KINDS:
            if f"{kind}{shuffled}, {COUNTS[0]}" in ARMS:
                values = [results[f"{kind}{shuffled}, {n}", "test"] for n in COUNTS]
                dots(place, COUNTS, values, label=kind)
        log_axis(place, COUNTS, "images")
        place.set(title=shuffled.strip(", ") or "as they are")
    axes[0].set(ylabel="test accuracy, %")
    axes[0].legend()
