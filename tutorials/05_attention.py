# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # What do the heads look at, and how far?
#
# The paper reads the weights of attention in section 4.5: maps (Figure 6), the similarity of
# position embeddings (Figure 7, centre), and the *mean attention distance* of each head (Figure 7,
# right). At the end you will have read all of them from a model that was trained here, and you will
# know what mean attention distance measures: why the class token is left out and the rest made to
# sum to one again, where uniform attention lies, and what a head near that value may be doing.

# %%
import os

os.environ.setdefault("KERAS_BACKEND", "torch")  # or "tensorflow", or "jax"
import keras
import matplotlib.pyplot as plt
import numpy as np

import keras_vit
from keras_vit import data, inspection, training

plt.rcParams["figure.dpi"] = 80
keras.utils.set_random_seed(0)

# %% [markdown]
# ## A task that needs two places
#
# An image here is two digits side by side, 16 x 32 pixels, and the answer is the **larger** of the
# two. In patches of 4 x 4 pixels that is a grid of 4 rows and 8 columns; columns 0 to 3 hold the
# left digit. There are pictures of some below.

# %%
digits = data.load("digits", image_size=16)
rng = np.random.default_rng(0)


def pairs(images, labels, count):
    """Images of two digits, the larger of the two, and both."""
    chosen = rng.integers(len(images), size=(count, 2))
    joined = np.concatenate([images[chosen[:, 0]], images[chosen[:, 1]]], axis=2)
    return data.preprocess(joined), labels[chosen].max(axis=1), labels[chosen]


images, answers, _ = pairs(digits.train_images, digits.train_labels, 12_000)
test_images, test_answers, test_digits = pairs(digits.test_images, digits.test_labels, 500)

# %% [markdown]
# ## The model
#
# Three blocks of four heads, and a class token that collects the answer (Eq. 4).

