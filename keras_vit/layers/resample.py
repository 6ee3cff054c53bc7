"""Resampling on a grid, by one matrix for its rows and one for its columns."""

import numpy as np

from keras_vit.checks import check_choice


def resize_matrix(old, new, method, xp=np, dtype="float64"):
    """The matrix of shape (new, old) that resamples `old` values to `new`.

    Args:
        old, new: numbers of samples.
        method: where the new samples lie and how the old ones are weighted:
            `"align_corners"`: the first and last samples stay where they are, linear in between.
            The authors' rule (google-research/vision_transformer, `interpolate_posembed`).
            `"scipy_zoom"`: align-corners with the rounding fault of `scipy.ndimage.zoom`, which
            the authors call: at some sizes the last sample falls off the grid and becomes zero.
            `"bilinear"`: half-pixel centres, linear, no antialiasing.
            `"bilinear_antialias"`: half-pixel centres, linear, widened when shrinking (antialias),
            as in `jax.image.resize(..., "linear")`: the rule of FlexiViT and NaFlex.
            `"bicubic"`: half-pixel centres, cubic with a = -0.5, widened when shrinking
            (antialias), as in timm and DINOv2 with registers.
            `"bicubic_no_antialias"`: half-pixel centres, cubic with a = -0.75, edges repeated, as
            in Hugging Face's `interpolate_pos_encoding`.
            `"bicubic_align_corners"`: the same, but the first and last samples stay where they
            are, as in torchvision's `interpolate_embeddings`.
        xp: `numpy`, or `keras.ops` where `new` may be a tensor (not for `"scipy_zoom"`).
        dtype: of the matrix.
    """
    check_choice("method", method, tuple(MATRICES))
    return MATRICES[method](xp, old, new, dtype)


def resize_grid(table, old, new, method):
    """Resamples vectors on a grid, from `old` to `new` (rows, columns), by `resize_matrix`.

    Shapes: (old rows * old columns, width) -> (new rows * new columns, width), NumPy arrays with
    positions in reading order.
    """
    rows, columns = (resize_matrix(o, n, method) for o, n in zip(old, new))
    grid = np.asarray(table, "float64").reshape(*old, -1)
    resized = np.einsum("ro,cp,opd->rcd", rows, columns, grid, optimize=True)
    return resized.reshape(new[0] * new[1], -1)


def patch_matrix(old, new, method):
    """The matrix of shape (new, old) that resizes one axis of patch kernels (Beyer et al., 2023).

    It is (Rᵀ)⁺ of the R that resizes a patch: with the new kernels the new patches' tokens are the
    old ones' as well as can be.

    Args:
        old, new: sizes in pixels.
        method: how a patch is resized, a method of `resize_matrix`.
    """
    return np.linalg.pinv(resize_matrix(old, new, method).T)


# These names are the same in NumPy and keras.ops; `xp.array` casts.


def _align_corners(xp, old, new, dtype):
    return _triangle(xp, _between_corners(xp, old, new, dtype), old, dtype)


def _scipy_zoom(xp, old, new, dtype):
    place = xp.arange(new) * ((old - 1) / max(new - 1, 1))
    return xp.where(place[:, None] > old - 1, 0.0, _align_corners(xp, old, new, dtype))


def _bilinear(xp, old, new, dtype):
    place, _ = _half_pixel(xp, old, new, dtype)
    return _triangle(xp, xp.clip(place, 0.0, old - 1.0), old, dtype)


def _bilinear_antialias(xp, old, new, dtype):
    place = xp.arange(new, dtype=dtype)
    return linear_weights(place, old, new=xp.array(new, dtype=dtype), xp=xp, dtype=dtype)


def linear_weights(place, old, new, xp, dtype):
    """How `"bilinear_antialias"` weights `old` values for samples at a place among `new` ones.

    Shapes: (..., samples), and of `new` () or (..., 1) -> (..., samples, old).
    """
    scale = old / new
    center = (place + 0.5) * scale - 0.5
    distance = xp.abs(center[..., None] - xp.arange(old, dtype=dtype))
    weights = _at_least(xp, 0.0, 1.0 - distance / _at_least(xp, 1.0, scale)[..., None])
    return weights / xp.sum(weights, axis=-1, keepdims=True)


def _bicubic(xp, old, new, dtype):
    place, scale = _half_pixel(xp, old, new, dtype)
    distance = (xp.arange(old, dtype=dtype) - place[:, None]) / _at_least(xp, 1.0, scale)
    weights = _cubic(xp, distance, -0.5)
    return weights / xp.sum(weights, axis=1, keepdims=True)


def _bicubic_no_antialias(xp, old, new, dtype):
    return _cubic_taps(xp, _half_pixel(xp, old, new, dtype)[0], old, dtype)


def _bicubic_align_corners(xp, old, new, dtype):
    return _cubic_taps(xp, _between_corners(xp, old, new, dtype), old, dtype)


def _cubic_taps(xp, place, old, dtype):
    first = xp.floor(place)
    matrix = 0.0
    for tap in (-1.0, 0.0, 1.0, 2.0):
        sample = xp.clip(first + tap, 0.0, old - 1.0)[:, None]
        hit = xp.array(xp.equal(xp.arange(old, dtype=dtype), sample), dtype=dtype)
        matrix = matrix + hit * _cubic(xp, place - first - tap, -0.75)[:, None]
    return matrix


def _between_corners(xp, old, new, dtype):
    place = xp.arange(new, dtype=dtype)
    return place * ((old - 1.0) / xp.maximum(place[-1], 1.0))


def _triangle(xp, place, old, dtype):
    return _at_least(xp, 0.0, 1.0 - xp.abs(place[:, None] - xp.arange(old, dtype=dtype)))


def _half_pixel(xp, old, new, dtype):
    """Where the new samples lie among the old ones, and how many old ones a new one spans."""
    place = xp.arange(new, dtype=dtype)
    scale = old / xp.array(new, dtype=dtype)
    return (place + 0.5) * scale - 0.5, scale


def _cubic(xp, x, a):
    """Keys' cubic convolution kernel (1981) with the free parameter `a`."""
    x = xp.abs(x)
    near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    far = a * (((x - 5.0) * x + 8.0) * x - 4.0)
    return xp.where(x <= 1.0, near, xp.where(x < 2.0, far, xp.zeros_like(x)))


MATRICES = {
    "align_corners": _align_corners,
    "bilinear": _bilinear,
    "bilinear_antialias": _bilinear_antialias,
    "bicubic": _bicubic,
    "bicubic_no_antialias": _bicubic_no_antialias,
    "bicubic_align_corners": _bicubic_align_corners,
    "scipy_zoom": _scipy_zoom,
}


def _at_least(xp, least, x):
    """`x`, and `least` where it is less; on PyTorch Keras's `maximum` cuts float64 to float32."""
    return xp.where(x > least, x, least)
