"""Does the cheap linear accuracy tell which model is better when fine-tuned? (section 4.1)

The models of "data" and "budget": their order by 10-shot linear accuracy against that by accuracy
after fine-tuning, Spearman's correlation for each draw of classes. The paper uses the first in
place of the second for its curves.

It does not show fine-tuning on many images: it has 10 of each class, as the linear classifier has.
"""

import numpy as np
from scipy import stats

from studies.lab import Finding

USES = ("data", "budget")
ARMS = {}


def pairs(results):
    """(arms, 2, seeds): linear and fine-tuned."""
    return np.array([[results[arm, m] for m in ("ten_shot", "tuned")] for arm in results.arms])


def findings(results):
    found = pairs(results)
    each = [stats.spearmanr(*found[:, :, i].T).statistic for i in range(found.shape[2])]
    apart = found[:, 1] - found[:, 0]
    return [
        Finding("Spearman's correlation", each, unit="of 1"),
        Finding("fine-tuned - linear, mean over the models", apart.mean(axis=0)),
    ]


def figure(results, figure):
    axes = figure.subplots()
    found = pairs(results)
    for i, seed in enumerate(results.seeds):
        axes.plot(*found[:, :, i].T, ".", label=f"draw {seed}")
    axes.set(xlabel="10-shot linear accuracy, %", ylabel="fine-tuned accuracy, %")
    axes.legend()
