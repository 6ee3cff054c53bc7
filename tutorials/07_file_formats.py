# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Three file formats, one model: what is inside?
#
# Vision Transformers are published by Google as NumPy's npz, for timm as safetensors or a PyTorch
# state dict, and on Hugging Face as a folder. All hold the same numbers, under other names, turned,
# split or joined.
#
# Here one small model is written in all three formats and read again. At the end you will know how
# the formats differ, what a file does *not* say, and how `keras_vit` tells what it did with one.

# %%
import os

os.environ.setdefault("KERAS_BACKEND", "torch")  # or "tensorflow", or "jax"
import importlib.util
import pathlib
import tempfile
import warnings

import keras
import matplotlib.pyplot as plt
import numpy as np
from safetensors.numpy import load_file

import keras_vit

plt.rcParams["figure.dpi"] = 80

# %% [markdown]
# ## A model without zeros
#
# A fresh model would hide mistakes: its head and its class token are zero, so that all classes get
# the same answer, whatever was read wrongly. We give every variable random values instead, of a
# size that lets a signal pass.

# %%
SIZES = dict(patch_size=4, width=64, depth=2, num_heads=4, mlp_dim=128, num_classes=10)
model = keras_vit.VisionTransformer(image_size=16, channels=1, **SIZES)
rng = np.random.default_rng(0)

for variable in model.weights:
    size = 0.5 if len(variable.shape) == 1 else 1 / np.sqrt(np.prod(variable.shape[:-1]))
    variable.assign(rng.normal(size=variable.shape) * size + ("gamma" in variable.path))

digits = keras_vit.data.load("digits", image_size=16)
images = keras_vit.data.preprocess(digits.test_images[:64])


def logits_of(model):
    return keras.ops.convert_to_numpy(model(images))


logits = logits_of(model)
print(f"{model.count_params()} parameters; logits from {logits.min():.1f} to {logits.max():.1f}")

# %% [markdown]
# ## Write
#
# `save_weights` takes the format from the name: `.npz`, `.safetensors`, or none for a folder. What
# a format has no place for, it says in a warning, which we print.

# %%
temporary = tempfile.TemporaryDirectory()
folder = pathlib.Path(temporary.name)
PATHS = {
    "Google": folder / "google" / "model.npz",
    "timm": folder / "timm" / "model.safetensors",
    "Hugging Face": folder / "huggingface",
}
for path in PATHS.values():
    with warnings.catch_warnings(record=True) as lost:
        keras_vit.save_weights(model, path)
    for warning in lost:
        print(warning.message, end="\n\n")

for file in sorted(folder.rglob("*.*")):
    print(f"{file.relative_to(folder)!s:<42}{file.stat().st_size:>9} bytes")

# %% [markdown]
# The weights take as much room in each format. What differs is what stands beside them: for timm a
# `config.json` with the arguments of `timm.create_model`; for Hugging Face one for
# `ViTForImageClassification`, and another that says how images are prepared. Google's npz has
# arrays and nothing else.
#
# Our model takes images that were resized as Google's code does it, by TensorFlow. timm and Hugging
# Face resize by Pillow, so their files cannot say that; a reader of Google's npz takes TensorFlow's
# way without being told.
#
# ## Names and shapes
#
# These are the arrays of the first block, in `keras_vit` and in the three files.


# %%
def arrays_of(name, paths=PATHS):
    """The arrays of a file in one of the formats, by name."""
    if name == "Google":
        with np.load(paths[name]) as file:
            return dict(file)
    path = paths[name]
    return load_file(path / "model.safetensors" if path.is_dir() else path)


def show(title, arrays, prefix):
    chosen = sorted(name for name in arrays if name.startswith(prefix))
    print(f"\n{title}: {len(chosen)} of {len(arrays)} arrays begin with {prefix}")
    for name in chosen:
        print(f"    {name.removeprefix(prefix):<48}{arrays[name].shape}")


show("keras_vit", {v.path: keras.ops.convert_to_numpy(v) for v in model.weights}, "block_0/")
show("Google", arrays_of("Google"), "Transformer/encoderblock_0/")
show("timm", arrays_of("timm"), "blocks.0.")
show("Hugging Face", arrays_of("Hugging Face"), "vit.encoder.layer.0.")

# %% [markdown]
# Three things differ apart from the names.
#
# - Google keeps an axis for the heads: `query/kernel` is (width, heads, width of a head), as in
#   `keras_vit`. In the other two the heads stand side by side in one axis.
# - PyTorch's matrices are (out, in), Google's and Keras's (in, out).
# - timm has query, key and value in one matrix, `attn.qkv`, of three times the width.
#
# ## See the layout
#
# To see where each head ends up, we dye the weights: every number of one head of the queries gets
# one value, of the next head another, and so on through queries, keys and values. Then the model is
# written, and what is in the files drawn in the colour of the dye.

# %%
dyed = keras_vit.VisionTransformer(image_size=16, channels=1, **SIZES)
for number, name in enumerate(["query", "key", "value"]):
    kernel = getattr(dyed.get_layer("block_0").attention, name).kernel
    dye = 4 * number + np.arange(4)  # one value for each head
    kernel.assign(np.broadcast_to(dye[:, None], kernel.shape))

dyed_paths = {name: folder / "dyed" / path.relative_to(folder) for name, path in PATHS.items()}
for path in dyed_paths.values():
    keras_vit.save_weights(dyed, path)

