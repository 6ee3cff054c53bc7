"""Why did the norm move in front of attention and MLP? (a question of readers of section 3.1)

Twelve blocks with their norms in front (the paper's) and after each sum (Vaswani et al., 2017),
with a warm-up of a fifth of the updates and without. The paper gives no reason but cites Wang et
al. (2019), who found that norms after the sums do worse in deep models; by Xiong et al. (2020)
these need a warm-up too.

It does not show models so deep that they diverge in every case: 12 blocks of width 32 are small.
"""

import numpy as np

from studies.lab import Finding, accuracy, build, dots, learn, side_by_side

PLACES = {"in front": "pre_norm", "after the sum": "add_norm"}
ARMS = {
    f"{place}, {'warm-up' if warmup else 'none'}": {
        "block": block,
        "warmup": warmup,
        "rate": (1e-3, 2e-3, 4e-3),
    }
    for place, block in PLACES.items()
    for warmup in (True, False)
}


SECONDS = 30


def run(lab, seed, block, warmup, rate):
    steps = lab.steps(600)
    model = build(28, 10, seed, patch_size=7, width=32, depth=12, block=block)
    gradients = gradient_norms(model, lab.part("train").rows(slice(64)))
    learn(model, lab.part("train"), steps, rate, seed, warmup_steps=warmup * steps // 5)
    held_out = accuracy(model, lab.part("held_out"))
    return {
        "held_out": held_out,
        "test": accuracy(model, lab.part("test", seed=seed)),
        "diverged": int(not held_out > 20),  # chance is 10
        "gradients": gradients,
    }


def gradient_norms(model, part):
    """Of the weights of each block, before the first update; the head is not zero for once."""
    import jax

    head = model.get_layer("head").kernel
    head.assign(np.random.default_rng(0).normal(0, 0.1, head.shape))
    images, labels = part.prepared()
    rest = [v.value for v in model.non_trainable_variables]

    def loss(values):
        logits = model.stateless_call(values, rest, images)[0]
        return -jax.nn.log_softmax(logits)[np.arange(len(labels)), labels].mean()

    values = [v.value for v in model.trainable_variables]
    found = jax.jit(jax.grad(loss))(values)
    head.assign(np.zeros(head.shape))
    norms = {}
    for variable, gradient in zip(model.trainable_variables, found):
        block = variable.path.split("/")[0]
        norms[block] = norms.get(block, 0.0) + float((gradient**2).sum())
    return [norms[name] ** 0.5 for name in norms if name.startswith("block_")]


def findings(results):
    def against(warmup):
        return results[f"after the sum, {warmup}", "test"] - results[f"in front, {warmup}", "test"]

    front, after = (gradients(results, place)[:, -1] for place in PLACES)
    return [
        Finding("after the sum - in front, with a warm-up", against("warm-up")),
        Finding("the same without a warm-up", against("none")),
        Finding("what a warm-up brings, after the sum - in front",
                against("warm-up") - against("none")),
        Finding("gradient of the last block, after the sum against in front",
                np.log2(after / front), unit="doublings"),
    ]  # fmt: skip


def gradients(results, place):
    """(seeds, blocks)"""
    return np.array([results.rows[f"{place}, none", s]["gradients"] for s in results.seeds])


def figure(results, figure):
    accuracies, norms = figure.subplots(1, 2)
    warmups = ("warm-up", "none")
    series = {p: [results[f"{p}, {warmup}", "test"] for warmup in warmups] for p in PLACES}
    side_by_side(accuracies, ["warm-up", "no warm-up"], series)
    accuracies.set(ylabel="test accuracy, %")
    for place in PLACES:
        dots(norms, range(12), np.log2(gradients(results, place)).T, label=place)
    norms.set(xlabel="block", ylabel="log2 of the gradient's norm, before training")
