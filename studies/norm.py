"""Why did the norm move in front of attention and MLP? (a question of readers of section 3.1)

Blocks with their norms in front (the paper's) and after each sum (Vaswani et al., 2017), with 4 and
with 12 blocks, with a warm-up of a tenth of the updates and without. The paper cites others for
norms in front; they found that those after the sums do worse in deep models and without a warm-up.

It does not show models so deep that they diverge in every case: 12 blocks of width 32 are small.
"""

import numpy as np

from studies.lab import Finding, accuracy, build, dots, learn

PLACES = {"in front": "pre_norm", "after the sum": "add_norm"}
ARMS = {
    f"{place}, {depth} blocks, {'warm-up' if warmup else 'none'}": {
        "block": block,
        "depth": depth,
        "warmup": warmup,
        "rate": (1e-3, 4e-3),
    }
    for place, block in PLACES.items()
    for depth in (4, 12)
    for warmup in (True, False)
}


def run(lab, seed, block, depth, warmup, rate):
    steps = lab.steps(1000)
    model = build(28, 10, seed, patch_size=7, width=32, depth=depth, block=block)
    gradients = gradient_norms(model, lab.part("train").rows(slice(64)))
    learn(model, lab.part("train"), steps, rate, seed, warmup_steps=warmup * steps // 10)
    held_out = accuracy(model, lab.part("held_out"))
    return {
        "held_out": held_out,
        "test": accuracy(model, lab.part("test")),
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
    def against(depth, warmup):
        front, after = (f"{place}, {depth} blocks, {warmup}" for place in PLACES)
        return results[after, "test"] - results[front, "test"]

    def first(place):
        rows = [results.rows[f"{place}, 12 blocks, none", s]["gradients"] for s in results.seeds]
        return [np.log2(row[0] / row[-1]) for row in rows]

    return [
        Finding("after the sum - in front, 12 blocks, no warm-up", against(12, "none"), "below"),
        Finding("the same with a warm-up", against(12, "warm-up"), "below"),
        Finding("the same with 4 blocks, no warm-up", against(4, "none"), "below"),
        Finding("the same with 4 blocks and a warm-up", against(4, "warm-up"), "below"),
        *(
            Finding(f"gradient of the first block against the last, {place}", first(place),
                    unit="doublings")
            for place in PLACES
        ),
    ]  # fmt: skip


def figure(results, figure):
    axes = figure.subplots(1, 2)
    for place in PLACES:
        arms = [arm for arm in ARMS if arm.startswith(place)]
        ticks = [arm.split(", ", 1)[1].replace(", ", ",\n") for arm in arms]
        dots(axes[0], ticks, [results[a, "test"] for a in arms], label=place, linestyle="none")
        rows = [results.rows[f"{place}, 12 blocks, none", s]["gradients"] for s in results.seeds]
        axes[1].plot(np.mean(rows, axis=0), "o-", label=place)
    axes[0].set(ylabel="test accuracy, %")
    axes[0].legend()
    axes[1].set(yscale="log", xlabel="block", ylabel="norm of the gradient, before training")