# %%
model = keras_vit.VisionTransformer(
    image_size=(16, 32), patch_size=4, channels=1, num_classes=10,
    width=32, depth=3, num_heads=4, mlp_dim=64,
)  # fmt: skip
EPOCHS, BATCH = 3, 50
steps = EPOCHS * len(images) // BATCH
model.compile(
    training.adamw(4e-3, steps, warmup_steps=steps // 10, weight_decay=0.02),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
model.fit(images, answers, batch_size=BATCH, epochs=EPOCHS, verbose=0)
accuracy = model.evaluate(test_images, test_answers, batch_size=250, verbose=0)[1]
print(f"accuracy on pairs of digits that were not trained on: {accuracy:.1%}")

# %% [markdown]
# ## Attention maps
#
# $A = \mathrm{softmax}(qk^\top/\sqrt{D_h})$ (Eq. 6) has a row for every token that asks, and the
# row says in which shares it reads the others. `attention_maps` takes the row of the class token
# and lays it out on the grid; `heads=None` keeps the heads apart. Brighter is more.

# %% caption="Where the class token looks in block 0: two images, four heads"
shown = test_images[:2]
titles = [f"block 0, head {head}" for head in range(4)]
maps = inspection.attention_maps(model, shown, block=0, heads=None)
inspection.plot_maps(shown, maps, titles=titles, unit="attention")

# %% caption="Where the class token looks in block 2: two images, four heads"
titles = [f"block 2, head {head}" for head in range(4)]
maps = inspection.attention_maps(model, shown, block=2, heads=None)
inspection.plot_maps(shown, maps, titles=titles, unit="attention")

# %% [markdown]
# The heads differ. Do they look at the digit that is the answer? Pictures of two images cannot say,
# a mean over many can: how much of the class token's attention falls on the half with the larger
# digit? One half would be no preference.

# %%
many, both = test_images[:256], test_digits[:256]
unequal = both[:, 0] != both[:, 1]
left_is_larger = (both[:, 0] > both[:, 1])[unequal]


def on_larger(maps):
    """Share of maps (images, rows, columns) on the side of the larger digit, as text."""
    maps = maps[unequal]
    left = maps[:, :, :4].sum(axis=(1, 2)) / maps.sum(axis=(1, 2))
    share = np.where(left_is_larger, left, 1 - left)
    return f"{share.mean():.0%} ± {share.std() / np.sqrt(len(share)):.0%}"


print("share on the larger digit, mean and standard error, heads 0 to 3")
for block in range(3):
    maps = inspection.attention_maps(model, many, block=block, heads=None)
    print(f"block {block}:  ", "   ".join(on_larger(maps[:, head]) for head in range(4)))

# %% [markdown]
# A head several standard errors above one half prefers the larger digit, and mostly slightly: the
# class token reads *both*, and what is larger is worked out from that. A bright spot in one picture
# would have been an easy story, and a wrong one.
#
# ## Rollout
#
# After the first block a token is no longer its patch: it has read others. Rollout (Abnar and
# Zuidema, 2020; the paper's Figure 6) follows this back to the input. The heads of a block are
# averaged, half of each token is what it was (the residual connection), and blocks are multiplied:
#
# $$R = \prod_{l=L}^{1} \tfrac{1}{2}\left(\bar A_l + I\right)$$

# %% caption="Rollout for two images: patches that may have reached the class token"
maps = inspection.rollout_maps(model, many)
print("rollout on the side of the larger digit:", on_larger(maps))
inspection.plot_maps(shown, maps[:2], style="spotlight", unit="share of the class token")

# %% [markdown]
# Rollout is smoother than any single head: it is an average over heads and paths. It says where the
# class token's content came from, not which of it decided; `inspection.relevance_maps` asks the
# gradient about that.
#
# ## What have the positions learned?
#
# Nobody told the model about rows and columns, let alone that there are two digits. Each tile below
# belongs to one patch and shows the cosine similarity of its position embedding (Eq. 1) with those
# of all patches (Figure 7, centre).

# %% caption="Cosine similarity of each position embedding with all; a tile is one patch"
similarity = inspection.position_similarity(model)
inspection.plot_position_similarity(similarity)

# %% [markdown]
# Look for a second bright spot, four columns away: the same place *in the other digit*. Of the 16
# patches of the left digit, how many find their most similar patch of the right half there?

# %%
across = similarity[:, :4, :, 4:].reshape(16, 16)  # patch of the left digit, patch of the right
same_place = across.argmax(axis=1) == np.arange(16)
print(f"{same_place.sum()} of 16; mean similarity there {across.diagonal().mean():.2f},")
print(f"of all pairs across {across.mean():.2f}")

# %% [markdown]
# ## Mean attention distance
#
# Let $\mathbf{p}_i$ be the centre of patch $i$ in pixels. A head's mean attention distance is
#
# $$d = \frac1N \sum_{i=1}^{N} \sum_{j=1}^{N} \tilde A_{ij}\,
# \lVert \mathbf{p}_i - \mathbf{p}_j \rVert,
# \qquad \tilde A_{ij} = \frac{A_{ij}}{\sum_{k=1}^{N} A_{ik}},$$
#
# with $i$, $j$, $k$ over patches only: the class token lies nowhere in the image. The paper
# averages over images, and compares it with the receptive field of a convolution.

# %% caption="Mean attention distance of each head, by block"
distances = inspection.attention_distances(model, many)  # (blocks, images, heads), in pixels
inspection.plot_distances(distances)

# %% [markdown]
# Is that far? Compare it with a head that looks at nothing in particular: uniform attention.

# %%
GRID, PATCH = model.grid, 4
uniform = inspection.attention_distance(np.full((32, 32), 1 / 32), GRID, PATCH)
means = distances.mean(axis=1)
print(f"uniform attention: {uniform:.1f} pixels; the heads: {means.min():.1f} to {means.max():.1f}")

# %% [markdown]
# If a head lies near that value, does it attend uniformly? Heads that are made by hand can tell.
# Beside the distance we compute over how many patches a row is spread: the exponential of its
# entropy, 1 for a single patch and 32 for uniform attention.

# %%
row, column = np.divmod(np.arange(32), 8)
apart = PATCH * np.hypot(row[:, None] - row, column[:, None] - column)  # pixels between patches
as_far = np.abs(apart - apart.mean(axis=1, keepdims=True)).argmin(axis=1)
near = np.exp(-((apart / PATCH) ** 2))
by_hand = {
    "itself": np.eye(32),
    "its neighbourhood": near / near.sum(axis=1, keepdims=True),
    "same place in the other digit": np.eye(32)[8 * row + (column + 4) % 8],
    "one patch, as far as uniform": np.eye(32)[as_far],
    "uniform": np.full((32, 32), 1 / 32),
}


# %%
def spread(weights):
    """Patches that a row is spread over, mean over the rows; rows sum to 1."""
    entropy = -(weights * np.log(np.maximum(weights, 1e-12))).sum(axis=-1)
    return np.exp(entropy).mean(axis=-1)


print("head made by hand               distance (pixels)   patches")
for name, weights in by_hand.items():
    distance = inspection.attention_distance(weights, GRID, PATCH)
    print(f"{name:<31} {distance:>17.1f} {spread(weights):>9.1f}")

# %% [markdown]
# The fourth head reads exactly one patch, and has the distance of uniform attention. So a **small**
# distance says something: that head is local, as nothing else can make the mean small. A distance
# **near uniform** only says that near patches are, on average, not preferred. The head may look
# everywhere, or sharply at something whose place varies. The spread tells the two apart. Here are
# the trained heads:

# %% caption="Patches that a row is spread over, by attention distance, for each head"
figure, panel = plt.subplots(figsize=(5.6, 3.8), layout="constrained")
shares = []
for block, weights in enumerate(inspection.attention_weights(model, many)):
    patches = weights[..., 1:, 1:]  # without the class token as query and as key
    kept = patches.sum(axis=-1, keepdims=True)
    shares.append(1 - kept.mean(axis=(0, 2, 3)))
    spreads = spread(patches / kept).mean(axis=0)
    panel.plot(means[block], spreads, "o^s"[block], label=f"block {block}")
for weights in by_hand.values():
    panel.plot(inspection.attention_distance(weights, GRID, PATCH), spread(weights), "kx")
panel.axvline(uniform, color="0.7", linewidth=1, label="as far as uniform")
panel.set(xlabel="mean attention distance (pixels)", ylabel="patches that a row is spread over")
panel.set(xlim=(-1, 18), ylim=(0, 34), title="Trained heads, and (x) heads by hand")
panel.grid(alpha=0.3)
panel.legend(loc="upper left")
plt.show()

# %% [markdown]
# Heads on the line but well below its upper end reach as far as uniform attention and yet choose.
#
# ## Why the rows must sum to one
#
# A row of $A$ sums to one *with* the class token. Without the division in the formula above, a head
# that gives the share $s$ of its attention to the class token has the distance $(1 - s)\,d$: it
# seems to look nearer, the more it looks there. We give two heads made by hand a class token:


# %% caption="How attention to the class token shortens the distance without the division"
def with_class_token(weights, share):
    """(32, 32) -> (33, 33): each row gives `share` to token 0."""
    rows = np.full((33, 33), 1 / 33)
    rows[1:, 0], rows[1:, 1:] = share, (1 - share) * weights
    return rows


figure, (left, right) = plt.subplots(1, 2, figsize=(9.4, 3.7), layout="constrained")
given = np.linspace(0, 0.95, 20)
for name, color in (("uniform", "C0"), ("its neighbourhood", "C1")):
    for kept, style in ((True, "-"), (False, "--")):
        rows = np.stack([with_class_token(by_hand[name], share) for share in given])
        d = inspection.attention_distance(rows, GRID, PATCH, renormalize=kept)
        label = name + (", sums to one" if kept else ", what is left")
        left.plot(given, d, style, color=color, label=label)
left.set(xlabel="share of attention to the class token", ylabel="distance (pixels)")
left.set(title="Heads made by hand", ylim=(0, 20))
left.legend(fontsize=7, ncols=2)
shortened = inspection.attention_distances(model, many, renormalize=False).mean(axis=1)
for block in range(3):
    right.plot(shares[block], shortened[block] / means[block], "o^s"[block], label=f"block {block}")
right.plot([0, max(map(max, shares))], [1, 1 - max(map(max, shares))], color="0.7", label="1 - s")
right.set(xlabel="share s of attention to the class token", ylabel="distance left / distance")
right.set(title="The trained heads")
right.legend(fontsize=8)
plt.show()

# %% [markdown]
# On the left, dashed: a head whose attention among patches never changes seems to become local. So
# do the trained heads on the right; they lie near the line $1 - s$, not on it, because patches that
# look far may give the class token another share than patches that look near.
#
# ## Click through it
#
# `python -m keras_vit explore model.keras image.png -o report.html` writes one page in which you
# point at a patch and see what it attends to in any block and head, without a network.
#
# ## Answer
#
# - A head's map shows what one token reads; rollout follows it back to the pixels. Whether either
#   tells *why* must be tested with numbers over many images, as with the larger digit.
# - Mean attention distance is an average over patches, so its weights must sum to one over patches:
#   the class token is left out and the rest divided by its sum. Else attention to the class token
#   passes for locality.
# - A head far below the uniform value is local; one at that value is not, and no more is known.
# - What the heads of this tiny model do says little about a ViT-B/16; it is measured the same way
#   there: `keras_vit.from_checkpoint(...)` instead of training.
#
# Read on: [docs/inspection.md](../docs/inspection.md) for relevance, filters and similarity of
# layers, `04_hybrids_and_bit` for what locality is worth, section 4.5 and appendix D of the paper.
