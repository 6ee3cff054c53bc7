"""Larger models or smaller patches? Table 2 changes both at once (a question of its readers)

Two sizes (width 64 and 4 blocks, width 96 and 6 blocks) with patches of 7 and of 4 pixels, as L/16
and H/14 differ in both. The paper leaves open which of them counts.

It does not show where either ends to help: each has two values.
"""

import numpy as np

from studies import shape
from studies.lab import Finding, dots, log_axis

PAPER = (
    "88.55 % for H/14 and 87.76 % for L/16 on ImageNet: size and patch change together (Table 2)."
)
WITHDRAWN = (
    "Neither larger models nor smaller patches gain anything within 1,200 updates, so that no "
    "number of seeds can say which gains more."
)
USES = ("shape",)
SIZES = {"small": {}, "large": shape.LARGER}
PATCHES = {7: {}, 4: {"patch_size": 4}}
ARMS = {shape.name(SIZES["large"] | PATCHES[4]): SIZES["large"] | PATCHES[4]}
run = shape.run


def arm(size, patch):
    return shape.name(SIZES[size] | PATCHES[patch])


def findings(results):
    test = {(s, p): results[arm(s, p), "test"] for s in SIZES for p in PATCHES}
    log = {(s, p): np.log2(results[arm(s, p), "macs"].mean()) for s in SIZES for p in PATCHES}
    size = (test["large", 7] - test["small", 7]) / (log["large", 7] - log["small", 7])
    patch = (test["small", 4] - test["small", 7]) / (log["small", 4] - log["small", 7])
    both = test["large", 4] - test["large", 7] - test["small", 4] + test["small", 7]
    per = "points per doubling of the operations"
    return [
        Finding("smaller patches - larger model", patch - size, None, per),
        Finding("larger model", size, None, per),
        Finding("smaller patches", patch, None, per),
        Finding("what both give beyond the sum of each", both),
    ]


def figure(results, figure):
    axes = figure.subplots()
    for size in SIZES:
        arms = [arm(size, patch) for patch in PATCHES]
        operations = [results[each, "macs"].mean() / 1e6 for each in arms]
        dots(axes, operations, [results[each, "test"] for each in arms], label=f"{size}, P7 and P4")
    axes.set(ylabel="test accuracy, %")
    log_axis(axes, (4, 10, 20, 40), "million MACs for an image")
    axes.legend()
