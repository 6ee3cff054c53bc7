"""Does pre-training on very many images carry over to few? With a real ViT-S/14 (section 4.2)

A ViT-S/14 that others trained (by its layout DINOv2's, which has seen 142 million images) meets
Fashion-MNIST, enlarged to 56 pixels: by a linear map on frozen features, or fine-tuned, against the
same model from scratch and a small BiT from scratch, at equal updates. Its positions are replaced
as well: by their 2-D part (means of rows and columns), by themselves in another order, and by their
mean. `real_vit_s14.py` makes the file. The paper's sign: pre-trained on enough images a ViT is
ahead.

It does not show pre-training with labels, nor photographs: clothes are grey and 28 pixels large.
"""

import keras
import numpy as np

import keras_vit
from keras_vit import evaluation, inspection
from studies.lab import MODELS, RESULTS, Finding, Part, accuracy, dots, learn, side_by_side

PAPER = "Pre-trained on JFT-300M ViT is ahead of BiT, from 90 million images on (Figures 3 and 4)."
FILE = RESULTS / "checkpoints" / "vit_s14.npz"
COUNTS, WAYS = (10, 100), ("fine-tuned", "scratch", "BiT s")
RATES = {
    "fine-tuned": (1e-5, 1e-4, 1e-3),
    "scratch": (1e-4, 1e-3, 1e-2),
    "BiT s": (1e-3, 3e-3, 1e-2),
}
POSITIONS = ("as trained", "2-D part", "shuffled", "none")
ARMS = {
    f"{way}, {count}": {"way": way, "count": count, "rate": RATES[way]}
    for way in WAYS
    for count in COUNTS
}
ARMS |= {f"linear, {n}": {"way": "linear", "count": n, "position": POSITIONS[0]} for n in COUNTS}
ARMS |= {
    f"positions {each}": {"way": "linear", "count": 10, "position": each} for each in POSITIONS[1:]
}
SECONDS = 31


def enlarged(part):
    """Of 56 pixels, in three equal colours."""
    return Part(part.images.repeat(2, axis=1).repeat(2, axis=2).repeat(3, axis=3), part.labels)


def trained(lab):
    """The ViT-S/14 for 56 pixels; in a rehearsal a small one that has learned nothing."""
    if lab.quick:
        small = {"patch_size": 14, "width": 32, "depth": 2, "num_heads": 2}
        return keras_vit.VisionTransformer(image_size=56, num_classes=10, **small)
    if not FILE.exists():
        raise ValueError(f"{str(FILE)!r} is missing: `python studies/real_vit_s14.py` makes it.")
    return keras_vit.from_checkpoint(FILE, image_size=56, num_classes=10, gelu="erf")


def replace(model, position, seed):
    """Other positions for the patches; the class token keeps its own."""
    variable = model.get_layer("patch_encoder").position.embedding
    table = np.array(variable)
    patches = table[0, 1:].reshape(4, 4, -1)
    if position == "2-D part":
        patches = patches.mean(0) + patches.mean(1)[:, None] - patches.mean((0, 1))
    elif position == "shuffled":
        patches = np.random.default_rng(seed).permutation(patches.reshape(16, -1))
    elif position == "none":
        patches = np.broadcast_to(patches.mean((0, 1)), patches.shape)
    table[0, 1:] = patches.reshape(16, -1)
    variable.assign(table)


def run(lab, seed, way, count, rate=None, position="as trained"):
    parts = (lab.part(name, seed=seed) for name in ("train", "held_out", "test"))
    train, held_out, test = map(enlarged, (p.draw(5000, seed) for p in parts))
    few = train.per_class(count, seed)
    if way == "linear":
        model = trained(lab)
        replace(model, position, seed)
        found = evaluation.fewshot(
            model, few.prepared(), test.prepared(), count, seeds=(0,), progress=False
        )
        distances = inspection.attention_distances(model, test.rows(slice(64)).prepared()[0])
        return {"test": 100 * found.mean[count], "distances": distances.mean(axis=1).tolist()}
    keras.utils.set_random_seed(seed)
    if way == "BiT s":
        model = keras_vit.BiT(image_size=56, num_classes=10, **MODELS["BiT s"])
    else:
        model = trained(lab)
        if way == "scratch":
            model = type(model).from_config(model.get_config())
    learn(model, few, lab.steps(50), rate, seed, weight_decay=0.0)
    return {
        "held_out": accuracy(model, held_out.rows(slice(500))),
        "test": accuracy(model, test.rows(slice(500))),
    }


def findings(results):
    def against(one, other, expected=None):
        values = results[one, "test"] - results[other, "test"]
        return Finding(f"{one} - {other}", values, expected)

    rows = [results.rows["linear, 10", seed]["distances"] for seed in results.seeds]
    heads = np.array(rows).mean(axis=2)
    return [
        against("fine-tuned, 10", "BiT s, 10", "above"),
        against("fine-tuned, 100", "BiT s, 100", "above"),
        *(against(f"fine-tuned, {count}", f"scratch, {count}", "above") for count in COUNTS),
        *(against(f"linear, {count}", f"fine-tuned, {count}") for count in COUNTS),
        *(against(f"positions {each}", "linear, 10") for each in POSITIONS[1:]),
        Finding("distance, last block - first", heads[:, -1] - heads[:, 0], "above", "pixels"),
    ]


def figure(results, figure):
    axes, positions = figure.subplots(1, 2, width_ratios=(3, 2))
    ways = ("linear", *WAYS)
    series = {
        f"{count} images of a class": [results[f"{way}, {count}", "test"] for way in ways]
        for count in COUNTS
    }
    side_by_side(axes, ways, series)
    arms = ["linear, 10", *(f"positions {each}" for each in POSITIONS[1:])]
    dots(positions, POSITIONS, [results[arm, "test"] for arm in arms], linestyle="none")
    axes.set(ylabel="test accuracy, %")
    positions.set(title="positions: linear, 10 images")
