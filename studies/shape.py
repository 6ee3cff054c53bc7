"""How should a Vision Transformer grow? (Figure 8)

From one base (patches of 7 pixels, width 64, 4 blocks, 256 hidden units), one axis at a time, with
the same updates. The paper's signs: depth gains more than width, and smaller patches help although
they add no parameters.

It does not show the end of the scale: 1,200 updates are few for the largest of them.
"""

import numpy as np

from studies.compute import macs
from studies.lab import Finding, accuracy, build, dots, learn, log_axis
from studies.rates import chosen

PAPER = (
    "Depth gains most, with diminishing returns beyond 16 blocks, width least; smaller patches "
    "help without more parameters (Figure 8)."
)
WITHDRAWN = (
    "After 1,200 updates all axes end within a point or two, at one rate for all sizes: seeds "
    "cannot resolve at this size which axis gains most."
)
BASE = {"patch_size": 7, "width": 64, "depth": 4, "mlp_dim": 256}
SMALLER = {"width": 32, "depth": 2, "mlp_dim": 128}
LARGER = {"width": 96, "depth": 6, "mlp_dim": 384}
AXES = {
    "width": [{"width": 32}, {}, {"width": 128}],
    "depth": [{"depth": 1}, {"depth": 2}, {}, {"depth": 8}, {"depth": 12}],
    "MLP": [{"mlp_dim": 128}, {}, {"mlp_dim": 512}],
    "patch": [{"patch_size": 14}, {}, {"patch_size": 4}],
    "all": [SMALLER, {}, LARGER],
}


def name(change):
    return ", ".join(f"{key} {value}" for key, value in change.items()) or "base"


ARMS = {name(change): change for changes in AXES.values() for change in changes}


def run(lab, seed, steps=1200, **change):
    model = build(28, 10, seed, **BASE | change)
    learn(model, lab.part("train"), lab.steps(steps), chosen("ViT", lab)["rate"], seed)
    return {
        "test": accuracy(model, lab.part("test", seed=seed)),
        "macs": macs(model),
        "parameters": model.count_params(),
    }


def slope(results, axis):
    """For each seed: points of accuracy for each doubling of the operations."""
    arms = [name(change) for change in AXES[axis]]
    return results.slope("test", arms, np.log2([results[arm, "macs"].mean() for arm in arms]))


def findings(results):
    depth, width, patch = (slope(results, axis) for axis in ("depth", "width", "patch"))
    gain = results["patch_size 4", "test"] - results["base", "test"]
    per = "points per doubling of the operations"
    return [
        Finding("depth - width", depth - width, "above", per),
        Finding("patches of 4 - patches of 7, by the same parameters", gain, "above"),
        *(Finding(axis, slope(results, axis), "above", per) for axis in AXES),
        Finding("patch - width", patch - width, None, per),
    ]


def figure(results, figure):
    axes = figure.subplots()
    for axis, changes in AXES.items():
        arms = [name(change) for change in changes]
        operations = [results[arm, "macs"].mean() / 1e6 for arm in arms]
        dots(axes, operations, [results[arm, "test"] for arm in arms], label=axis)
    axes.set(ylabel="test accuracy, %")
    log_axis(axes, (0.5, 1, 2, 5, 10), "million MACs for an image")
    axes.legend()
