"""Which learning rates do the small models of the studies want?

Chosen on held-out images, for every family of models alike: those of pre-training on 7,000 images
of five classes, and five of fine-tuning on 10 images of each of the others.
"""

import numpy as np

from studies.lab import (
    MODELS,
    RESULTS,
    SMALL_PATCHES,
    Finding,
    accuracy,
    build,
    draw,
    fine_tune,
    learn,
    read,
)

SEEDS = 1
RATES, TUNED = (1e-3, 3e-3, 1e-2, 3e-2), (0.003, 0.01, 0.03, 0.1, 0.3)
KINDS = {"ViT": "ViT m", "hybrid": "hybrid m", "BiT": "BiT s"}
ARMS = {kind: {"model": MODELS[name], "rate": RATES} for kind, name in KINDS.items()}
ARMS["ViT P4"] = {
    "model": SMALL_PATCHES,
    "padding": 0,
    "rate": (2e-3, 4e-3, 8e-3, 1.6e-2),
}


def run(lab, seed, model, rate, padding=2):
    first, others = draw(seed)
    images = lab.part("train", first).padded(padding)
    size = images.images.shape[1]
    fresh = build(size, 5, seed, **model)
    trained = learn(fresh, images.draw(7000, seed), lab.steps(800), rate, seed)
    few = lab.part("train", others).padded(padding).per_class(10, seed)
    unseen = lab.part("held_out", others).padded(padding)
    tuned = [
        accuracy(fine_tune(trained, few, lab.steps(100), each, seed), unseen) for each in TUNED
    ]
    held_out = accuracy(trained, lab.part("held_out", first).padded(padding))
    return {"held_out": held_out, "tuned": tuned}


def chosen(model, lab):
    """{"rate": of pre-training, "tuned": of fine-tuning} of a family of models, by a model's name.

    In a rehearsal those in the middle.
    """
    family = model if model in ARMS else model.split()[0]
    if lab.quick:
        return {"rate": RATES[len(RATES) // 2], "tuned": TUNED[len(TUNED) // 2]}
    rows = [row for row in read(RESULTS / "rates.jsonl") if row["arm"] == family]
    best = [row["rate"] for row in rows if row["seed"] == 0]
    if not best:
        raise ValueError(
            f"No learning rate for {model!r}: run `python studies/run.py rates` first."
        )
    tuned = [row["tuned"] for row in rows if row["rate"] == best[0] and row["seed"] > 0]
    return {"rate": best[0], "tuned": TUNED[int(np.mean(tuned, axis=0).argmax())]}


def findings(results):
    """No comparison: what counts are the rates."""
    return [
        Finding(f"held-out accuracy of {arm}", results[arm, "held_out"]) for arm in results.arms
    ]


def figure(results, figure):
    axes = figure.subplots()
    for arm in results.arms:
        axes.plot(TUNED, results.rows[arm, 0]["tuned"], "o-", label=arm)
    axes.set(xscale="log", xlabel="learning rate of fine-tuning", ylabel="held-out accuracy, %")
    axes.legend()
