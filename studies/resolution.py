"""What does a higher resolution bring in fine-tuning? (section 3.2)

A ViT is pre-trained on five classes at 16 pixels and fine-tuned on the others: at 16 pixels, at 16
with as much compute as 32 takes, at 32, and at 32 with images enlarged from 16, which have longer
sequences but no more detail. The paper's sign: the higher resolution is better.

It does not show what a higher resolution brings at the paper's sizes, to photographs.
"""

from studies.lab import (
    SMALL_PATCHES,
    Finding,
    Part,
    accuracy,
    build,
    dots,
    draw,
    learn,
    levelled,
    transferred,
)

PAPER = "Fine-tuned at 384 or 512 pixels after 224; no comparison in numbers (section 3.2)."
CAPTION = (
    "Each dot is a seed, without what its draw of classes gives all arms alike; bars are means "
    "with 95 % t-intervals."
)
COUNTS = (100, 1000)
SECONDS = 10
WAYS = {  # how: pixels, whether the detail of 32 is there, factor of the updates
    "stay": (16, False, 1),
    "stay, equal compute": (16, False, 4),
    "native": (32, True, 1),
    "enlarged": (32, False, 1),
}
ARMS = {
    f"{way}, {count}": {"way": way, "count": count, "rate": (2e-3, 4e-3, 8e-3, 1.6e-2)}
    for way in WAYS
    for count in COUNTS
}


def smaller(part):
    """Means of 2 x 2 pixels."""
    images = part.images.reshape(len(part.labels), 16, 2, 16, 2, 1).mean(axis=(2, 4))
    return Part(images.round().astype("uint8"), part.labels)


def larger(part):
    return Part(part.images.repeat(2, axis=1).repeat(2, axis=2), part.labels)


def pretrained(lab, seed):
    part = smaller(lab.part("train", draw(seed)[0]).padded(2))
    fresh = build(16, 5, seed, **SMALL_PATCHES)
    return learn(fresh, part, lab.steps(1000), 8e-3, seed)


def run(lab, seed, way, count, rate):
    size, detail, times = WAYS[way]

    def seen(name):
        part = lab.part(name, draw(seed)[1], seed).padded(2)
        if not detail:
            part = smaller(part)
        return larger(part) if size == 32 and not detail else part

    body = lab.once(f"resolution {seed}", lambda: pretrained(lab, seed))
    model = transferred(body, 5, size)
    learn(model, seen("train").per_class(count, seed), lab.steps(200 * times), rate, seed)
    return {"held_out": accuracy(model, seen("held_out")), "test": accuracy(model, seen("test"))}


def findings(results):
    def against(way, other, count):
        return results[f"{way}, {count}", "test"] - results[f"{other}, {count}", "test"]

    equal = against("native", "stay, equal compute", 1000)
    return [
        Finding("native - stay, 1,000 images a class", against("native", "stay", 1000), "above"),
        Finding("native - stay, 100 images a class", against("native", "stay", 100), "above"),
        Finding("enlarged - stay, 1,000 images a class", against("enlarged", "stay", 1000)),
        Finding("native - stay with equal compute, 1,000 images a class", equal),
    ]


def figure(results, figure):
    axes = figure.subplots(1, 2)
    for place, count in zip(axes, COUNTS):
        values = levelled({way: results[f"{way}, {count}", "test"] for way in WAYS})
        ways = [way.replace(", ", ",\n") for way in WAYS]
        dots(place, ways, values.values(), linestyle="none")
        place.set(title=f"{count:,} images a class", ylabel="test accuracy, %, draws levelled")
