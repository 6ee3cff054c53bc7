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
    index = xp.arange(new, dtype=dtype)
    # The number of samples from the last: PyTorch's export makes an array of an open size fixed.
    return MATRICES[method](xp, index, old, index[-1] + 1)


def resize_grid(table, old, new, method):
    """Resamples vectors on a grid, from `old` to `new` (rows, columns), by `resize_matrix`.

    Shapes: (old rows * old columns, width) -> (new rows * new columns, width), NumPy arrays with
    positions in reading order.
    """
    return resample(table, old, [resize_matrix(o, n, method) for o, n in zip(old, new)])


def resample(table, old, matrices):
    """As `resize_grid`, by two matrices (new, old), for the rows and for the columns."""
    grid = np.asarray(table, "float64").reshape(*old, -1)
    resized = np.einsum("ro,cp,opd->rcd", *matrices, grid, optimize=True)
    return resized.reshape(-1, grid.shape[2])


# A function of `MATRICES` gives the weights of `old` samples in those of the `new` samples whose
# numbers, from 0, are in `index`. `xp` is NumPy or keras.ops, in which `array` casts.


def _align_corners(xp, index, old, new):
    return _triangle(xp, _between_corners(xp, index, old, new), old)


def _scipy_zoom(xp, index, old, new):
    place = _between_corners(xp, index, old, new)
    return xp.where(place[:, None] > old - 1, 0.0, _triangle(xp, place, old))


def _bilinear(xp, index, old, new):
    return _triangle(xp, xp.clip(_half_pixel(index, old, new), 0.0, old - 1.0), old)


def bilinear_antialias(xp, index, old, new):
    """The weights of `"bilinear_antialias"`.

    Shapes: (..., samples), and of `new` () or (..., 1) -> (..., samples, old).
    """
    span = _at_least(xp, 1.0, old / new)[..., None]
    weights = _triangle(xp, _half_pixel(index, old, new), old, span)
    return weights / xp.sum(weights, axis=-1, keepdims=True)


def _bicubic(xp, index, old, new):
    distance = xp.arange(old, dtype=index.dtype) - _half_pixel(index, old, new)[:, None]
    weights = _cubic(xp, distance / _at_least(xp, 1.0, old / new), -0.5)
    return weights / xp.sum(weights, axis=1, keepdims=True)


def _bicubic_no_antialias(xp, index, old, new):
    return _cubic_taps(xp, _half_pixel(index, old, new), old)


def _bicubic_align_corners(xp, index, old, new):
    return _cubic_taps(xp, _between_corners(xp, index, old, new), old)


def _half_pixel(index, old, new):
    return (index + 0.5) * (old / new) - 0.5


def _between_corners(xp, index, old, new):
    return index * ((old - 1.0) / xp.maximum(new - 1.0, 1.0))


def _triangle(xp, place, old, span=1.0):
    distance = xp.abs(place[..., None] - xp.arange(old, dtype=place.dtype))
    return _at_least(xp, 0.0, 1.0 - distance / span)


def _cubic_taps(xp, place, old):
    first, matrix = xp.floor(place), 0.0
    for tap in (-1.0, 0.0, 1.0, 2.0):
        sample = xp.clip(first + tap, 0.0, old - 1.0)[:, None]
        hit = xp.array(xp.equal(xp.arange(old, dtype=place.dtype), sample), dtype=place.dtype)
        matrix = matrix + hit * _cubic(xp, place - first - tap, -0.75)[:, None]
    return matrix


def _cubic(xp, x, a):
    """Keys' cubic convolution kernel (1981) with the free parameter `a`."""
    x = xp.abs(x)
    near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    far = a * (((x - 5.0) * x + 8.0) * x - 4.0)
    return xp.where(x <= 1.0, near, xp.where(x < 2.0, far, xp.zeros_like(x)))


def _at_least(xp, least, x):
    """`x`, and `least` where it is less; on PyTorch Keras's `maximum` cuts float64 to float32."""
    return xp.where(x > least, x, least)


MATRICES = {
    "align_corners": _align_corners,
    "bilinear": _bilinear,
    "bilinear_antialias": bilinear_antialias,
    "bicubic": _bicubic,
    "bicubic_no_antialias": _bicubic_no_antialias,
    "bicubic_align_corners": _bicubic_align_corners,
    "scipy_zoom": _scipy_zoom,
}
