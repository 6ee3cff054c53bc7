"""The Vision Transformer of the paper in NumPy, in float64, without anything of the library.

Dosovitskiy et al., "An Image is Worth 16x16 Words", 2021: Eq. 1 to 4 and appendix A's Eq. 5 to 8.
`weights` is a dict from the path of a variable, such as "block_0/attention/query/kernel", to an
array. T is the number of tokens, D the width, k the number of heads and D_h = D / k.
"""

import math

import numpy as np

EPSILON = 1e-6


def patches(images, size):
    """x -> x_p of section 3.1: (B, H, W, C) -> (B, N, P²·C), in reading order."""
    (rows_of_patch, columns_of_patch), channels = size, images.shape[3]
    rows, columns = images.shape[1] // rows_of_patch, images.shape[2] // columns_of_patch
    x = images.reshape(-1, rows, rows_of_patch, columns, columns_of_patch, channels)
    return np.einsum("byixjc->byxijc", x).reshape(
        -1, rows * columns, rows_of_patch * columns_of_patch * channels
    )


def layer_norm(x, gamma, beta, epsilon=EPSILON):
    """LN of Eq. 2 to 4 (Ba et al., 2016), over the width of each token."""
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return gamma * (x - mean) / np.sqrt(variance + epsilon) + beta


def gelu(x, kind="tanh"):
    """The non-linearity of the MLP (section 3.1): x Φ(x), or the approximation with a tanh."""
    if kind == "tanh":
        return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return x / 2 * (1 + np.vectorize(math.erf)(x / np.sqrt(2)))


def linear(weights, name, x, equation="...d,df->...f"):
    """x W + b, where a layer without bias has none."""
    return np.einsum(equation, x, weights[f"{name}/kernel"]) + weights.get(f"{name}/bias", 0.0)


def attention(weights, name, x, memory=None):
    """MSA(z) of Eq. 8; `memory` answers the queries of `x` where it is not `x` itself."""
    memory = x if memory is None else memory
    # [q, k, v] = z U_qkv (Eq. 5), of shape (B, T, k, D_h)
    q, k, v = (
        linear(weights, f"{name}/{part}", tokens, "btd,dkh->btkh")
        for part, tokens in (("query", x), ("key", memory), ("value", memory))
    )
    scores = np.einsum("btkh,bskh->bkts", q, k) / np.sqrt(q.shape[-1])
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    a = exponentials / exponentials.sum(axis=-1, keepdims=True)  # Eq. 6
    heads = np.einsum("bkts,bskh->btkh", a, v)  # Eq. 7
    return linear(weights, f"{name}/out", heads, "btkh,khd->btd")  # Eq. 8


def mlp(weights, name, x, kind="tanh"):
    """MLP of Eq. 3: two linear layers with a GELU between them."""
    return linear(weights, f"{name}/dense_2", gelu(linear(weights, f"{name}/dense_1", x), kind))


def norm_of(weights, name, x, epsilon):
    """LN with the gamma and beta of the layer `name`."""
    return layer_norm(x, weights[f"{name}/gamma"], weights[f"{name}/beta"], epsilon)


def block(weights, name, z, kind="tanh", epsilon=EPSILON):
    """z_l of z_{l-1}: Eq. 2 and Eq. 3."""
    z = attention(weights, f"{name}/attention", norm_of(weights, f"{name}/norm_1", z, epsilon)) + z
    return mlp(weights, f"{name}/mlp", norm_of(weights, f"{name}/norm_2", z, epsilon), kind) + z


def sincos_2d(rows, columns, width):
    """Fixed positions of Beyer et al., 2022: sin and cos of the column, then of the row."""
    frequencies = 10_000.0 ** -(np.arange(width // 4) / (width // 4 - 1))
    row, column = (grid.reshape(-1, 1) for grid in np.mgrid[:rows, :columns])
    angles = [place * frequencies for place in (column, row)]
    return np.concatenate([wave(a) for a in angles for wave in (np.sin, np.cos)], axis=1)


def embed(weights, images, size, position="learned_1d"):
    """z_0 = [x_class; x_p¹ E; ...; x_pᴺ E] + E_pos (Eq. 1); registers follow the class token."""
    x = linear(weights, "patch_encoder/projection", patches(images, size))
    names = ("patch_encoder/class_token", "patch_encoder/registers")
    learned = [np.repeat(weights[name], len(x), axis=0) for name in names if name in weights]
    z = np.concatenate([*learned, x], axis=1)
    if position == "learned_1d":
        return z + weights["patch_encoder/position/embedding"]
    if position == "sincos_2d":  # only patches have a place
        rows, columns = images.shape[1] // size[0], images.shape[2] // size[1]
        z[:, -rows * columns :] += sincos_2d(rows, columns, z.shape[-1])
    return z


def attention_pool(weights, name, z, kind="tanh", epsilon=EPSILON):
    """MAP (Zhai et al., 2022): a probe asks all tokens, an MLP with a residual follows."""
    probe = np.repeat(weights[f"{name}/probe"], len(z), axis=0)
    y = attention(weights, f"{name}/attention", probe, memory=z)
    return (y + mlp(weights, f"{name}/mlp", norm_of(weights, f"{name}/norm", y, epsilon), kind))[
        :, 0
    ]


def vision_transformer(
    weights,
    images,
    *,
    depth,
    num_heads,
    patch_size,
    pool="token",
    position="learned_1d",
    gelu="tanh",
    epsilon=EPSILON,
):
    """The logits, or the representation where `weights` has no head: Eq. 1 to 4.

    A class token, registers, biases of the projections, the hidden layer of the head and the head
    are there where `weights` has them.
    """
    weights = {path: np.asarray(array, "float64") for path, array in weights.items()}
    size = (patch_size, patch_size) if isinstance(patch_size, int) else patch_size
    z = embed(weights, np.asarray(images, "float64"), size, position)  # Eq. 1
    for i in range(depth):
        if weights[f"block_{i}/attention/query/kernel"].shape[1] != num_heads:
            raise ValueError(f"Block {i} does not have {num_heads} heads.")
        z = block(weights, f"block_{i}", z, gelu, epsilon)
    z = norm_of(weights, "norm", z, epsilon)
    if pool == "token":
        y = z[:, 0]  # Eq. 4
    elif pool == "mean":
        patch_tokens = images.shape[1] // size[0] * (images.shape[2] // size[1])
        y = z[:, -patch_tokens:].mean(axis=1)
    else:
        y = attention_pool(weights, "pool", z, gelu, epsilon)
    if "pre_logits/kernel" in weights:
        y = np.tanh(linear(weights, "pre_logits", y))
    return linear(weights, "head", y) if "head/kernel" in weights else y
