"""Class token or mean of the patches, and at which learning rate? (Figure 9)

The paper's signs: both are equally good at their best learning rates, and the mean's is lower.

It does not show rates between the four tried, nor other schedules.
"""

import numpy as np

from studies.lab import MODELS, Finding, accuracy, build, dots, learn, log_axis

PAPER = "Equally good, at 8e-4 for the token and 3e-4 for the mean (Figure 9)."
RATES = (3e-4, 8e-4, 2e-3, 5e-3)
POOLS = ("token", "mean")
ARMS = {f"{pool}, {rate}": {"pool": pool, "at": rate} for pool in POOLS for rate in RATES}


def run(lab, seed, pool, at):
    train, held_out, test = (lab.part(p).padded(2) for p in ("train", "held_out", "test"))
    model = build(32, 10, seed, **MODELS["ViT m"], pool=pool)
    learn(model, train, lab.steps(1500), at, seed)
    return {"held_out": accuracy(model, held_out), "test": accuracy(model, test)}


def grid(results, pool, measure):
    """(rates, seeds)"""
    return np.stack([results[f"{pool}, {rate}", measure] for rate in RATES])


def findings(results):
    best = {pool: grid(results, pool, "held_out") for pool in POOLS}
    first = {pool: values[:, 0].argmax() for pool, values in best.items()}  # draw 0 chooses
    reached = {pool: grid(results, pool, "test")[first[pool]] for pool in best}
    own = {pool: np.log2(np.array(RATES)[values.argmax(axis=0)]) for pool, values in best.items()}
    return [
        Finding("mean - token at the best rates", reached["mean"] - reached["token"], "tie"),
        Finding("best rate of the mean against that of the token", own["mean"] - own["token"],
                "below", unit="doublings"),
        Finding("mean - token at the highest rate",
                grid(results, "mean", "test")[-1] - grid(results, "token", "test")[-1], "below"),
    ]  # fmt: skip


def figure(results, figure):
    axes = figure.subplots()
    for pool in POOLS:
        dots(axes, RATES, grid(results, pool, "test"), label=pool)
    axes.set(ylabel="test accuracy, %")
    log_axis(axes, RATES, "learning rate")
    axes.legend()
