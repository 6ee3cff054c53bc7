"""Resampling on a grid: the matrices that turn `old` samples into `new` ones along one axis.

Every rule for resizing position embeddings is linear and separable, so that a grid is resized by
one matrix for its rows and one for its columns.
"""

import numpy as np
from keras import ops

from keras_vit.checks import check_choice

METHODS = ("align_corners", "bilinear", "bicubic", "bicubic_no_antialias", "scipy_zoom")


def resize_matrix(old, new, method):
    """The float64 NumPy matrix of shape (new, old) that resamples `old` values to `new`.

    Args:
        old, new: numbers of samples.
        method: where the new samples lie and how the old ones are weighted:
            `"align_corners"`: the first and last samples stay where they are, linear in between.
            The authors' rule (google-research/vision_transformer, `interpolate_posembed`).
            `"scipy_zoom"`: the same with the fault of the routine that the authors call: at some
            sizes rounding puts the last sample outside the grid, where it becomes zero.
            `"bilinear"`: half-pixel centres, linear, no antialiasing.
            `"bicubic"`: half-pixel centres, cubic with a = -0.5, widened when shrinking
            (antialias), as in timm and DINOv2 with registers.
            `"bicubic_no_antialias"`: half-pixel centres, cubic with a = -0.75, edges repeated, as
            in Hugging Face's `interpolate_pos_encoding`.

    Raises:
        ValueError: an unknown method.
    """
    check_choice("method", method, METHODS)
    if method == "scipy_zoom":
        return _scipy_zoom(old, new)
    return _MATRICES[method](np, old, new, "float64")


def resize_matrix_in_graph(old, new, method, dtype):
    """`resize_matrix` where `new` may be a tensor; of type `dtype`, on the backend.

    Raises:
        ValueError: a method that exists on stored weights only, or an unknown one.
    """
    check_choice("method", method, tuple(_MATRICES))
    return _MATRICES[method](ops, old, new, dtype)


def resize_grid(table, old, new, method):
    """Resamples vectors that lie on a grid.

    Shapes: (old rows * old columns, width) -> (new rows * new columns, width).

    Args:
        table: NumPy array, positions in reading order.
        old, new: (rows, columns).
        method: as in `resize_matrix`.
    """
    rows, columns = (resize_matrix(o, n, method) for o, n in zip(old, new))
    grid = np.asarray(table, "float64").reshape(*old, -1)
    return np.einsum("ro,cp,opd->rcd", rows, columns, grid, optimize=True).reshape(
        new[0] * new[1], -1
    )


# `xp` is NumPy or keras.ops: these names are the same in both.


def _align_corners(xp, old, new, dtype):
    place = _cast(xp, xp.arange(new), dtype) * _step(xp, old, new, dtype)
    return _triangle(xp, place, old, dtype)


def _bilinear(xp, old, new, dtype):
    place, _ = _half_pixel(xp, old, new, dtype)
    return _triangle(xp, xp.clip(place, 0.0, old - 1.0), old, dtype)


def _bicubic(xp, old, new, dtype):
    place, scale = _half_pixel(xp, old, new, dtype)
    distance = (_samples(xp, old, dtype) - place[:, None]) / xp.maximum(scale, 1.0)
    weights = _cubic(xp, distance, -0.5)
    return weights / xp.sum(weights, axis=1, keepdims=True)


def _bicubic_no_antialias(xp, old, new, dtype):
    place, _ = _half_pixel(xp, old, new, dtype)
    first = xp.floor(place)
    matrix = 0.0
    for tap in (-1.0, 0.0, 1.0, 2.0):
        sample = xp.clip(first + tap, 0.0, old - 1.0)[:, None]
        hit = _cast(xp, xp.equal(_samples(xp, old, dtype), sample), dtype)
        matrix = matrix + hit * _cubic(xp, place - first - tap, -0.75)[:, None]
    return matrix


def _triangle(xp, place, old, dtype):
    return xp.maximum(1.0 - xp.abs(place[:, None] - _samples(xp, old, dtype)), 0.0)


def _half_pixel(xp, old, new, dtype):
    """Where the new samples lie among the old ones, and how many old ones a new one spans."""
    scale = old / _cast(xp, xp.asarray(new) if xp is np else xp.convert_to_tensor(new), dtype)
    return (_cast(xp, xp.arange(new), dtype) + 0.5) * scale - 0.5, scale


def _step(xp, old, new, dtype):
    new = xp.asarray(new) if xp is np else xp.convert_to_tensor(new)
    return (old - 1.0) / xp.maximum(_cast(xp, new, dtype) - 1.0, 1.0)


def _samples(xp, old, dtype):
    return _cast(xp, xp.arange(old), dtype)[None, :]


def _cubic(xp, x, a):
    """Keys' cubic convolution kernel (1981) with the free parameter `a`."""
    x = xp.abs(x)
    near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    far = a * (((x - 5.0) * x + 8.0) * x - 4.0)
    return xp.where(x <= 1.0, near, xp.where(x < 2.0, far, xp.zeros_like(x)))


def _cast(xp, x, dtype):
    return x.astype(dtype) if xp is np else xp.cast(x, dtype)


def _scipy_zoom(old, new):
    matrix = _align_corners(np, old, new, "float64")
    place = np.arange(new) * ((old - 1) / max(new - 1, 1))
    matrix[place > old - 1] = 0.0
    return matrix


_MATRICES = {
    "align_corners": _align_corners,
    "bilinear": _bilinear,
    "bicubic": _bicubic,
    "bicubic_no_antialias": _bicubic_no_antialias,
}
