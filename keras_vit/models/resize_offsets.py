"""Biases for offsets of patches (BEiT's relative positions) on another grid of patches."""

import numpy as np

from keras_vit.layers.resample import resize_grid


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

    Offset k moves to 1 + q + ... + q^(k - 1), where q is the largest for which the last offset
    stays within the new ones.
    """
    places = np.cumsum(_growth(old // 2, new // 2) ** np.arange(old // 2))
    places = np.concatenate([-places[::-1], [0], places])
    wanted = np.arange(new) - new // 2
    return np.stack([np.interp(wanted, places, row) for row in np.eye(old)], axis=1)


def _growth(count, end):
    """The q between 1.01 and 1.5 for which 1 + q + ... + q^(count - 1) is `end`, by bisection."""
    low, high = 1.01, 1.5
    while high - low > 1e-6:
        middle = (low + high) / 2
        if (1 - middle**count) / (1 - middle) > end:
            high = middle
        else:
            low = middle
    return middle  # the last one that was tried, as in the authors' code
