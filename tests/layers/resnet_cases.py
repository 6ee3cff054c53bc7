"""The ResNet layers by their definitions in NumPy, for the harness of every layer."""

import numpy as np

from keras_vit import layers
from keras_vit.layers.resnet import NUMERICS
from keras_vit.models.bit import VERSIONS
from tests.definitions import below
from tests.harness import Case


def padded(x, size, strides, explicit, value=0.0):
    """What "same" means: as many outputs as strides fit, the odd pixel of padding at the end."""
    pads = [(0, 0)]
    for side in x.shape[1:3]:
        total = max((-(-side // strides) - 1) * strides + size - side, 0)
        pads.append(((size - 1) // 2,) * 2 if explicit else (total // 2, total - total // 2))
    return np.pad(x, (*pads, (0, 0)), constant_values=value)


def windows(x, size, strides):
    """Every pixel of the window, in turn: its place in it, and all its positions."""
    rows, columns = ((side - size) // strides + 1 for side in x.shape[1:3])
    for i in range(size):
        for j in range(size):
            bottom, right = i + strides * (rows - 1) + 1, j + strides * (columns - 1) + 1
            yield i, j, x[:, i:bottom:strides, j:right:strides]


def convolution(x, kernel, strides, explicit, numerics):
    facts = NUMERICS[numerics]
    kernel = kernel - kernel.mean(axis=(0, 1, 2))
    if facts.epsilon_inside_root:
        kernel = kernel / np.sqrt(kernel.var(axis=(0, 1, 2)) + facts.weight_epsilon)
    else:
        kernel = kernel / (kernel.std(axis=(0, 1, 2)) + facts.weight_epsilon)
    x = padded(x, len(kernel), strides, explicit)
    return sum(part @ kernel[i, j] for i, j, part in windows(x, len(kernel), strides))


def group_norm(weights, x, epsilon):
    groups = x.reshape(*x.shape[:3], 32, -1)
    mean, variance = (f(groups, axis=(1, 2, 4), keepdims=True) for f in (np.mean, np.var))
    groups = (groups - mean) / np.sqrt(variance + epsilon)
    return groups.reshape(x.shape) * weights["gamma"] + weights["beta"]


def max_pool(x, explicit, value):
    x = padded(x, 3, 2, explicit, value)
    return np.max([part for _, _, part in windows(x, 3, 2)], axis=0)


def relu(x):
    return np.maximum(x, 0)


def root(version, numerics):
    facts = NUMERICS[numerics]

    def define(w, x):
        x = convolution(x, w["conv/kernel"], 2, version == "v2", numerics)
        if version == "v1":
            x = relu(group_norm(below(w, "norm"), x, facts.norm_epsilon))
            return max_pool(x, False, -np.inf)
        return max_pool(x, True, facts.pool_padding)

    return define


def bottleneck(strides, version, numerics):
    explicit, epsilon = version == "v2", NUMERICS[numerics].norm_epsilon

    def define(w, x):
        def conv(name, x, strides=1):
            return convolution(x, w[f"{name}/kernel"], strides, explicit, numerics)

        def norm(name, x):
            return group_norm(below(w, name), x, epsilon)

        projects = "conv_proj/kernel" in w
        if version == "v1":
            y = relu(norm("norm1", conv("conv1", x)))
            y = norm("norm3", conv("conv3", relu(norm("norm2", conv("conv2", y, strides)))))
            return relu(y + (norm("norm_proj", conv("conv_proj", x, strides)) if projects else x))
        y = relu(norm("norm1", x))
        shortcut = conv("conv_proj", y, strides) if projects else x
        y = conv("conv2", relu(norm("norm2", conv("conv1", y))), strides)
        return shortcut + conv("conv3", relu(norm("norm3", y)))

    return define


def norms(*names):
    return tuple(f"{name}/{part}" for name in names for part in ("gamma", "beta"))


def kernels(*names):
    return tuple(f"{name}/kernel" for name in names)


UNIT = (*kernels("conv1", "conv2", "conv3"), *norms("norm1", "norm2", "norm3"))
MAP = {"x": (2, 5, 4, 128)}

CASES = [
    Case(
        f"StdConv2D_{numerics}",
        layers.StdConv2D,
        {"filters": 4, "kernel_size": 3, "strides": 2, "numerics": numerics, **explicit},
        lambda w, x, n=numerics, e=bool(explicit): convolution(x, w["kernel"], 2, e, n),
        ("kernel",),
        {"x": (2, 5, 6, 3)},
    )
    for numerics, explicit in (("google", {}), ("timm", {}), ("bit", {"explicit_padding": True}))
]
CASES += [
    Case(
        "GroupNorm",
        layers.GroupNorm,
        {"epsilon": 1e-3},
        lambda w, x: group_norm(w, x, 1e-3),
        ("gamma", "beta"),
        {"x": (2, 3, 2, 64)},
    )
]
CASES += [
    Case(
        f"Root_{version}_{numerics}",
        VERSIONS[version].Root,
        {"filters": 32, "numerics": numerics},
        root(version, numerics),
        ("conv/kernel", *(norms("norm") if version == "v1" else ())),
        {"x": (2, 9, 12, 3)},
    )
    for version, numerics in (("v1", "google"), ("v1", "timm"), ("v2", "bit"), ("v2", "bit_paper"))
]
CASES += [
    Case(
        f"Bottleneck_{version}_{numerics}_{strides}",
        VERSIONS[version].Bottleneck,
        {"filters": 32, "strides": strides, "numerics": numerics},
        bottleneck(strides, version, numerics),
        UNIT
        + (kernels("conv_proj") if strides > 1 else ())
        + (norms("norm_proj") if strides > 1 and version == "v1" else ()),
        MAP,
    )
    for version, numerics in (("v1", "google"), ("v2", "bit"))
    for strides in (1, 2)
]
