# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # What does a convolution know that a ViT has to learn?
#
# A ResNet is told two things about images before it sees one: pixels that belong together lie close
# together, and a pattern means the same wherever it stands. The paper calls this an *inductive
# bias*. A ViT is told nearly nothing of the kind and has to find it in the data. A *hybrid* lies
# between the two: a small ResNet makes a feature map, and a ViT reads that instead of pixels.
#
# Here all three learn from few and from many images **on the same compute budget**, which is the
# question of the paper's Figures 3 to 5. At the end you will know how to build the three, how a
# budget is made equal, and what the comparison says, and does not say, about inductive bias.

# %%
import os

os.environ.setdefault("KERAS_BACKEND", "torch")  # or "tensorflow", or "jax"
import math

import keras
import matplotlib.pyplot as plt
import numpy as np

import keras_vit
from keras_vit import data, training

plt.rcParams["figure.dpi"] = 80
keras.utils.set_random_seed(0)

# %% [markdown]
# ## The images
#
# Scikit-learn's handwritten digits, 8 x 8 pixels, enlarged to 16 x 16. The training images are
# shuffled once; "few images" will mean the first of them.

# %%
digits = data.load("digits", image_size=16)
order = np.random.default_rng(0).permutation(len(digits.train_images))
images, labels = data.preprocess(digits.train_images[order]), digits.train_labels[order]
test_images, test_labels = data.preprocess(digits.test_images), digits.test_labels
print(digits)

# %% caption="Eight training images and their labels"
figure, panels = plt.subplots(1, 8, figsize=(9, 1.5), layout="constrained")
for panel, image, label in zip(panels, images, labels):
    panel.imshow(image[..., 0], cmap="gray")
    panel.set_title(f"a {label}", fontsize=9)
    panel.set_axis_off()
plt.show()

# %% [markdown]
# ## Three models
#
# - The **ViT** cuts the image into 4 x 4 patches of 4 x 4 pixels (Eq. 1).
# - The **hybrid** begins with the root of a ResNet: a 7 x 7 convolution and max pooling, each with
#   stride 2. That leaves 4 x 4 places, and each place is a "patch" of size 1 (section 3.1).
#   `stem=()` is the root alone; R50+ViT-B/16 has `stem=(3, 4, 9)`.
# - **BiT** is a ResNet throughout: the same root, two bottleneck units, the mean over all places.
#   Group norm and standardised weights stand where older ResNets have batch norm.
#
# All three see 4 x 4 places after a reduction by 4, and a fresh head is zero in each.

# %%
shared = dict(image_size=16, channels=1, num_classes=10)
encoder = dict(width=48, depth=2, num_heads=4)
models = {
    "ViT": keras_vit.VisionTransformer(patch_size=4, **encoder, **shared),
    "hybrid": keras_vit.VisionTransformer(
        patch_size=1, stem=(), stem_width=0.5, **encoder, **shared
    ),
    "BiT": keras_vit.BiT(blocks=(2,), width=0.5, **shared),
}

# %% [markdown]
# ## One budget
#
# Models are compared at the same number of multiply-adds, the paper's measure of compute. Almost
# all of them are products with kernels, and a kernel is used once at every place of its output: at
# each pixel of a feature map, at each token. Attention adds the two products $qk^\top$ and $Av$,
# which have no kernel: $2N^2D$ for $N$ tokens of width $D$.


# %%
def multiply_adds(model, image):
    """Multiply-adds of one forward pass for one image."""
    outputs = keras.Model(model.input, [layer.output for layer in model.layers])(image[None])
    total = 0
    for layer, output in zip(model.layers, outputs):
        places = math.prod(output.shape[1:-1])
        places *= 4 if layer.name == "root" else 1  # its pooling leaves a quarter
        kernels = [w for w in layer.weights if w.path.endswith("kernel")]
        total += places * sum(math.prod(kernel.shape) for kernel in kernels)
        if layer.name.startswith("block"):
            total += 2 * places**2 * output.shape[-1]
    return total


