# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Can a model see larger images than it was trained on?
#
# Training is cheaper on small images, and many models are better on large ones. So the paper
# pre-trains at 224 pixels and fine-tunes at 384 or 512 (section 3.2). The patches stay 16 pixels
# wide, so there are more of them, and the Transformer does not mind: all its weights but one work
# on any number of tokens. The exception is the position embedding.
#
# At the end you will know what happens to it, what that is worth before any training, and how much
# a little fine-tuning at the new size brings.

# %%
import os

os.environ.setdefault("KERAS_BACKEND", "torch")  # or "tensorflow", or "jax"
import keras
import matplotlib.pyplot as plt
import numpy as np
from keras import ops

import keras_vit
from keras_vit import data, recipes, training

plt.rcParams["figure.dpi"] = 80
keras.utils.set_random_seed(0)

# %% [markdown]
# ## A model for small images
#
# Scikit-learn's handwritten digits at 16 x 16 pixels and patches of 4 x 4: a grid of 4 x 4 patches,
# 16 tokens and the class token.

# %%
SMALL, LARGE = 16, 24
digits = data.load("digits", image_size=SMALL)
architecture = {"patch_size": 4, "channels": 1, "num_classes": 10}
architecture |= {"width": 64, "depth": 3, "num_heads": 4}
small = keras_vit.VisionTransformer(image_size=SMALL, **architecture)