# %% tags=["cover"] caption="Queries, keys and values as Google, timm and Hugging Face store them"
QKV = {
    "Google": "Transformer/encoderblock_0/MultiHeadDotProductAttention_1/{}/kernel",
    "timm": "blocks.0.attn.qkv.weight",
    "Hugging Face": "vit.encoder.layer.0.attention.attention.{}.weight",
}
colours = np.concatenate(
    [plt.get_cmap(c)(np.linspace(0.35, 0.85, 4)) for c in ("Blues", "Oranges", "Greens")]
)
figure = plt.figure(figsize=(9, 4.2))
grid = figure.add_gridspec(3, 3, width_ratios=[1, 1, 1])
for column, (title, pattern) in enumerate(QKV.items()):
    stored = arrays_of(title, dyed_paths)
    names = [pattern.format(n) for n in ("query", "key", "value")] if "{" in pattern else [pattern]
    for row, name in enumerate(names):
        ax = figure.add_subplot(grid[row, column] if len(names) == 3 else grid[:, column])
        array = stored[name]
        flat = array.reshape(len(array), -1).astype(int)  # Google's two axes of heads side by side
        ax.imshow(colours[flat], aspect="auto", interpolation="nearest")
        ax.set_ylabel(f"{len(flat)} rows", fontsize=8)
        ax.set(xticks=[], yticks=[], xlabel="x".join(map(str, array.shape)))
        ax.set_title(f"{title}: {name.split('_1/')[-1].split('attention.')[-1]}", fontsize=9)
figure.suptitle("Queries blue, keys orange, values green; a shade for each of 4 heads", fontsize=10)
plt.tight_layout()
plt.show()

# %% [markdown]
# In Google's arrays, a head is a group of columns; in Hugging Face's the same matrix is turned, and
# a head is a group of rows; timm puts the three turned matrices on top of each other. A reader that
# mistook rows for columns would find that every shape fits, here where the width is the same in
# both directions, and get nonsense. This is why a format needs more than names.
#
# ## Read
#
# `from_checkpoint` tells the format by the names of the arrays, never by the name of the file, and
# builds the model that they belong to.

# %%
read = {}
for name, path in PATHS.items():
    # An npz does not tell the size of the images, only that they have 16 patches.
    read[name] = keras_vit.from_checkpoint(path)
    difference = np.abs(logits_of(read[name]) - logits).max()
    print(f"{name:<14}largest difference of a logit {difference:.1e}")

# %% [markdown]
# The same function, to the rounding of float32 at most. Every model carries a report of what became
# of the file.

# %%
for name, one in read.items():
    print(f"--- {name}")
    print(str(one.load_report).replace(str(folder), "."))

# %% [markdown]
# Where arrays do not say something, the line *assumed* tells what was taken and why. The report is
# a value, too: `loaded`, `initial`, `resized`, `ignored`, `assumed` and `differs` are tuples to
# test.
#
# ## What a state dict does not say
#
# The same arrays as a bare PyTorch state dict, with no config beside them, are a file as they lie
# about in many places. How many heads share the 64 columns? No array tells. Published models have
# heads 64 wide, and so this file is read with a single head, unless we give the number.

# %%
if importlib.util.find_spec("torch"):
    import torch

    bare = folder / "bare" / "model.pth"
    bare.parent.mkdir()
    torch.save({name: torch.tensor(a) for name, a in arrays_of("timm").items()}, bare)

    for said in ({}, {"num_heads": 4, "gelu": "tanh"}):
        one = keras_vit.from_checkpoint(bare, **said)
        difference = np.abs(logits_of(one) - logits).max()
        print(f"\nsaid: {said or 'nothing'}; largest difference of a logit {difference:.1e}")
        print(str(one.load_report).replace(str(folder), "."))

# %% [markdown]
# Nothing fails in the first case: every array fits. Only the report tells what was assumed, so read
# it whenever a file comes without its config. In the second case the answer is right, and the
# report notes under *differs* that the GELU is not that of timm. (PyTorch files are opened with
# `weights_only=True`; nothing is ever unpickled.)
#
# ## A wrong file
#
# An incomplete file changes nothing. One array of the npz is left out here:

# %%
damaged = arrays_of("Google")
del damaged["Transformer/encoderblock_1/MlpBlock_3/Dense_0/bias"]
np.savez(folder / "damaged.npz", **damaged)

try:
    keras_vit.load_weights(model, folder / "damaged.npz")
except keras_vit.CheckpointError as error:
    print(str(error).replace(str(folder), "."))

unchanged = np.array_equal(logits_of(model), logits)
print(f"\nThe model computes what it did: {unchanged}")
temporary.cleanup()

# %% [markdown]
# ## Answer
#
# The three formats hold the same numbers under other names, turned, split by heads or joined. What
# they do not hold (the heads, the GELU, how images are prepared) stands in a config beside them, or
# nowhere, and is then assumed and reported. Loading is strict: all arrays are accounted for, or
# nothing changes.
#
# Published files are read by the same call, over the network:
# `keras_vit.from_checkpoint("hf://google/vit-base-patch16-224")` or
# `keras_vit.ViT_B16(weights="imagenet21k/ViT-B_16")`. The tests open what `save_weights` wrote in
# timm and transformers themselves, and compare logits.
#
# Read on: [docs/checkpoints.md](../docs/checkpoints.md) has every family that is read or written,
# what each decides, and the rules of loading. [02_fine_tuning](02_fine_tuning.ipynb) goes on from a
# checkpoint, [03_resolution](03_resolution.ipynb) changes the size of its images.
