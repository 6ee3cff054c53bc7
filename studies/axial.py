"""Is attention along rows and columns worth its cost? (appendix D.6)

Each axial block is two: attention within rows, then within columns, both with an MLP of their own.
With patches of 4 pixels (49 tokens), and for fewer updates with patches of 2 (196 tokens), where
full attention is dear. The paper's signs: an axial model is more accurate than one with as many
blocks, and dearer.

It does not show a gain of memory, which would need far longer sequences.
"""

from studies.compute import macs
from studies.lab import Finding, accuracy, build, dots, learn, log_axis

PAPER = (
    "Axial models are more accurate than those with as many blocks, and cost more (appendix D.6)."
)
ARMS = {
    f"{block}, {depth} blocks, P{patch}": {
        "block": {"full": "pre_norm"}.get(block, block),
        "depth": depth,
        "patch_size": patch,
        "steps": steps,
        "rate": (4e-3, 8e-3, 1.6e-2),
    }
    for block, depth, patch, steps in (
        ("full", 2, 4, 500),
        ("full", 4, 4, 500),
        ("axial", 2, 4, 500),
        ("axial", 4, 4, 500),
        ("full", 2, 2, 200),
        ("axial", 2, 2, 200),
    )
}


SECONDS = 28


def run(lab, seed, steps, rate, **architecture):
    model = build(28, 10, seed, width=32, pool="mean", class_token=False, **architecture)
    learn(model, lab.part("train"), lab.steps(steps), rate, seed)
    held_out, test = (accuracy(model, lab.part(p, seed=seed)) for p in ("held_out", "test"))
    return {"held_out": held_out, "test": test, "macs": macs(model)}


def findings(results):
    def against(one, other, measure="test"):
        return results[one, measure] - results[other, measure]

    dear = results["axial, 2 blocks, P4", "macs"] / results["full, 2 blocks, P4", "macs"]
    return [
        Finding(f"axial - full, {where}", against(f"axial, {where}", f"full, {where}"), "above")
        for where in ("4 blocks, P4", "2 blocks, P4", "2 blocks, P2")
    ] + [
        Finding("axial with 2 blocks - full with 4, P4",
                against("axial, 2 blocks, P4", "full, 4 blocks, P4")),
        Finding("operations of axial, as a multiple of full, beyond 1", dear - 1, "above", "times"),
    ]  # fmt: skip


def figure(results, figure):
    axes = figure.subplots()
    for arm in ARMS:
        operations = results[arm, "macs"].mean() / 1e6
        dots(axes, [operations], [results[arm, "test"]], label=arm)
    axes.set(ylabel="test accuracy, %")
    log_axis(axes, (2, 3, 5, 10), "million MACs for an image")
    axes.legend(fontsize="small")
