"""A small BiT, and the network of the paper in NumPy."""

import numpy as np

from keras_vit.models.bit import BiT


def tiny_bit(**options):
    """A small model: two units with 128 and 256 channels, three classes."""
    return BiT(**{"blocks": (1, 1), "width": 0.5, "num_classes": 3, "image_size": 16, **options})


def standardized(kernel, of_variance, epsilon):
    kernel = kernel - kernel.mean(axis=(0, 1, 2))
    variance = (kernel**2).mean(axis=(0, 1, 2))
    if of_variance:
        return kernel / np.sqrt(variance + epsilon)
    return kernel / (np.sqrt(variance) + epsilon)


def group_norm(x, gamma, beta, epsilon):
    groups = x.reshape(*x.shape[:3], 32, -1)
    groups = groups - groups.mean(axis=(1, 2, 4), keepdims=True)
    groups = groups / np.sqrt((groups**2).mean(axis=(1, 2, 4), keepdims=True) + epsilon)
    return groups.reshape(x.shape) * gamma + beta


def relu(x):
    return np.maximum(x, 0)


def convolution(x, kernel, stride=1):
    """With (side - 1) / 2 zeros around the image."""
    side = kernel.shape[0]
    pad = (side - 1) // 2
    x = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (side, side), axis=(1, 2))
    return np.einsum("bhwcij,ijco->bhwo", windows[:, ::stride, ::stride], kernel)


def bit_v2(weights, x, stages, epsilon=1e-10):
    """The paper's network with one unit per stage, in NumPy."""

    def conv(name, x, stride=1):
        return convolution(x, standardized(weights[f"{name}/kernel"], True, epsilon), stride)

    def norm(name, x):
        return relu(group_norm(x, weights[f"{name}/gamma"], weights[f"{name}/beta"], 1e-5))

    x = np.pad(conv("root/conv", x, 2), ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))
    x = windows[:, ::2, ::2].max(axis=(-2, -1))
    for stage in range(1, stages + 1):
        name, stride = f"stage_{stage}_unit_1", 1 if stage == 1 else 2
        y = norm(f"{name}/norm1", x)
        shortcut = conv(f"{name}/conv_proj", y, stride)
        y = conv(f"{name}/conv2", norm(f"{name}/norm2", conv(f"{name}/conv1", y)), stride)
        x = shortcut + conv(f"{name}/conv3", norm(f"{name}/norm3", y))
    features = norm("norm", x).mean(axis=(1, 2))
    return features @ weights["head/kernel"] + weights["head/bias"]
