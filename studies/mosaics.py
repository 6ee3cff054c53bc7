"""Does a Vision Transformer overtake a ResNet with very many images? (Figure 3, at its right end)

Mosaics of four digits: 1,400 digits make more than 10^12 of them. The class is the largest of the
four digits, so that all have to be read. The paper's sign: the lead of BiT shrinks with the number
of images, and turns. The measure is the log-odds of a right answer, as accuracies have a ceiling
that makes leads shrink by itself.

It does not show natural images: the digits of which mosaics are made stay few. Nor does it show
more than one pass through 100,000 images, of which 600 updates of 64 images see 38,400.
"""

import numpy as np

from studies.lab import MODELS, Finding, Part, accuracy, build, dots, learn, log_odds

PAPER = "BiT ahead when pre-trained on ImageNet, ViT when pre-trained on JFT (Figure 3)."
COUNTS = (1000, 10_000, 100_000)
PER = "per ten times as many images"
NAMES, RATES = ("ViT s", "BiT s"), (1e-3, 3e-3, 1e-2)
SECONDS = 20
ARMS = {
    f"{n}, {count}": {"model": n, "count": count, "rate": RATES} for n in NAMES for count in COUNTS
}


def mosaics(digits, count, seed):
    """`count` images of 2 x 2 digits of 16 pixels, with the largest digit as their class."""
    rows = np.random.default_rng(seed).integers(len(digits.labels), size=(count, 2, 2))
    images = digits.images[rows].transpose(0, 1, 3, 2, 4, 5).reshape(count, 32, 32, 1)
    return Part(images, digits.labels[rows].max(axis=(1, 2)))


def run(lab, seed, model, count, rate):
    train, test = lab.digits(16, seed)
    train, unseen = train.rows(slice(200, None)), train.rows(slice(200))
    # Class 0, four noughts, is one mosaic of 10,000.
    part = mosaics(train, count, seed)
    fresh = build(32, 10, seed, **MODELS[model])
    learn(fresh, part, lab.steps(600), rate, seed)
    tests = mosaics(test, 4000, 2000 + seed)
    return {
        "held_out": accuracy(fresh, mosaics(unseen, 2000, 4000 + seed)),
        "test": accuracy(fresh, tests),
        "log_odds": log_odds(fresh, tests),
    }


def findings(results):
    def slope(model):
        arms = [f"{model}, {count}" for count in COUNTS]
        return results.slope("log_odds", arms, np.log10(COUNTS))

    most = [results[f"{name}, {COUNTS[-1]}", "log_odds"] for name in NAMES]
    return [
        Finding(
            f"ViT s - BiT s, {PER}", slope("ViT s") - slope("BiT s"), "above", f"log-odds {PER}"
        ),
        Finding("ViT s - BiT s with 100,000 images", most[0] - most[1], unit="log-odds"),
    ]


def figure(results, figure):
    axes = figure.subplots()
    for name in NAMES:
        dots(axes, COUNTS, [results[f"{name}, {n}", "log_odds"] for n in COUNTS], label=name)
    axes.set(xscale="log", xlabel="images", ylabel="log-odds of a right answer")
    axes.legend()
