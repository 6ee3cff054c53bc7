"""How does the similarity of positions come about? (Figures 7 and 10)

The learned 1-D positions of "positions" at moments of their training. In the paper they end as a
map of the image: the nearer two patches, the more similar, above all in one row or one column, with
a sinusoidal structure. Before training they are random numbers, in which a regression on twelve
sinusoids finds a quarter of the variance.

It does not show the clean maps of the paper: 600 updates of 64 images make a beginning.
"""

import numpy as np

from studies.lab import Finding, dots

PAPER = (
    "Positions end as a map of the image, with rows, columns and a sinusoidal structure "
    "(Figures 7 and 10)."
)
USES = ("positions",)
ARMS = {}


def course(results, measure):
    """(seeds, moments)"""
    rows = [results.rows["1-D", seed]["snapshots"] for seed in results.seeds]
    return np.array([[moment[measure] for moment in row] for row in rows])


def findings(results):
    growth = lambda m: course(results, m)[:, -1] - course(results, m)[:, 0]  # noqa: E731
    lines = growth("row") + growth("column")
    return [
        Finding("growth of the correlation with nearness", -growth("distance"), "above", "of 1"),
        Finding("growth of the variance that rows and columns explain", lines, "above", "of 1"),
        Finding("growth of the variance that sinusoids explain", growth("waves"), "above", "of 1"),
    ]


def figure(results, figure):
    axes = figure.subplots()
    labels = {"distance": "-correlation with distance", "row": "explained by rows"}
    labels |= {"column": "explained by columns", "waves": "explained by sinusoids"}
    for measure, label in labels.items():
        values = course(results, measure) * (-1 if measure == "distance" else 1)
        dots(axes, np.arange(values.shape[1]) * 60, values.T, label=label)
    axes.set(xlabel="updates", ylabel="of 1")
    axes.legend()
