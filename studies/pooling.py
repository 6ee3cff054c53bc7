"""Class token or mean of the patches, and at which learning rate? (Figure 9)

The paper's signs: both are equally good at their best learning rates, and the mean's is lower. Each
arm chooses its best rate by itself; beside that, both are trained at each of four rates.

It does not show other schedules.
"""

import numpy as np

from studies.lab import MODELS, Finding, accuracy, build, dots, learn, log_axis

PAPER = "Equally good, at 8e-4 for the token and 3e-4 for the mean (Figure 9)."
RATES = (3e-4, 1e-3, 3e-3, 1e-2)
POOLS = ("token", "mean")
ARMS = {pool: {"pool": pool, "rate": RATES} for pool in POOLS}
ARMS |= {f"{pool}, {rate}": {"pool": pool, "at": rate} for pool in POOLS for rate in RATES}
SECONDS = 17


def run(lab, seed, pool, rate=None, at=None):
    train, held_out, test = (
        lab.part(p, seed=seed).padded(2) for p in ("train", "held_out", "test")
    )
    model = build(32, 10, seed, **MODELS["ViT m"], pool=pool)
    learn(model, train, lab.steps(600), rate or at, seed)
    return {"held_out": accuracy(model, held_out), "test": accuracy(model, test)}


def grid(results, pool, measure):
    """(rates, seeds)"""
    return np.stack([results[f"{pool}, {rate}", measure] for rate in RATES])


def findings(results):
    best = {
        pool: np.log2(np.array(RATES)[grid(results, pool, "held_out").argmax(axis=0)])
        for pool in POOLS
    }
    reached = results["mean", "test"] - results["token", "test"]
    return [
        Finding("mean - token, each at its best rate", reached, "tie"),
        Finding("best rate of the mean against that of the token", best["mean"] - best["token"],
                "below", unit="doublings"),
    ]  # fmt: skip


def figure(results, figure):
    axes = figure.subplots()
    for pool in POOLS:
        dots(axes, RATES, grid(results, pool, "test"), label=pool)
    axes.set(ylabel="test accuracy, %")
    log_axis(axes, RATES, "learning rate")
    axes.legend()
