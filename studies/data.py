"""Does a Vision Transformer need more images than a ResNet? (Figures 3 and 4)

Models are pre-trained on n images of five classes of Fashion-MNIST and transferred to the other
five, all for the same number of updates. The paper's signs: on few images larger models do worse
than smaller ones, and a BiT ResNet does better than a ViT; its lead shrinks with n.

It does not show a crossing: 29,000 small grey images are far from JFT's 300 million.
"""

import numpy as np

from studies.compute import macs
from studies.lab import (
    MODELS,
    Finding,
    accuracy,
    build,
    dots,
    draw,
    few_shot,
    fine_tune,
    learn,
    levelled,
    log_axis,
)
from studies.rates import chosen

PAPER = (
    "On 9 million images of JFT a ViT overfits more than a ResNet of the same cost; from 90 "
    "million on it is ahead (Figure 4). Pre-trained on ImageNet, ViT-L trails ViT-B; on JFT it "
    "leads (Figure 3)."
)
CAPTION = (
    "Each dot is a seed, without what its draw of classes gives all arms alike; bars are means "
    "with 95 % t-intervals."
)
COUNTS = (300, 1500, 7000, 29_000)
SHIFTS = (0, 1, 2, 3, 4)
NAMES = ("ViT s", "ViT m", "ViT l", "hybrid m", "BiT s")
ARMS = {
    f"{model}, {count}": {"model": model, "count": count}
    for model in NAMES
    for count in COUNTS
    if model != "ViT l" or count in (COUNTS[0], COUNTS[-1])
}


def run(lab, seed, model, count, steps=2000):
    first, _ = draw(seed)
    images = lab.part("train", first).padded(2).draw(count, seed)
    rate = chosen(model, lab)["rate"]
    trained = learn(build(32, 5, seed, **MODELS[model]), images, lab.steps(steps), rate, seed)
    return {"macs": macs(trained), **transfer(lab, trained, seed, chosen(model, lab)["tuned"])}


def transfer(lab, model, seed, rate):
    """What the paper measures of a pre-trained model, and how it bears a shift of the images."""
    first, others = draw(seed)
    test = lab.part("test", first, seed).padded(2)
    train, unseen = (lab.part(name, others, seed).padded(2) for name in ("train", "test"))
    few = few_shot(model, train, unseen, (5, 10))
    train_digits, test_digits = (part.padded(2) for part in lab.digits(seed=seed))
    digits = few_shot(model, train_digits, test_digits, (10,))
    tuned = fine_tune(model, train.per_class(10, seed), lab.steps(100), rate, seed)
    some = test.rows(slice(1000))
    return {
        "test": accuracy(model, test),
        "five_shot": few[5],
        "ten_shot": few[10],
        "tuned": accuracy(tuned, unseen),
        "digits": digits[10],
        "shifted": [accuracy(model, some.moved(pixels)) for pixels in SHIFTS],
    }


def findings(results):
    def slope(model):
        arms = [f"{model}, {count}" for count in COUNTS]
        return results.slope("ten_shot", arms, np.log10(COUNTS))

    def gap(model, other, count):
        return results[f"{model}, {count}", "ten_shot"] - results[f"{other}, {count}", "ten_shot"]

    few, many = COUNTS[0], COUNTS[-1]
    per = "per ten times as many images"
    return [
        Finding(f"ViT m - BiT s, {per}", slope("ViT m") - slope("BiT s"), "above"),
        Finding("ViT l - ViT s at 300 images", gap("ViT l", "ViT s", few), "below"),
        Finding("ViT l - ViT s at 29,000 images", gap("ViT l", "ViT s", many), "above"),
        Finding(f"ViT m - hybrid m, {per}", slope("ViT m") - slope("hybrid m")),
        Finding("ViT m - BiT s at 29,000 images", gap("ViT m", "BiT s", many)),
    ]


def figure(results, figure):
    axes = figure.subplots(1, 2, sharex=True)
    for measure, place in zip(("ten_shot", "tuned"), axes):
        found = levelled({arm: results[arm, measure] for arm in ARMS})
        for model in NAMES:
            counts = [n for n in COUNTS if f"{model}, {n}" in ARMS]
            values = [found[f"{model}, {n}"] for n in counts]
            dots(place, counts, values, label=model)
        log_axis(place, COUNTS, "images of pre-training")
    axes[0].set(ylabel="accuracy, %, draws levelled", title="linear, 10 images per class")
    axes[1].set(title="fine-tuned, 10 images per class")
    axes[0].legend()