def fit(model, images, epochs, learning_rate):
    """Trains on images of any size, with small random rotations, and a cosine to zero."""
    recipe = recipes.get("digits").replace(image_size=images.shape[1])
    batches = data.pipeline((images, digits.train_labels), recipe)
    steps = epochs * len(batches)
    schedule = training.WarmupCosine(learning_rate, steps, warmup_steps=steps // 10)
    model.compile(
        optimizer=training.AdamW(schedule, weight_decay=0.1, global_clipnorm=1.0),
        loss=recipe.make_loss(),
    )
    model.fit(batches, epochs=epochs, verbose=0)


def accuracy(model, images):
    logits = model.predict(data.preprocess(images), batch_size=len(images), verbose=0)
    return np.mean(logits.argmax(axis=1) == digits.test_labels)


fit(small, digits.train_images, epochs=20, learning_rate=2e-3)
print(f"{SMALL} px: {accuracy(small, digits.test_images):.1%} of the test images are right")

# %% [markdown]
# ## What a larger image changes
#
# The same images at 24 x 24 pixels, enlarged with `keras.ops.image.resize`, make a grid of 6 x 6
# patches: 36 tokens instead of 16, each of which shows a smaller part of the digit than before.


# %% caption="The same digit at 16 pixels, in 4 x 4 patches, and at 24 pixels, in 6 x 6"
def enlarge(images):
    larger = ops.image.resize(images.astype("float32") / 255, (LARGE, LARGE))
    return np.clip(ops.convert_to_numpy(larger), 0, 1)


train_large, test_large = enlarge(digits.train_images), enlarge(digits.test_images)
figure, axes = plt.subplots(1, 2, figsize=(5.5, 2.8), layout="constrained")
for axis, image, size in zip(axes, (digits.test_images[0], test_large[0]), (SMALL, LARGE)):
    axis.imshow(image, cmap="gray")
    axis.set(xticks=range(0, size, 4), yticks=range(0, size, 4), xlabel="pixels")
    axis.set_title(f"{size} px: {size // 4} x {size // 4} patches")
    for line in range(4, size, 4):
        axis.axhline(line - 0.5, color="tab:orange", linewidth=1)
        axis.axvline(line - 0.5, color="tab:orange", linewidth=1)
plt.show()

# %% [markdown]
# `keras_vit.resize` copies the model for this size. Which weights have another shape?

# %%
large = keras_vit.resize(small, image_size=LARGE)
for before, after in zip(small.weights, large.weights):
    if before.shape != after.shape:
        print(f"{before.path}: {tuple(before.shape)} -> {tuple(after.shape)}")

# %% [markdown]
# The position embedding alone: a vector for the class token, which stays, and one for each patch.
# Those of the patches lie on a grid as the patches do, and the paper interpolates them there,
# "according to their location in the original image". The authors' rule is linear between
# neighbours, and the four corners stay what they are. By hand, along rows and then columns:

# %%
old, new = SMALL // 4, LARGE // 4
places = np.linspace(0, old - 1, new)  # where the new rows lie among the old ones
weights = np.maximum(1 - np.abs(places[:, None] - np.arange(old)), 0)  # (new, old)


def embedding(model):
    """E_pos of a model's patches, in their rows and columns."""
    table = ops.convert_to_numpy(model.get_layer("patch_encoder").position.embedding)[0]
    return table[1:].reshape(*model.grid, -1)  # without the class token


by_hand = np.einsum("ro,cp,opd->rcd", weights, weights, embedding(small))
print(weights.round(2))
print(f"largest difference to the library: {np.abs(by_hand - embedding(large)).max():.1e}")

# %% [markdown]
# (`keras.ops.image.resize` would be another rule: its corners move inwards. Other libraries have
# still other rules, and this library keeps to the rule of the checkpoint's family, see
# `docs/checkpoints.md`.)
#
# The embedding has 64 numbers for each place; its three largest principal components show where it
# varies most. Above the 4 x 4 that were trained, below the 6 x 6 that were interpolated.

# %% caption="Components of the positions: learned at 16 px above, interpolated below"
centre = embedding(small).reshape(-1, 64).mean(axis=0)
_, _, components = np.linalg.svd(embedding(small).reshape(-1, 64) - centre, full_matrices=False)

figure, axes = plt.subplots(2, 3, figsize=(7, 4.6), layout="constrained")
for row, (model, size) in enumerate(((small, SMALL), (large, LARGE))):
    projected = (embedding(model) - centre) @ components[:3].T
    limit = np.abs((embedding(small) - centre) @ components[:3].T).max()
    for i, axis in enumerate(axes[row]):
        drawn = axis.imshow(projected[..., i], vmin=-limit, vmax=limit, cmap="RdBu")
        axis.set(title=f"{size} px, component {i + 1}", xlabel="patch column", ylabel="patch row")
        axis.label_outer()
figure.colorbar(drawn, ax=axes.ravel().tolist(), label="position embedding, projected")
plt.show()

# %% [markdown]
# ## Before any training at the new size
#
# The large model has seen no large image yet. To tell what the interpolated positions are worth we
# also try it with the same vectors in a random order, so that each patch is told a wrong place.

# %%
found = {
    f"{SMALL} px, as trained": accuracy(small, digits.test_images),
    f"{LARGE} px, right after": accuracy(large, test_large),
}
variable = large.get_layer("patch_encoder").position.embedding
interpolated = ops.convert_to_numpy(variable)
order = 1 + np.random.default_rng(0).permutation(new * new)
variable.assign(interpolated[:, [0, *order]])
found[f"{LARGE} px, places mixed up"] = accuracy(large, test_large)
variable.assign(interpolated)
for name, value in found.items():
    print(f"{name:<24} {value:.1%}")

# %% [markdown]
# ## A little fine-tuning
#
# Now six passes through the enlarged images. To see what the small model's training was worth, we
# give a fresh model of the large size the same six passes and nothing else.

# %%
fit(large, train_large, epochs=6, learning_rate=1e-3)
found[f"{LARGE} px, fine-tuned"] = accuracy(large, test_large)

fresh = keras_vit.VisionTransformer(image_size=LARGE, **architecture)
fit(fresh, train_large, epochs=6, learning_rate=1e-3)
found[f"{LARGE} px, from scratch"] = accuracy(fresh, test_large)

for name, value in found.items():
    print(f"{name:<24} {value:.1%}")

# %% tags=["cover"] caption="Test accuracy at 16 px, and at 24 px before and after fine-tuning"
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
colors = ["tab:blue" if name.startswith(str(SMALL)) else "tab:orange" for name in found]
bars = axes.barh(list(found), [100 * value for value in found.values()], color=colors)
axes.bar_label(bars, fmt="%.1f", padding=3)
axes.invert_yaxis()
axes.set(xlim=(0, 110), xlabel="accuracy on test images (%)", title="Before and after the change")
plt.show()

# %% [markdown]
# ## Answer
#
# A model can see larger images at once: interpolated positions still say where a patch lies, and
# the accuracy falls, but not to what it is with the places mixed up. What it has to learn again is
# that strokes are wider than before and patches hold less of them; a few passes are enough, far
# fewer than a model from scratch needs.
#
# Do not expect these digits to be read *better* at 24 pixels. They were scanned at 8 x 8, and
# enlarging shows nothing new. Photographs do have more to show, and there the paper's fine-tuning
# at higher resolution gains accuracy, at the cost of more tokens: from 224 to 384 pixels 2.9 times
# as many.
#
# With published weights the same happens inside one call:
#
# ```python
# model = keras_vit.ViT_B16(num_classes=10, image_size=384, weights="imagenet21k/ViT-B_16")
# print(model.load_report)  # says which embedding was resized, from which grid, by which rule
# ```
#
# `keras_vit.resize(model, variable_size=True)` makes a model that interpolates anew for every size
# of image. Read on: `docs/checkpoints.md`, "Another resolution", for the rules of interpolation and
# for images that are not square; section 3.2 of the paper; `05_attention` for what the positions
# and the attention of a model have learned.
