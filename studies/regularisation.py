"""Must a model be regularised more where images are fewer? (section 4.3, Table 3)

Dropout and weight decay, on 600 images and on all of Fashion-MNIST. The paper chose stronger ones
for ImageNet than for JFT; its sign: what they bring falls with the number of images.

It does not show long training: 1,200 updates are 128 passes through 600 images, but 1.3 through
59,000.
"""

import itertools

from studies.lab import MODELS, Finding, accuracy, build, learn, side_by_side
from studies.rates import chosen

PAPER = (
    "Dropout 0.1 and decay 0.3 on ImageNet, 0.1 and 0.03 on ImageNet-21k, 0 and 0.1 on JFT "
    "(Table 3)."
)
COUNTS, DROPOUT, DECAY = (600, 59_000), (0.0, 0.1), (0.0, 0.03, 0.3)
ARMS = {
    f"{count}, dropout {dropout}, decay {decay}": {
        "count": count,
        "dropout": dropout,
        "decay": decay,
    }
    for count, dropout, decay in itertools.product(COUNTS, DROPOUT, DECAY)
}


def run(lab, seed, count, dropout, decay):
    train, held_out, test = (
        lab.part(p, seed=seed).padded(2) for p in ("train", "held_out", "test")
    )
    model = build(32, 10, seed, **MODELS["ViT m"], dropout=dropout)
    rate = chosen("ViT", lab)["rate"]
    learn(model, train.draw(count, seed), lab.steps(1200), rate, seed, weight_decay=decay)
    return {"held_out": accuracy(model, held_out), "test": accuracy(model, test)}


def test(results, count, dropout=0.0, decay=0.0):
    return results[f"{count}, dropout {dropout}, decay {decay}", "test"]


def gain(results, count, **setting):
    return test(results, count, **setting) - test(results, count)


def findings(results):
    few, many = COUNTS
    settings = {"dropout 0.1": {"dropout": 0.1}, "decay 0.3": {"decay": 0.3}}
    settings["both"] = {"dropout": 0.1, "decay": 0.3}
    return [
        Finding(f"gain by {name} with 600 images and with 59,000",
                gain(results, few, **s) - gain(results, many, **s), "above")
        for name, s in reversed(settings.items())
    ] + [
        Finding(f"gain by {name} with {count:,} images", gain(results, count, **s))
        for name, s in settings.items()
        for count in COUNTS
    ]  # fmt: skip


def figure(results, figure):
    for axes, count in zip(figure.subplots(1, 2), COUNTS):
        series = {
            f"dropout {dropout:g}": [test(results, count, dropout, decay) for decay in DECAY]
            for dropout in DROPOUT
        }
        side_by_side(axes, DECAY, series)
        axes.set(title=f"{count:,} images", xlabel="weight decay", ylabel="test accuracy, %")