costs = {name: multiply_adds(model, images[0]) for name, model in models.items()}

# %% [markdown]
# A model that costs less for an image may look at more of them. So the budget is a number of
# multiply-adds, and each model gets as many steps as the budget pays for. (The backward pass costs
# about twice the forward pass in all three, so that counting the forward pass is enough.)

# %%
BATCH, BUDGET, PARTS = 50, 12e9, 8
part = {name: round(BUDGET / (PARTS * BATCH * cost)) for name, cost in costs.items()}  # in steps
print("model    parameters  multiply-adds per image   steps")
for name, model in models.items():
    steps = PARTS * part[name]
    print(f"{name:<8} {model.count_params():>10,} {costs[name]:>24,} {steps:>7}")

# %% [markdown]
# ## Few images, more images
#
# Each model spends the budget twice, from the same initial weights: once on the first 50 images,
# again and again, once on 1400. What differs is how many *different* images it sees, not how long
# it learns. After every eighth of the budget it is tested. Optimizer, learning rate and schedule
# are the same for all three.


# %%
def prepare(name):
    """Compiles a model; returns its beginning: the values of model and optimizer."""
    model, steps = models[name], PARTS * part[name]
    optimizer = training.adamw(3e-3, steps, warmup_steps=steps // 10, weight_decay=0.05)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    optimizer.build(model.trainable_variables)
    return [keras.ops.convert_to_numpy(v) for v in model.variables + optimizer.variables]


def test_accuracy(model, images=test_images):
    return model.evaluate(images, test_labels, batch_size=len(images), verbose=0)[1]


def curve(name, beginning, count):
    """Test accuracy after each part of the budget, on the first `count` training images."""
    model, rng, accuracies = models[name], np.random.default_rng(0), []
    for variable, value in zip(model.variables + model.optimizer.variables, beginning):
        variable.assign(value)
    length = part[name] * BATCH
    passes = [rng.permutation(count) for _ in range(-(-PARTS * length // count))]
    for rows in np.concatenate(passes)[: PARTS * length].reshape(PARTS, length):
        model.fit(images[rows], labels[rows], batch_size=BATCH, shuffle=False, verbose=0)
        accuracies.append(test_accuracy(model))
    return np.array(accuracies)


# %%
COUNTS = (50, 1400)
accuracy = {}
for name in models:
    beginning = prepare(name)
    for count in COUNTS:
        accuracy[name, count] = curve(name, beginning, count)
    print(f"{name:<8}", *(f"{accuracy[name, n][-1]:.1%} with {n}  " for n in COUNTS))

# %% [markdown]
# The bars in the picture are the standard error of an accuracy $p$ that was measured on 359 images,
# $\sqrt{p(1-p)/359}$. The chance in the choice of the 50 images and in the initial weights comes on
# top of it.

# %% caption="Test accuracy by multiply-adds spent, with 50 and with 1,400 training images"
figure, panels = plt.subplots(1, 2, figsize=(9, 3.7), sharey=True, layout="constrained")
spent = BUDGET / 1e9 * np.arange(1, PARTS + 1) / PARTS
for panel, count in zip(panels, COUNTS):
    for name, marker in zip(models, "os^"):
        p = accuracy[name, count]
        error = 100 * np.sqrt(p * (1 - p) / len(test_images))
        panel.errorbar(spent, 100 * p, error, marker=marker, markersize=4, label=name)
    panel.set(title=f"{count} training images", xlabel="multiply-adds spent (thousand millions)")
    panel.grid(alpha=0.3)
panels[0].set(ylabel="test accuracy (%)", ylim=(0, 100))
panels[1].legend(loc="lower right")
plt.show()

# %% [markdown]
# Read each panel from left to right.
#
# - **Few images.** All three soon know their 50 images by heart, and more compute no longer helps.
#   Where a curve flattens out is decided by what the model assumes about images it has not seen,
#   and there the convolutions pay.
# - **More images.** Now compute does help, and the models with convolutions arrive first. The ViT
#   has to learn from examples what they were given: it starts far behind, and the distance shrinks
#   as the budget is spent.

# %%
print("lead over the ViT, in points     50 images   1400 images")
for name in ("hybrid", "BiT"):
    for i, when in ((1, "a quarter"), (PARTS - 1, "all")):
        leads = [100 * (accuracy[name, n][i] - accuracy["ViT", n][i]) for n in COUNTS]
        print(f"{name:<7} after {when:<9} of it {leads[0]:>15.1f} {leads[1]:>13.1f}")

# %% [markdown]
# ## The bias itself
#
# Accuracy is an indirect witness. What a convolution is told can be asked about directly: the
# models, trained on all 1400 images, have seen digits in the middle only. What if the test digits
# are moved to the right? A convolution finds the same strokes there, and BiT's mean over all places
# hardly cares where they were found. To a ViT a moved stroke is a new patch at another position.


# %% caption="Test accuracy of the three models when the digits are moved to the right"
def moved(images, pixels):
    """The images moved to the right, black where nothing comes from."""
    padded = np.pad(images, ((0, 0), (0, 0), (pixels, 0), (0, 0)), constant_values=-1)
    return padded[:, :, : images.shape[2]]


figure, panel = plt.subplots(figsize=(5.6, 3.6), layout="constrained")
shifts = range(5)
for (name, model), marker in zip(models.items(), "os^"):
    results = [100 * test_accuracy(model, moved(test_images, pixels)) for pixels in shifts]
    panel.plot(shifts, results, marker=marker, label=name)
panel.set(xlabel="digit moved by (pixels)", ylabel="test accuracy (%)", ylim=(0, 100))
panel.set_xticks(shifts)
panel.set_title("Trained on digits in the middle")
panel.grid(alpha=0.3)
panel.legend()
plt.show()

# %% [markdown]
# None of them was told or shown that a moved digit is the same digit. BiT keeps most of what it
# knows for a move by one or two pixels; the ViT loses much of it at once. The hybrid lies between
# the two: its root sees strokes wherever they are, but its position embedding says where to expect
# them. BiT fails in the end, too: strides of 2 are no exact symmetry, its zero padding tells it
# where the border is, and at 4 pixels the right edge cuts strokes off.
#
# ## What so small a set can show, and what it cannot
#
# The paper's Figure 5 has the same axes as the picture above, compute and accuracy, and its Figures
# 3 and 4 change the number of images. There, too, BiT leads with few images and hybrids help small
# models. But there the order *turns round*: pre-trained on the 1.3 million images of ImageNet, BiT
# is ahead; with the larger sets, up to 300 million images, ViT overtakes it, and reaches the same
# accuracy with two to four times less compute. The gain of hybrids vanishes for large models.
# Nothing of this can be seen here: 1400 digits are few images, by any standard.
#
# Nor is this a fair race in other ways. It is one seed, one learning rate for all, and one budget.
# Multiply-adds are not seconds: a convolution of 32 channels keeps a processor less busy than a
# matrix product. And upright digits of one size suit a convolution well.
#
# ## Answer
#
# - Locality and the same filter everywhere are knowledge that a ResNet is built with; a ViT has to
#   take it from data. The fewer images there are, the more it is worth.
# - On one compute budget, with few images, the models with convolutions lead. A convolutional root
#   in front of a ViT costs little and gives it a good part of that lead.
# - That a ViT overtakes is a matter of scale: of images and of compute, far beyond a notebook.
#
# Read on: sections 3.1 and 4.3 to 4.4 and appendix D.2 of the paper; `keras_vit.R50_ViT_B16` and
# `keras_vit.BiT_R50x1` for the published models (`docs/models.md`, "The variants");
# `studies/compute.py` for the operations of the paper's own systems; `05_attention` for how
# locality is measured in a ViT.
