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

# %%
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
BATCH, BUDGET = 50, 8e9
steps = {name: round(BUDGET / (BATCH * cost)) for name, cost in costs.items()}
print("model    parameters  multiply-adds per image   steps")
for name, model in models.items():
    print(f"{name:<8} {model.count_params():>10,} {costs[name]:>24,} {steps[name]:>7}")

# %% [markdown]
# ## Few images, more images
#
# Each model starts from the same weights three times and sees its first 50, 250 or 1400 images
# again and again until the budget is spent: what differs is how many *different* images it sees,
# not how long it learns. Optimizer, learning rate and schedule are the same for all.


# %%
def prepare(name):
    """Compiles a model; returns its beginning: the values of model and optimizer."""
    model, count = models[name], steps[name]
    optimizer = training.adamw(3e-3, count, warmup_steps=count // 10, weight_decay=0.05)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    optimizer.build(model.trainable_variables)
    return [keras.ops.convert_to_numpy(v) for v in model.variables + optimizer.variables]


def accuracy_after(name, beginning, count):
    """Test accuracy after training on the first `count` images."""
    model = models[name]
    for variable, value in zip(model.variables + model.optimizer.variables, beginning):
        variable.assign(value)
    epochs = steps[name] * BATCH // count
    model.fit(images[:count], labels[:count], batch_size=BATCH, epochs=epochs, verbose=0)
    return model.evaluate(test_images, test_labels, batch_size=359, verbose=0)[1]


# %%
COUNTS = (50, 250, 1400)
accuracy = {}
for name in models:
    beginning = prepare(name)
    accuracy[name] = [accuracy_after(name, beginning, count) for count in COUNTS]
    print(f"{name:<8}", *(f"{count}: {a:.1%}  " for count, a in zip(COUNTS, accuracy[name])))

# %% [markdown]
# The bars in the picture are the standard error of an accuracy $p$ measured on 359 images,
# $\sqrt{p(1-p)/359}$. They do not contain the chance in the 50 images that were drawn or in the
# initial weights.

# %%
figure, panel = plt.subplots(figsize=(5.6, 3.8), layout="constrained")
for (name, values), marker in zip(accuracy.items(), "os^"):
    p = np.array(values)
    panel.errorbar(COUNTS, 100 * p, 100 * np.sqrt(p * (1 - p) / 359), marker=marker, label=name)
panel.set(xscale="log", xlabel="training images", ylabel="test accuracy (%)")
panel.set_xticks(COUNTS, COUNTS, minor=False)
panel.set_title("The same compute, more images")
panel.grid(alpha=0.3)
panel.legend()
plt.show()
gaps = [accuracy["BiT"][i] - accuracy["ViT"][i] for i in (0, -1)]
print("BiT's lead over ViT: {:.1%} with 50 images, {:.1%} with 1400".format(*gaps))

# %% [markdown]
# ## The bias itself
#
# Accuracy is an indirect witness. What a convolution is told can be asked about directly: the models,
# trained on all 1400 images, have seen digits in the middle only. What if the test digits are moved
# to the right? A convolution finds the same strokes there, and BiT's mean over all places hardly
# cares where they were found. To a ViT a moved stroke is a new patch at another position.

# %%
def moved(images, pixels):
    """The images moved to the right, black where nothing comes from."""
    padded = np.pad(images, ((0, 0), (0, 0), (pixels, 0), (0, 0)), constant_values=-1)
    return padded[:, :, : images.shape[2]]


figure, panel = plt.subplots(figsize=(5.6, 3.6), layout="constrained")
shifts = range(6)
for (name, model), marker in zip(models.items(), "os^"):
    results = [
        model.evaluate(moved(test_images, s), test_labels, batch_size=359, verbose=0)[1]
        for s in shifts
    ]
    panel.plot(shifts, 100 * np.array(results), marker=marker, label=name)
panel.set(xlabel="digit moved by (pixels)", ylabel="test accuracy (%)", ylim=(0, 100))
panel.set_title("Trained on digits in the middle")
panel.grid(alpha=0.3)
panel.legend()
plt.show()
