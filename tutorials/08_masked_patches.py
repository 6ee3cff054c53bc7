# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # What can a ViT learn from images without labels?
#
# Labels are expensive, images are not. BERT learns language by filling gaps in text; section 4.6 of
# the paper tries the same with images: hide patches, and let the model say what was there. Their
# ViT-B/16 gained 2 % on ImageNet over training from scratch that way, and stayed 4 % behind
# pre-training with labels.
#
# At the end you will have seen what is hidden and how, what the model is asked to say, and
# whether an encoder with this pre-training learns digits from a handful of labels better than a
# fresh one.

# %%
import os

os.environ.setdefault("KERAS_BACKEND", "torch")  # or "tensorflow", or "jax"
import keras
import matplotlib.pyplot as plt
import numpy as np

import keras_vit
from keras_vit import data, training

plt.rcParams["figure.dpi"] = 80
keras.utils.set_random_seed(0)
to_numpy = keras.ops.convert_to_numpy

# %% [markdown]
# ## Many images, few labels
#
# All training images of scikit-learn's digits, enlarged to 16 x 16 pixels, come without a label.
# Five of each class have one. The test images take part in neither.

# %%
digits = data.load("digits", image_size=16)
images, test_images = data.preprocess(digits.train_images), data.preprocess(digits.test_images)
labels, test_labels = digits.train_labels, digits.test_labels


def labelled(draw, per_class=5):
    """Which training images have a label: the same number of each class, drawn at random."""
    order = np.random.default_rng(draw).permutation(len(labels))
    return np.concatenate([order[labels[order] == k][:per_class] for k in range(10)])


print(f"{len(images)} images without labels, {len(labelled(0))} with, {len(test_images)} to test")

# %% [markdown]
# ## What is hidden
#
# Half of the patches of an image are *corrupted*, as appendix B.1.2 says: of these, 80 % become a
# learned [mask] embedding, 10 % the embedding of another patch of the image, and 10 % stay as they
# are, so that the model cannot trust a patch that looks innocent. This happens to the embeddings
# $\mathbf{x}_p\mathbf{E}$, between the projection of Eq. 1 and the addition of $\mathbf{E}_{pos}$:
# the model knows *where* something is missing.
#
# To see it, we give the layer that does it patches of pixels instead of embeddings. Its [mask] is
# then a patch of (nearly) zeros, which is grey.

# %%
from keras_vit.training.masked_patches import CorruptPatches

cut = keras_vit.layers.Patches(4)
patches = cut(images[:5])  # (5, 16, 16): 16 patches of 4 x 4 pixels
corrupted, positions = CorruptPatches(0.5)(patches)
pictures = to_numpy(cut.inverse(corrupted, 16))
chosen = np.full((5, 16), -1.0)  # black
np.put_along_axis(chosen, to_numpy(positions), 1.0, axis=1)

# %% caption="Five digits, the patches that are corrupted, and what the encoder gets"
figure, panels = plt.subplots(3, 5, figsize=(7.5, 4.8), layout="constrained")
marks = chosen.reshape(5, 4, 4).repeat(4, axis=1).repeat(4, axis=2)
rows = (images[:5, ..., 0], marks, pictures[..., 0])
names = ("image", "corrupted patches (white)", "what the encoder gets")
for line, pictures_of_row, name in zip(panels, rows, names):
    line[0].set_title(name, loc="left", fontsize=9)
    for panel, picture in zip(line, pictures_of_row):
        panel.imshow(picture, cmap="gray", vmin=-1, vmax=1, extent=(0, 16, 16, 0))
        panel.set(xticks=range(0, 17, 4), yticks=range(0, 17, 4))
        panel.tick_params(labelsize=6)
plt.show()

# %% [markdown]
# Where the second row is white and the third not grey, a patch was replaced by another of the same
# image, or stayed.
#
# ## What the model is asked
#
# To say the pixels of a hidden patch exactly is more than anyone could. The authors tried three
# questions:
#
# 1. `"mean_color"`: the mean colour of the patch, 3 bits per channel: one of $2^{3\cdot3} = 512$
#    colours, a classification. For our grey images it is one of $2^3 = 8$.
# 2. `"colors_4x4"`: the same for each of 4 x 4 cells of the patch.
# 3. `"pixels"`: every value of the patch, by its squared distance.
#
# They found that all three work, the third slightly worse, and kept the first. Drawn as pictures,
# this is what each asks about the whole image:

