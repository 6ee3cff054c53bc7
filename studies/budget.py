"""Does a Vision Transformer make more of a budget of compute than a ResNet? (Figure 5)

All models are pre-trained on 29,000 images of five classes for 500 to 5,000 updates and transferred
to the other five. The paper's signs: a ViT is ahead at equal compute, and the lead of hybrids over
ViTs shrinks as models grow.

It does not show which model is best at the paper's budgets: those end at 4,262 exaFLOPs, these
at 0.00001.
"""

import numpy as np

from studies import data
from studies.lab import Finding, dots, levelled, log_axis

PAPER = (
    "A ViT takes 2 to 4 times less compute than a ResNet for the same accuracy; hybrids lead at "
    "small budgets, and the lead vanishes for larger models (Figure 5)."
)
WITHDRAWN = (
    "Draws of five classes differ by more than the effect: its sign in 10-shot accuracy would take "
    "some hundred seeds at this size. The operations and seconds of each model stand."
)
USES = ("data",)
CAPTION = (
    "Each dot is a seed, without what its draw of classes gives all arms alike; bars are means "
    "with 95 % t-intervals."
)
WHOLE = data.COUNTS[-1]
NAMES = ("ViT s", "ViT m", "ViT l", "hybrid s", "hybrid m", "hybrid l", "BiT s", "BiT m")
STEPS = {500: NAMES, 2000: NAMES, 5000: ("ViT m", "hybrid m", "BiT s")}
ARMS = {
    f"{name}, {WHOLE}, {steps} updates": {"model": name, "count": WHOLE, "steps": steps}
    for steps, names in STEPS.items()
    for name in names
    if steps != 2000 or f"{name}, {WHOLE}" not in data.ARMS
}
run = data.run


def arm(name, steps):
    """Its name here, or in the study that it is shared with."""
    own = f"{name}, {WHOLE}, {steps} updates"
    return own if own in ARMS else f"{name}, {WHOLE}"


def lead(results, name, other, steps, measure="ten_shot"):
    return results[arm(name, steps), measure] - results[arm(other, steps), measure]


def findings(results):
    early, late = (lead(results, "ViT m", "BiT s", steps) for steps in (500, 5000))
    small, large = (lead(results, f"hybrid {x}", f"ViT {x}", 2000) for x in "sl")
    return [
        Finding("ViT m - BiT s, after 5,000 updates and after 500", late - early),
        Finding("hybrid - ViT, of size s and of size l", small - large, "above"),
        Finding("hybrid s - ViT s", small, "above"),
        Finding("ViT m - BiT s after 5,000 updates", late),
    ]


def figure(results, figure):
    axes = figure.subplots(1, 2, sharey=True)
    arms = [arm(name, steps) for steps, names in STEPS.items() for name in names]
    found = levelled({each: results[each, "ten_shot"] for each in arms})
    for name in NAMES:
        steps = [each for each, names in STEPS.items() if name in names]
        values = [found[arm(name, each)] for each in steps]
        operations = [6 * 64 * each * results[arm(name, each), "macs"].mean() for each in steps]
        seconds = [np.mean(results[arm(name, each), "core_seconds"]) for each in steps]
        dots(axes[0], operations, values, label=name)
        dots(axes[1], seconds, values)
    axes[0].set(ylabel="10-shot accuracy, %, draws levelled")
    log_axis(axes[0], (3e11, 1e12, 3e12, 1e13), "FLOPs of pre-training")
    log_axis(axes[1], (20, 50, 100, 200), "core-seconds of a run")
    figure.legend(loc="outside right upper", fontsize="small")
