"""Which model knows that an object that has moved is the same? (section 3.1, "Inductive bias")

The models of "data" on images moved by 0 to 4 pixels, which none has seen in training. What a
ResNet has built in, a ViT has to learn. Section 3.1 lets one expect that BiT bears it best, then
the hybrid, then the ViT, and gives no number.

It does not show moves by whole patches (8 pixels), which a ViT without positions would not notice.
"""

import numpy as np

from studies import data
from studies.lab import Finding, dots

PAPER = (
    "Said, not measured: only MLPs are local and translation equivariant in a ViT (section 3.1)."
)
USES = ("data",)
ARMS = {}
NAMES = ("ViT m", "hybrid m", "BiT s")


def kept(results, name, count):
    """(seeds, shifts): accuracy as a share of that of images that have not moved."""
    rows = [results.rows[f"{name}, {count}", seed]["shifted"] for seed in results.seeds]
    return 100 * np.array(rows) / np.array(rows)[:, :1]


def findings(results):
    def apart(name, other, count):
        return kept(results, name, count)[:, -1] - kept(results, other, count)[:, -1]

    return [
        Finding(f"{name} - {other}, moved by 4 pixels, {count:,} images", apart(name, other, count),
                unit="points of what was right")
        for count in (data.COUNTS[-1], data.COUNTS[0])
        for name, other in (("BiT s", "ViT m"), ("BiT s", "hybrid m"), ("hybrid m", "ViT m"))
    ]  # fmt: skip


def figure(results, figure):
    for axes, count in zip(figure.subplots(1, 2, sharey=True), (data.COUNTS[0], data.COUNTS[-1])):
        for name in NAMES:
            dots(axes, data.SHIFTS, kept(results, name, count).T, label=name)
        axes.set(title=f"{count:,} images", xlabel="moved by, pixels", ylabel="accuracy kept, %")
    axes.legend()