# %% caption="One image, and what the three targets ask of its patches"
from keras_vit.training.masked_patches import Target

figure, panels = plt.subplots(1, 4, figsize=(8.6, 2.4), layout="constrained")
panels[0].imshow(images[0, ..., 0], cmap="gray")
panels[0].set_title("image", fontsize=9)
for panel, name in zip(panels[1:], ("mean_color", "colors_4x4", "pixels")):
    asked = to_numpy(Target(name, (4, 4), 1).values(patches, (-1, 1)))[0]  # (16 patches, values)
    cells = np.broadcast_to(asked, (16, 16)).reshape(4, 4, 4, 4).transpose(0, 2, 1, 3)
    drawn = panel.imshow(cells.reshape(16, 16), cmap="gray")
    panel.set_title(f'"{name}": {asked.size} values', fontsize=9)
    figure.colorbar(drawn, ax=panel, shrink=0.7)
for panel in panels:
    panel.set(xticks=[], yticks=[])
plt.show()

# %% [markdown]
# ## Pre-training
#
# `MaskedPatchModel` wraps an encoder, corrupts its patches and predicts the target of the corrupted
# ones alone, with a linear layer on their output tokens. It brings its loss along.

# %%
encoder = keras_vit.VisionTransformer(
    image_size=16, patch_size=4, channels=1, num_classes=0,
    width=48, depth=3, num_heads=4, pool="mean",
)  # fmt: skip
masked = training.MaskedPatchModel(encoder, target="mean_color", seed=0)
fresh = masked.classifier(num_classes=10)  # a copy of the encoder before it has learned anything
EPOCHS, BATCH = 20, 64
steps = EPOCHS * -(-len(images) // BATCH)
masked.compile(training.adamw(3e-3, steps, warmup_steps=steps // 10))
before = masked.evaluate(test_images, batch_size=359, verbose=0, return_dict=True)
masked.fit(images, batch_size=BATCH, epochs=EPOCHS, verbose=0)
after = masked.evaluate(test_images, batch_size=359, verbose=0, return_dict=True)

# %% [markdown]
# A loss alone says little. The prediction layer begins at zero, so that the first loss is $\ln 8
# = 2.08$. Compare it with a model that does not look at the image and only knows how frequent
# each colour is: its loss is the entropy of those frequencies, and its accuracy that of always
# saying the most frequent colour.

# %%
found = masked(test_images)
targets = to_numpy(found["targets"])[..., 0]  # (images, 8 corrupted patches)
share = np.bincount(targets.ravel(), minlength=8) / targets.size
entropy = -(share[share > 0] * np.log(share[share > 0])).sum()
print("on test images           loss   accuracy")
print(f"before               {before['loss']:>8.2f} {before['accuracy']:>10.1%}")
print(f"frequencies alone    {entropy:>8.2f} {share.max():>10.1%}")
print(f"after {steps} steps      {after['loss']:>8.2f} {after['accuracy']:>10.1%}")

# %% [markdown]
# Whatever is better than the frequencies, the model knows from the patches around the gap. Here are
# its guesses for the corrupted patches of four test images, beside the true mean colours; the
# others are left in red.

# %% caption="True and predicted mean colours of hidden patches; red ones are visible"
guesses = to_numpy(found["predictions"])[:, :, 0].argmax(axis=-1)
places = to_numpy(found["positions"])
figure, panels = plt.subplots(2, 4, figsize=(7, 3.8), layout="constrained")
colors = plt.get_cmap("gray").with_extremes(bad="firebrick")
for line, values, name in zip(panels, (targets, guesses), ("true mean colour", "predicted")):
    line[0].set_title(name, loc="left", fontsize=9)
    for panel, value, place in zip(line, values, places):
        grid = np.full(16, np.nan)
        grid[place] = value
        drawn = panel.imshow(grid.reshape(4, 4), cmap=colors, vmin=0, vmax=7)
        panel.set(xticks=[], yticks=[])
figure.colorbar(drawn, ax=panels, label="mean colour, 0 to 7", shrink=0.8)
plt.show()

# %% [markdown]
# ## Fine-tuning on few labels
#
# `classifier` makes a ViT with a copy of the encoder's weights and a zero head. From these
# weights, and from those of the fresh copy made before, the same model now learns from 50
# labelled images, with the same optimizer and as many steps. There are two learning rates, as the
# better one need not be the same for both, and three draws of the 50 images, because which they
# are matters a lot.

# %%
model = masked.classifier(num_classes=10)
beginnings = {"from scratch": fresh.get_weights(), "pre-trained": model.get_weights()}
optimizer = training.AdamW(weight_decay=0.05, global_clipnorm=1.0)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer, loss, metrics=["accuracy"])
optimizer.build(model.trainable_variables)
untouched = [to_numpy(v) for v in optimizer.variables]


def accuracy_after(beginning, rate, draw, steps=100):
    """Test accuracy of the model after fine-tuning on one draw of labelled images."""
    model.set_weights(beginnings[beginning])
    for variable, value in zip(optimizer.variables, untouched):
        variable.assign(value)
    optimizer.learning_rate = rate
    few = labelled(draw)
    model.fit(images[few], labels[few], batch_size=50, epochs=steps, verbose=0)
    return model.evaluate(test_images, test_labels, batch_size=359, verbose=0)[1]


# %%
RATES, DRAWS = (1e-3, 3e-3), 3
accuracy = {
    name: np.array([[accuracy_after(name, r, draw) for draw in range(DRAWS)] for r in RATES])
    for name in beginnings
}
for name, values in accuracy.items():
    for rate, of_rate in zip(RATES, values):
        print(f"{name:<13} learning rate {rate:g}:", *(f"{a:.1%}" for a in of_rate))

# %% caption="Test accuracy after 50 labelled images, from scratch and pre-trained"
figure, panel = plt.subplots(figsize=(5.2, 3.4), layout="constrained")
for i, (name, values) in enumerate(accuracy.items()):
    for rate, of_rate in zip(RATES, values):
        place = RATES.index(rate) + 0.16 * (2 * i - 1)
        panel.bar(place, 100 * of_rate.mean(), 0.3, color=f"C{i}", alpha=0.5)
        panel.plot([place] * DRAWS, 100 * of_rate, "o", color=f"C{i}")
    panel.bar(0, 0, color=f"C{i}", alpha=0.5, label=name)
panel.set_xticks(range(len(RATES)), [f"{rate:g}" for rate in RATES])
panel.set(xlabel="learning rate", ylabel="test accuracy (%)", ylim=(0, 100))
panel.set_title("Fine-tuned on 50 labelled images (dots: three draws)")
panel.legend(frameon=False)
plt.show()
best = {name: 100 * values.mean(axis=1).max() for name, values in accuracy.items()}
print("at its better rate:", ", ".join(f"{name} {value:.1f} %" for name, value in best.items()))

# %% [markdown]
# Compare colours within each rate. The pre-trained encoder leads: it has not seen one label more,
# but 1438 images, and to fill their gaps it had to learn which strokes go together and where. The
# fresh one has to learn that from 50 images, together with the classes.
#
# ## How good is that?
#
# Better than nothing is a low bar. A method that learns nothing at all is to call a test image what
# its nearest labelled image is called, by the distance of the pixels:


# %%
def nearest_neighbour(draw):
    """Test accuracy of the label of the nearest of the labelled images."""
    few = labelled(draw)
    apart = ((test_images[:, None] - images[few][None]) ** 2).sum(axis=(2, 3, 4))
    return np.mean(labels[few][apart.argmin(axis=1)] == test_labels)


print("nearest neighbour of pixels:", *(f"{nearest_neighbour(draw):.1%}" for draw in range(DRAWS)))

# %% [markdown]
# If that is more than either of the two, remember it: digits that are centred, upright and small
# are a case where comparing pixels works, and a ViT has to be taught everything, from few images.
# Photographs are no such case.
#
# ## Answer
#
# - The model learns from images alone to say what a hidden patch looks like, better than the
#   frequencies of colours would let it: it uses the patches around.
# - With few labels such an encoder is a better beginning than random weights, here as in the
#   paper, and here as there by some points, not by a revolution.
# - It is no replacement for labels: the authors' model stayed 4 % behind pre-training with them.
#   Later methods close that gap (He et al., 2022, hide 75 % of the patches and predict pixels with
#   a decoder of its own).
# - What was shown is small: one encoder, one pre-training run, three draws of 50 images. More steps
#   of pre-training, another target or more labels move the figures.
#   [docs/self_supervision.md](../docs/self_supervision.md) has the authors' settings, and
#   `studies/masked.py` is an experiment with more runs.
#
# Read on: section 4.6 and appendix B.1.2 of the paper; `02_fine_tuning` for models that were
# pre-trained with labels; `05_attention` for what the heads of an encoder look at.
