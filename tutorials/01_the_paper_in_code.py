# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # What does a Vision Transformer compute?
#
# The paper [An Image is Worth 16x16 Words](https://arxiv.org/abs/2010.11929) says it in four
# equations, and in four more in its appendix A. Here one image goes through all eight, twice: by
# hand, in a few lines of `keras.ops` that read like the formulas, and through the layers of
# `keras_vit`. After each step the two results are compared.
#
# At the end you will know what each symbol is in code, which shape it has, and in which file of
# `keras_vit` its equation stands.

# %%
import os

os.environ.setdefault("KERAS_BACKEND", "torch")  # or "tensorflow", or "jax"
import keras
import matplotlib.pyplot as plt
import numpy as np
from keras import ops

import keras_vit
from keras_vit import data

plt.rcParams["figure.dpi"] = 80
keras.utils.set_random_seed(0)

# %% [markdown]
# ## A model and an image
#
# A fresh model would hide mistakes: its class token, its biases and its head are zero. So we
# first train a very small one, on scikit-learn's handwritten digits, enlarged to 32 x 32 pixels.
# It has every part of the paper's model: 16 patches of 8 x 8 pixels, a class token, two blocks
# with four heads, and a linear head.

# %%
digits = data.load("digits", image_size=32, channels=3)
train_images, test_images = map(data.preprocess, (digits.train_images, digits.test_images))
model = keras_vit.VisionTransformer(
    image_size=32, patch_size=8, num_classes=10, width=64, depth=2, num_heads=4, mlp_dim=128
)
model.compile(
    optimizer=keras.optimizers.AdamW(2e-3, weight_decay=0.05),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
model.fit(train_images, digits.train_labels, batch_size=64, epochs=12, verbose=0)
right = model.predict(test_images, verbose=0).argmax(axis=1) == digits.test_labels
print(f"accuracy on {len(right)} test images: {right.mean():.1%}")

# %% [markdown]
# We follow one image, `x`, of height $H$, width $W$ and $C$ colours: the first three that the model
# recognises. The paper writes its equations for one image, and so do we; the layers take batches,
# here of one. `w` holds all weights of the model by name.

# %%
number = np.flatnonzero(right & (digits.test_labels == 3))[0]
x = ops.convert_to_tensor(test_images[number])
w = {variable.path: ops.convert_to_tensor(variable) for variable in model.weights}
H, W, C = x.shape
P, D = 8, 64  # the side of a patch, and the width of a token
K = 4  # heads
D_h = D // K
N = H * W // P**2  # patches
print(f"H={H}  W={W}  C={C}  P={P}  N={N}  D={D}  heads={K}  D_h={D_h}", *list(w)[:6], sep="\n")

# %% [markdown]
# One function compares what we compute with what the library computes, and fails if any value
# differs by more than rounding: one part in 100,000 of the largest.


# %%
def compare(what, by_hand, by_library, file):
    by_hand, by_library = ops.convert_to_numpy(by_hand), ops.convert_to_numpy(by_library)
    size = max(1.0, np.abs(by_library).max())
    np.testing.assert_allclose(by_hand, by_library, rtol=0, atol=1e-5 * size)
    difference = np.abs(by_hand - by_library).max()
    print(f"{what:<32} shape {by_hand.shape!s:<12} largest difference {difference:.1e}   {file}")


# %% [markdown]
# ## The image as a sequence of patches (section 3.1)
#
# A Transformer takes a sequence of vectors. So the image $x \in R^{H \times W \times C}$ is cut
# into $N = HW / P^2$ squares, in reading order, and each is written out as one vector:
# $x_p \in R^{N \times (P^2 \cdot C)}$. Nothing is computed; the numbers only change places.

# %%
rows, columns = H // P, W // P
x_p = ops.reshape(x, (rows, P, columns, P, C))  # height = (row, pixel row), width likewise
x_p = ops.transpose(x_p, (0, 2, 1, 3, 4))  # (row, column, pixel row, pixel column, colour)
x_p = ops.reshape(x_p, (N, P * P * C))

patches = model.get_layer("patches")(x[None])
compare("x_p, the patches", x_p, patches[0], "keras_vit/layers/patches.py")

# %% tags=["cover"] caption="A digit of 32 x 32 pixels, cut into sixteen patches of 8 x 8 pixels"
figure = plt.figure(figsize=(9.5, 3), layout="constrained")
whole, cut = figure.subfigures(1, 2, width_ratios=(1, 2))
axes = whole.subplots()
axes.imshow((ops.convert_to_numpy(x) + 1) / 2)
axes.set(xticks=range(0, W + 1, P), yticks=range(0, H + 1, P), title="x, in pixels")
axes.set(xlim=(-0.5, W - 0.5), ylim=(H - 0.5, -0.5))
for line in range(P, H, P):
    axes.axhline(line - 0.5, color="white")
    axes.axvline(line - 0.5, color="white")
squares = (ops.convert_to_numpy(x_p).reshape(N, P, P, C) + 1) / 2
for i, axes in enumerate(cut.subplots(2, N // 2).flat):
    axes.imshow(squares[i])
    axes.set(xticks=[], yticks=[], title=i + 1)
cut.suptitle(f"x_p: patches 1 to {N}, each a vector of P²·C = {P * P * C} numbers")
plt.show()

# %% [markdown]
# To the Transformer these are sixteen vectors like any others: where they lay is lost.
#
# ## Equation 1: patches become tokens
#
# $$z_0 = [x_{class};\ x_p^1 E;\ x_p^2 E;\ \dots;\ x_p^N E] + E_{pos},
# \qquad E \in R^{(P^2 \cdot C) \times D},\ E_{pos} \in R^{(N + 1) \times D} \tag{1}$$
#
# One matrix $E$ maps every patch to a token of width $D$. A learned vector, the class token, is
# put in front; its last state will be the answer. Then each of the $N + 1$ places has a learned
# vector added to it, which is all that the model knows of the order. (The authors' code adds a
# bias to $E$, as to every linear map; the paper leaves the biases out.)

# %%
E, E_bias = w["patch_encoder/projection/kernel"], w["patch_encoder/projection/bias"]
x_class = w["patch_encoder/class_token"][0]
E_pos = w["patch_encoder/position/embedding"][0]

z_0 = ops.concatenate([x_class, x_p @ E + E_bias], axis=0) + E_pos

tokens = model.get_layer("patch_encoder")(patches)
compare("Eq. 1: z_0", z_0, tokens[0], "keras_vit/layers/patch_encoder.py")

# %% [markdown]
# ## Appendix A: self-attention
#
# Equation 2 will need multi-head self-attention, MSA. Its input is $LN(z_0)$: every token is first
# normalised by itself, to mean 0 and variance 1, then scaled and shifted by learned numbers.


# %%
def layer_norm(z, name):
    mean = ops.mean(z, axis=-1, keepdims=True)
    variance = ops.mean((z - mean) ** 2, axis=-1, keepdims=True)
    return (z - mean) / ops.sqrt(variance + 1e-6) * w[f"{name}/gamma"] + w[f"{name}/beta"]


z = layer_norm(z_0, "block_0/norm_1")

block = model.get_layer("block_0")
normalised = block.norm_1(tokens)
compare("LN(z_0)", z, normalised[0], "keras_vit/layers/norm.py")

# %% [markdown]
# Each head makes three vectors of every token: a query $q$, a key $k$ and a value $v$.
#
# $$[q, k, v] = z\,U_{qkv} \qquad U_{qkv} \in R^{D \times 3 D_h} \tag{5}$$
#
# In the files of the authors, and so here, $U_{qkv}$ of all heads lies in three kernels of shape
# (width, heads, head width).


# %%
def queries_keys_values(z, block, head):
    """Eq. 5, for one head: three arrays of shape (N + 1, D_h)."""
    U_qkv = [w[f"{block}/attention/{name}/kernel"][:, head] for name in ("query", "key", "value")]
    biases = [w[f"{block}/attention/{name}/bias"][head] for name in ("query", "key", "value")]
    qkv = z @ ops.concatenate(U_qkv, axis=1) + ops.concatenate(biases, axis=0)
    return ops.split(qkv, 3, axis=1)


q, k, v = queries_keys_values(z, "block_0", head=0)
by_library = block.attention.key(normalised)  # (batch, tokens, heads, head width)
compare("Eq. 5: k of head 0", k, by_library[0, :, 0], "keras_vit/layers/attention.py")

# %% [markdown]
# Every query is compared with every key. Row $i$ of the result sums to 1, and says how token $i$
# divides its attention among all tokens.
#
# $$A = softmax\left(q k^\top / \sqrt{D_h}\right) \qquad A \in R^{(N+1) \times (N+1)} \tag{6}$$

# %%
A = ops.softmax(q @ ops.transpose(k) / D_h**0.5, axis=-1)

by_library = block.attention_scores(tokens)  # (batch, heads, tokens, tokens)
compare("Eq. 6: A of head 0", A, by_library[0, 0], "keras_vit/layers/attention.py")
print("sum of each row:", ops.convert_to_numpy(ops.sum(A, axis=-1)).round(6))

# %% [markdown]
# The result of a head is the mean of the values, weighted by $A$. The heads work side by side,
# each with its own $U_{qkv}$; their results are joined and mapped back to the width $D$.
#
# $$SA(z) = A\,v \tag{7}$$
# $$MSA(z) = [SA_1(z);\ SA_2(z);\ \dots;\ SA_k(z)]\,U_{msa}
# \qquad U_{msa} \in R^{k \cdot D_h \times D} \tag{8}$$


# %%
def msa(z, block):
    """Eq. 8: multi-head self-attention, (N + 1, D) -> (N + 1, D)."""
    heads = []
    for head in range(K):
        q, k, v = queries_keys_values(z, block, head)  # Eq. 5
        A = ops.softmax(q @ ops.transpose(k) / D_h**0.5, axis=-1)  # Eq. 6
        heads.append(A @ v)  # Eq. 7
    U_msa = ops.reshape(w[f"{block}/attention/out/kernel"], (K * D_h, D))
    return ops.concatenate(heads, axis=1) @ U_msa + w[f"{block}/attention/out/bias"]


attended = block.attention(normalised)
compare("Eq. 8: MSA(LN(z_0))", msa(z, "block_0"), attended[0], "keras_vit/layers/attention.py")

# %% [markdown]
# The library computes all heads at once. The numbers are the same.
#
# ## Equations 2 and 3: one block
#
# $$z'_\ell = MSA(LN(z_{\ell-1})) + z_{\ell-1} \tag{2}$$
# $$z_\ell = MLP(LN(z'_\ell)) + z'_\ell \tag{3}$$
#
# Attention carries something from token to token; the MLP, two linear maps with a GELU between
# them, then works on each token by itself. Both only *add* to what is there.


# %%
def mlp(z, block):
    hidden = z @ w[f"{block}/mlp/dense_1/kernel"] + w[f"{block}/mlp/dense_1/bias"]
    hidden = ops.gelu(hidden, approximate=True)  # the authors' code approximates GELU by tanh
    return hidden @ w[f"{block}/mlp/dense_2/kernel"] + w[f"{block}/mlp/dense_2/bias"]


def transformer_block(z, block):
    z_prime = msa(layer_norm(z, f"{block}/norm_1"), block) + z  # Eq. 2
    return mlp(layer_norm(z_prime, f"{block}/norm_2"), block) + z_prime  # Eq. 3


file = "keras_vit/layers/transformer_block.py"
z_prime = msa(z, "block_0") + z_0
compare("Eq. 2: z'_1", z_prime, (attended + tokens)[0], file)
z_1 = transformer_block(z_0, "block_0")
compare("Eq. 3: z_1", z_1, block(tokens)[0], file)

# %% [markdown]
# The Transformer is a chain of such blocks, $\ell = 1 \dots L$: here 2, in ViT-B 12. (Python counts
# from 0, so they are `block_0` and `block_1`.)

# %%
z_2 = transformer_block(z_1, "block_1")

by_library = model.get_layer("block_1")(block(tokens))
compare("Eq. 2 and 3 again: z_2 = z_L", z_2, by_library[0], file)

# %% [markdown]
# ## Equation 4: the answer
#
# $$y = LN(z_L^0) \tag{4}$$
#
# Of the $N + 1$ tokens only the class token, number 0, is read; it has collected from the others
# what the answer needs. One linear map, the head, makes of it a logit for each class.

# %%
y = layer_norm(z_2[0], "norm")
logits = ops.matmul(y, w["head/kernel"]) + w["head/bias"]

by_library = model.get_layer("norm")(model.get_layer("pool")(by_library))
compare("Eq. 4: y", y, by_library[0], "keras_vit/layers/head.py")
compare("logits", logits, model.get_layer("head")(by_library)[0], "keras_vit/layers/head.py")
compare("the whole model, Figure 1", logits, model(x[None])[0], "keras_vit/models/vit.py")

# %%
probabilities = ops.convert_to_numpy(ops.softmax(logits))
print(f"most probable class: {probabilities.argmax()}, with {probabilities.max():.1%}")

# %% [markdown]
# ## Answer
#
# A Vision Transformer cuts an image into squares, maps each to a token by one matrix (Eq. 1), lets
# the tokens exchange (Eq. 2) and digest (Eq. 3) information a few times, and reads the answer from
# the token that belongs to no square (Eq. 4). Written with `keras.ops`, that is about thirty
# lines, and they agree with the library to rounding in float32.
#
# | paper | by hand | file |
# |---|---|---|
# | patches, section 3.1 | `reshape`, `transpose`, `reshape` | `keras_vit/layers/patches.py` |
# | Eq. 1 | `concatenate([x_class, x_p @ E]) + E_pos` | `keras_vit/layers/patch_encoder.py` |
# | Eq. 5 to 8, appendix A | `queries_keys_values`, `msa` | `keras_vit/layers/attention.py` |
# | Eq. 2 and 3 | `mlp`, `transformer_block` | `keras_vit/layers/transformer_block.py` |
# | Eq. 4 and the head | `layer_norm(z_2[0]) @ ...` | `keras_vit/layers/head.py` |
# | Figure 1 | all of it | `keras_vit/models/vit.py` |
#
# Read on in `02_fine_tuning`, which gives such a model a new task, in `05_attention`, which looks
# at $A$ more closely, and in `docs/inspection.md`.
