"""Weights resized: position embeddings, patch kernels, and kernels for other channels than RGB."""

import re

import numpy as np

from keras_vit.checks import pair
from keras_vit.layers.extensions.patches import patch_matrix
from keras_vit.layers.extensions.position import resize_offsets
from keras_vit.layers.resample import resize_grid, resize_matrix

PROJECTION = "patch_encoder/projection/kernel"
# FlexiViT's rule for positions -> its rule for patches; other families have timm's, "bicubic".
PATCH_METHODS = {"bilinear_antialias": "bilinear"}
POSITIONS = r"(?:patch_encoder/)?position(?:_\d+)?/(embedding|rows|columns|table)"


def resize_positions(
    arrays: dict[str, np.ndarray],
    old_grid: tuple[int, int],
    new_grid: tuple[int, int],
    learned_tokens: int,
    method: str,
) -> dict[str, np.ndarray]:
    """Position embeddings resampled from one grid of patches to another.

    Args:
        arrays: dict from canonical name to array; only position embeddings are looked at. A table
            has the shape (1, learned_tokens + rows * columns, width).
        old_grid, new_grid: (rows, columns).
        learned_tokens: tokens before those of the patches (class token, registers), which stay.
        method: a rule of `keras_vit.layers.resize_matrix`, such as `"align_corners"`.

    Returns:
        Dict of the arrays that changed.

    Raises:
        ValueError: an unknown method, or positions that have no grid (those of a sequence).
    """
    changed = {}
    if tuple(old_grid) == tuple(new_grid):
        return changed
    for name, array in arrays.items():
        match = re.fullmatch(POSITIONS, name)
        part = match and match[1]
        if part == "embedding":
            tokens = learned_tokens + old_grid[0] * old_grid[1]
            if array.ndim != 3 or array.shape[:2] != (1, tokens):
                raise ValueError(
                    f"{name!r} must have the shape (1, {tokens}, width) for {learned_tokens} "
                    f"learned tokens and a grid of {old_grid}. Received: shape {array.shape}."
                )
            first, patches = array[:, :learned_tokens], array[0, learned_tokens:]
            patches = resize_grid(patches, old_grid, new_grid, method)[None]
            changed[name] = np.concatenate([first, patches.astype(array.dtype)], axis=1)
        elif part == "table":
            changed[name] = resize_offsets(array, old_grid, new_grid, method)
        elif part:
            axis = ("rows", "columns").index(part)
            matrix = resize_matrix(old_grid[axis], new_grid[axis], method)
            changed[name] = (matrix @ array).astype(array.dtype)
    return changed


def resize_patches(
    kernel: np.ndarray, old: tuple[int, int], new: tuple[int, int], method: str = "bicubic"
) -> np.ndarray:
    """Patch kernels for patches of another size: FlexiViT's pseudo-inverse resize.

    The new kernel w' minimises the difference between the tokens of the resized patches and those
    of the original ones: w' = (Rᵀ)⁺ w, where the matrix R resizes a patch from the old size to the
    new (Beyer et al., 2023).

    Shapes: (old P²·C, width) -> (new P²·C, width).

    Args:
        kernel: canonical patch kernel.
        old, new: (height, width) of the patches.
        method: how a patch is resized, as in `keras_vit.layers.resize_matrix`.

    Raises:
        ValueError: the kernel does not belong to patches of size `old`.
    """
    old, new = pair(old, "old"), pair(new, "new")
    if kernel.ndim != 2 or kernel.shape[0] % (old[0] * old[1]):
        raise ValueError(
            f"A kernel for patches of {old} pixels has a multiple of {old[0] * old[1]} rows. "
            f"Received: shape {kernel.shape}."
        )
    if old == new:
        return kernel
    rows, columns = (patch_matrix(o, n, method) for o, n in zip(old, new))
    grid = np.asarray(kernel, "float64").reshape(*old, -1, kernel.shape[1])
    resized = np.einsum("ro,cp,opkd->rckd", rows, columns, grid, optimize=True)
    return resized.reshape(-1, kernel.shape[1]).astype(kernel.dtype)


def adapt_channels(kernel: np.ndarray, channels: int) -> np.ndarray:
    """Kernels that were trained on RGB for images of another number of channels, by timm's rule.

    One channel is all three colours at once: their kernels add up. Any other number of channels has
    the kernels of red, green and blue in turn, times 3 / channels.

    Shapes: (..., 3, units) -> (..., channels, units).
    """
    kernel = kernel.astype(np.result_type(kernel.dtype, "float32"), copy=False)
    if channels == 1:
        return kernel.sum(axis=-2, keepdims=True)
    return kernel[..., np.arange(channels) % 3, :] * (3 / channels)
