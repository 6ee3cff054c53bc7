"""Does pre-training without labels help where labels are few? (section 4.6, and its readers)

The encoder is pre-trained on five classes of Fashion-MNIST, on the same images and for the same
number of updates: by masked patch prediction (mean colours, the paper's choice, or pixels), as a
masked autoencoder (He et al., 2022), with labels, or not at all. Then it learns from 10 or 1,000
labelled images of each of the other classes. The paper's signs: masked beats scratch, supervised
beats masked.

It does not show large models: the paper's was ViT-B/16 on 300 million images.
"""

import keras

from keras_vit import evaluation, training
from studies.lab import (
    SMALL_PATCHES,
    Finding,
    accuracy,
    build,
    dots,
    draw,
    learn,
    levelled,
    transferred,
)

PAPER = (
    "79.9 % on ImageNet with ViT-B/16, 2 points above training from scratch and 4 below "
    "supervised pre-training (section 4.6); pixels did slightly worse than mean colours (B.1.2)."
)
CAPTION = (
    "Each dot is a seed, without what its draw of classes gives all arms alike; bars are means "
    "with 95 % t-intervals."
)
COUNTS = {10: 100, 1000: 500}  # labelled images of a class, and updates
KINDS = ("scratch", "mean colour", "pixels", "autoencoder", "supervised")
ARMS = {
    f"{kind}, {count}": {"kind": kind, "count": count, "rate": (1e-3, 4e-3, 1.6e-2)}
    for kind in KINDS
    for count in COUNTS
}
ARMS["nearest neighbour"] = {"kind": "nearest", "count": 10}
SECONDS = 22


def pretrained(lab, kind, seed):
    """An encoder with a head for five classes."""
    steps, rate = lab.steps(600), 8e-3
    part = lab.part("train", draw(seed)[0])
    fresh = build(28, 5, seed, **SMALL_PATCHES)
    if kind == "scratch":
        return fresh
    if kind == "supervised":
        return learn(fresh, part, steps, rate, seed)
    if kind == "autoencoder":
        decoder = {"decoder_width": 16, "decoder_depth": 2, "decoder_heads": 2}
        masked = training.MaskedAutoencoder(fresh, seed=seed, **decoder)
    else:
        target = kind.replace("mean colour", "mean_color")
        masked = training.MaskedPatchModel(fresh, target, seed=seed)
    learn(masked, part, steps, rate, seed, loss="own", architecture=())
    return masked.encoder


def run(lab, seed, kind, count, rate=None):
    others = draw(seed)[1]
    train, held_out, test = (lab.part(name, others, seed) for name in ("train", "held_out", "test"))
    few = train.per_class(count, seed)
    if kind == "nearest":
        return {f"test_{n}": nearest(train.per_class(n, seed), test) for n in COUNTS}
    encoder = lab.once(f"masked {kind} {seed}", lambda: pretrained(lab, kind, seed))
    keras.utils.set_random_seed(seed)
    model = learn(transferred(encoder, 5), few, lab.steps(COUNTS[count]), rate, seed)
    return {"held_out": accuracy(model, held_out), "test": accuracy(model, test)}


def nearest(few, test):
    """Percent, by the nearest image in pixels."""
    (x, y), (x_test, y_test) = (
        (p.images.reshape(len(p.labels), -1), p.labels) for p in (few, test)
    )
    found = evaluation.knn(
        x / 255.0, y, x_test / 255.0, y_test, k=1, temperature=None, metric="euclidean"
    )
    return 100 * found.accuracy[1]


def findings(results):
    def against(kind, other, count):
        return results[f"{kind}, {count}", "test"] - results[f"{other}, {count}", "test"]

    few, many = (against("supervised", "mean colour", n) for n in (10, 1000))
    return [
        Finding("mean colour - scratch, 10 labels", against("mean colour", "scratch", 10), "above"),
        Finding("supervised - mean colour, 10 labels", few, "above"),
        Finding("supervised - mean colour, with 10 labels and with 1,000", few - many),
        Finding("mean colour - scratch, 1,000 labels", against("mean colour", "scratch", 1000)),
        Finding("mean colour - pixels, 10 labels", against("mean colour", "pixels", 10), "above"),
        Finding("autoencoder - mean colour, 10 labels", against("autoencoder", "mean colour", 10)),
    ]


def figure(results, figure):
    for axes, count in zip(figure.subplots(1, 2), COUNTS):
        values = {kind: results[f"{kind}, {count}", "test"] for kind in KINDS}
        values["nearest neighbour"] = results["nearest neighbour", f"test_{count}"]
        dots(axes, list(values), levelled(values).values(), linestyle="none")
        axes.set(title=f"{count:,} labelled images of a class")
        axes.set(ylabel="test accuracy, %, draws levelled")
        axes.tick_params(axis="x", rotation=25, labelsize="small")
