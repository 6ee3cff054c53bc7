"""Adam or SGD to pre-train a ResNet? (Table 7)

BiT and ViT are pre-trained on 29,000 images of five classes and transferred to the other five. The
paper's sign: a ResNet that Adam has pre-trained is better after fine-tuning.

It does not show other decays of SGD: its rate alone was chosen, among three.
"""

from studies import data
from studies.compute import macs
from studies.lab import MODELS, Finding, accuracy, build, dots, draw, learn, levelled
from studies.rates import chosen

PAPER = (
    "ResNets pre-trained with Adam do slightly better than with SGD, on the mean of five data "
    "sets (Table 7)."
)
CAPTION = (
    "Each dot is a seed, without what its draw of classes gives all arms alike; bars are means "
    "with 95 % t-intervals."
)
USES = ("data",)
RATES = (0.03, 0.1, 0.3)
NAMES = ("BiT s", "ViT m")
ARMS = {f"{name}, SGD": {"model": name, "rate": RATES} for name in NAMES}


def run(lab, seed, model, rate):
    first, _ = draw(seed)
    images = lab.part("train", first).padded(2).draw(data.COUNTS[-1], seed)
    fresh = build(32, 5, seed, **MODELS[model])
    # SGD multiplies its decay with a rate some thirty times as high.
    changes = {"optimizer": "sgdm", "weight_decay": 1e-3}
    trained = learn(fresh, images, lab.steps(2000), rate, seed, **changes)
    held_out = accuracy(trained, lab.part("held_out", first).padded(2))
    moved = data.transfer(lab, trained, seed, chosen(model, lab)["tuned"])
    return {"held_out": held_out, "macs": macs(trained), **moved}


def findings(results):
    def gain(name, measure):
        return results[f"{name}, {data.COUNTS[-1]}", measure] - results[f"{name}, SGD", measure]

    measures = {"tuned": "fine-tuned", "ten_shot": "10-shot", "digits": "10-shot on digits"}
    return [
        Finding(
            f"{name}, Adam - SGD, {what}",
            gain(name, measure),
            # The paper fine-tunes, and pre-trains with SGD no model but ResNets.
            "above" if (name, measure) == ("BiT s", "tuned") else None,
        )
        for name in NAMES
        for measure, what in measures.items()
    ]


def figure(results, figure):
    axes = figure.subplots(1, 3)
    every = [arm for name in NAMES for arm in (f"{name}, {data.COUNTS[-1]}", f"{name}, SGD")]
    for place, measure in zip(axes, ("tuned", "ten_shot", "digits")):
        found = levelled({arm: results[arm, measure] for arm in every})
        for name in NAMES:
            arms = [f"{name}, {data.COUNTS[-1]}", f"{name}, SGD"]
            dots(place, ["Adam", "SGD"], [found[arm] for arm in arms], label=name)
        place.set(title=measure.replace("_", "-"), ylabel="accuracy, %, draws levelled")
    axes[0].legend()
