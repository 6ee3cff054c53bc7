"""Does the cheap linear accuracy tell which model is better when fine-tuned? (section 4.1)

The models of "data" and "budget": their order by 10-shot linear accuracy against that by accuracy
after fine-tuning, Spearman's correlation for each draw of classes. The paper uses the first in
place of the second for its curves.

It does not show fine-tuning on many images: it has 10 of each class, as the linear classifier has.
"""

import numpy as np
from scipy import stats

from studies.lab import Finding, dots

CAPTION = (
    "Left: each dot is a model in one draw of classes. Right: the correlation in each draw, their "
    "mean and its 95 % t-interval."
)
USES = ("data", "budget")
ARMS = {}


def pairs(results):
    """(2, arms, seeds): linear and fine-tuned."""
    return np.array([[results[arm, m] for arm in results.arms] for m in ("ten_shot", "tuned")])


def correlations(results):
    """Spearman's of each seed."""
    seeds = pairs(results).transpose(2, 0, 1)
    return [stats.spearmanr(linear, tuned).statistic for linear, tuned in seeds]


def findings(results):
    linear, tuned = pairs(results)
    return [
        Finding("Spearman's correlation", correlations(results), unit="of 1"),
        Finding("fine-tuned - linear, mean over the models", (tuned - linear).mean(axis=0)),
    ]


def figure(results, figure):
    models, axes = figure.subplots(1, 2, width_ratios=(4, 1))
    for seed, (linear, tuned) in zip(results.seeds, pairs(results).transpose(2, 0, 1)):
        models.plot(linear, tuned, ".", label=f"draw {seed}")
    models.set(xlabel="10-shot linear accuracy, %", ylabel="fine-tuned accuracy, %")
    models.legend()
    dots(axes, ["all models"], [correlations(results)])
    axes.set(ylabel="Spearman's correlation")
