"""Weights of one size from those of another: positions, patch kernels, kernels that see colours."""

import re

import numpy as np

from keras_vit.checks import pair
from keras_vit.layers.resample import patch_matrix, resize_grid, resize_matrix

PROJECTION = "patch_encoder/projection/kernel"
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
            has the shape (1, learned_tokens + rows * columns, width); biases for offsets of patches
            are resampled by `resize_offsets`.
        old_grid, new_grid: (rows, columns).
        learned_tokens: tokens before those of the patches (class token, registers), which stay.
        method: a rule of `keras_vit.layers.resize_matrix`, such as `"align_corners"`.

    Returns:
        Dict of the arrays that changed.

    Raises:
        ValueError: an unknown method, or positions that have no grid (those of a sequence).
    """
    if tuple(old_grid) == tuple(new_grid):
        return {}
    changed = {}
    for name, array in arrays.items():
        match = re.fullmatch(POSITIONS, name)
        if match is None:
            continue
        if match[1] == "table":
            changed[name] = resize_offsets(array, old_grid, new_grid, method)
        elif match[1] == "embedding":
            tokens = learned_tokens + old_grid[0] * old_grid[1]
            if array.ndim != 3 or array.shape[:2] != (1, tokens):
                raise ValueError(
                    f"{name!r} must have the shape (1, {tokens}, width) for {learned_tokens} "
                    f"learned tokens and a grid of {old_grid}. Received: shape {array.shape}."
                )
            first, patches = array[:, :learned_tokens], array[0, learned_tokens:]
            patches = resize_grid(patches, old_grid, new_grid, method)[None]
            changed[name] = np.concatenate([first, patches.astype(array.dtype)], axis=1)
        else:
            axis = 0 if match[1] == "rows" else 1
            matrix = resize_matrix(old_grid[axis], new_grid[axis], method)
            changed[name] = (matrix @ array).astype(array.dtype)
    return changed


def resize_offsets(table, old_grid, new_grid, method):
    """Biases of attention for offsets of patches, resampled from one grid to another.

    With `"bilinear"` offsets are resampled as pixels are, the rule of Hugging Face. Any other
    method stands for the authors' rule (Bao et al., 2022): the old offsets are moved so far apart,
    by distances that grow geometrically from 1, that they reach the new grid's ends, and what lies
    between them is linear, as in timm.

    Shapes: (offsets of the old grid + C, heads) -> (offsets of the new grid + C, heads), where the
    last C are those of a class token, which stay.

    Raises:
        ValueError: the table does not belong to the old grid.
    """
    old, new = ([2 * side - 1 for side in grid] for grid in (old_grid, new_grid))
    offsets = old[0] * old[1]
    if table.ndim != 2 or len(table) not in (offsets, offsets + 3):
        raise ValueError(
            f"The biases of a grid of {tuple(old_grid)} have {offsets} rows, or 3 more with a "
            f"class token. Received: shape {table.shape}."
        )
    if method == "bilinear":
        resized = resize_grid(table[:offsets], old, new, method)
    else:
        rows, columns = (_geometric_matrix(o, n) for o, n in zip(old, new))
        grid = np.asarray(table[:offsets], "float64").reshape(*old, -1)
        resized = np.einsum("ro,cp,oph->rch", rows, columns, grid, optimize=True)
        resized = resized.reshape(new[0] * new[1], -1)
    return np.concatenate([resized.astype(table.dtype), table[offsets:]])


def _geometric_matrix(old, new):
    """The matrix of shape (new, old) by which the authors of BEiT resample offsets along an axis.

    Offset k moves to 1 + q + ... + q^(k - 1), where q, found by bisection between 1.01 and 1.5, is
    the largest for which the last offset stays within the new ones.
    """
    low, high = 1.01, 1.5
    while high - low > 1e-6:
        q = (low + high) / 2
        low, high = (low, q) if (1 - q ** (old // 2)) / (1 - q) > new // 2 else (q, high)
    places = np.cumsum(q ** np.arange(old // 2))
    places = np.concatenate([-places[::-1], [0], places])
    wanted = np.arange(new) - new // 2
    return np.stack([np.interp(wanted, places, row) for row in np.eye(old)], axis=1)


def resize_patches(
    kernel: np.ndarray, old: tuple[int, int], new: tuple[int, int], method: str = "bicubic"
) -> np.ndarray:
    """Patch kernels for patches of another size: FlexiViT's pseudo-inverse resize.

    The new kernel w' is the one for which the new patches' tokens are the old ones' as well as can
    be: w' = (Rᵀ)⁺ w, where R resizes a patch from the old size to the new (Beyer et al., 2023).

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
