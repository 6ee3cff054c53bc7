"""Positions: E_pos of Eq. 1, and the absolute alternatives of Table 8 (appendix D.4)."""

import keras
import numpy as np
from keras import ops

from keras_vit.checks import check_choice, pair
from keras_vit.layers import kernels
from keras_vit.layers.layer import Layer
from keras_vit.layers.resample import resize_matrix

ABSOLUTE = ("learned_1d", "learned_2d", "sincos_2d")


def small_normal():
    """A new initializer for one variable, as it gives the same numbers when it is used twice."""
    return kernels.initial(keras.initializers.RandomNormal(stddev=0.02))


@keras.saving.register_keras_serializable("keras_vit")
class PositionEmbedding(Layer):
    """Adds one vector per position to the tokens: z_0 = [...] + E_pos (Eq. 1).

    - `"learned_1d"`: a learned vector per token, the class token's included.
    - `"learned_2d"`: a learned vector of width / 2 per row and one per column of the grid,
      concatenated (appendix D.4).
    - `"sincos_2d"`: fixed sines and cosines of the column and the row (Beyer et al., 2022).

    The two 2-D kinds add zero to the class token and to registers, which have no place in the grid
    and are learned themselves.

    Shapes: (batch, tokens, width) -> the same.

    Args:
        kind: one of the three names above.
        grid: (rows, columns) of patches.
        class_token: whether the first token is a class token.
        registers: number of further learned tokens before the patches.
        interpolation: how the embedding is resampled for patches of another grid, a method of
            `resize_matrix`; `"sincos_2d"` is computed for that grid instead.
    """

    def __init__(
        self, kind, grid, class_token=True, registers=0, interpolation="align_corners", **kwargs
    ):
        super().__init__(**kwargs)
        check_choice("kind", kind, ABSOLUTE)
        self.kind, self.grid, self.class_token = kind, pair(grid, "grid"), class_token
        self.registers, self.interpolation = registers, interpolation

    @property
    def learned_tokens(self):
        """Tokens before those of the patches."""
        return int(self.class_token) + self.registers

    def build(self, input_shape):
        tokens, width = input_shape[1:]
        rows, columns = self.grid
        expected = rows * columns + self.learned_tokens
        if tokens not in (None, expected):
            raise ValueError(
                f"A grid of {rows}x{columns} patches with {self.learned_tokens} learned tokens has "
                f"{expected} tokens. Received: tokens of shape {tuple(input_shape)}."
            )
        if self.kind == "learned_1d":
            self.embedding = self.add_weight((1, expected, width), small_normal(), name="embedding")
        elif self.kind == "learned_2d":
            _check_multiple(width, 2, self.kind)
            self.row_embedding = self.add_weight((rows, width // 2), small_normal(), name="rows")
            self.column_embedding = self.add_weight(
                (columns, width // 2), small_normal(), name="columns"
            )
        else:
            self.width, self.fixed = width, kernels.Constant(sincos_2d(self.grid, width))

    def table(self, grid=None, like=None):
        """E_pos itself. Shape: (1, tokens, width).

        Args:
            grid: (rows, columns) of the patches, ints or tensors; `None` for those of the layer.
            like: a tensor on the device where the table shall be; `None` for Keras's device.
        """
        like = ops.zeros(()) if like is None else like
        if grid is not None and all(isinstance(side, int) for side in grid):
            grid = None if tuple(grid) == self.grid else grid
        if self.kind == "learned_1d" and grid is None:
            return ops.convert_to_tensor(self.embedding)
        precise = kernels.at_least_float32(self.variable_dtype)
        if self.kind == "sincos_2d":
            if grid is None:
                table = self.fixed.tensor(like, self.compute_dtype)
            else:
                table = _computed(sincos_2d, tuple(grid), self.width, like=like, dtype=precise)
            return self._below_zeros(ops.cast(table, self.compute_dtype))
        resize = []
        if grid is not None:
            resize = [
                _computed(resize_matrix, old, new, self.interpolation, like=like, dtype=precise)
                for old, new in zip(self.grid, grid)
            ]
        if self.kind == "learned_2d":
            row = ops.cast(self.row_embedding, precise)
            column = ops.cast(self.column_embedding, precise)
            if resize:
                row, column = resize[0] @ row, resize[1] @ column
            (rows, half), (columns, _) = ops.shape(row), ops.shape(column)
            x = ops.broadcast_to(column[None], (rows, columns, half))
            y = ops.broadcast_to(row[:, None], (rows, columns, half))
            table = ops.reshape(ops.concatenate([x, y], axis=-1), (-1, 2 * half))
            return self._below_zeros(table)
        table = ops.cast(self.embedding[0], precise)
        first, patches = table[: self.learned_tokens], table[self.learned_tokens :]
        patches = ops.reshape(patches, (*self.grid, patches.shape[-1]))
        patches = ops.einsum("ro,opd->rpd", resize[0], patches)
        patches = ops.einsum("cp,rpd->rcd", resize[1], patches)
        patches = ops.reshape(patches, (-1, patches.shape[-1]))
        return ops.concatenate([first, patches], axis=0)[None]

    def _below_zeros(self, patches):
        zeros = ops.zeros((self.learned_tokens, patches.shape[-1]), dtype=patches.dtype)
        return ops.concatenate([zeros, patches], axis=0)[None]

    def call(self, x, grid=None):
        return x + ops.cast(self.table(grid, like=x), x.dtype)


def _computed(function, *arguments, like, dtype):
    """What `function` computes, which depends on no weights: by NumPy where numbers are known."""
    if any(not isinstance(number, (int, str)) for number in keras.tree.flatten(arguments)):
        return ops.cast(function(*arguments, ops, dtype), dtype)
    return kernels.computed(function, *arguments, like=like, dtype=dtype)


def sincos_2d(grid, width, xp=np, dtype="float64", temperature=10_000.0, last=True):
    """Fixed 2-D position embedding of the "better plain ViT" (as in MoCo v3).

    A quarter of the values each: sin of the column, cos of the column, sin of the row, cos of the
    row, at frequencies from 1 down to 1 / temperature.

    Args:
        grid: (rows, columns).
        width: length of a vector, a multiple of 4.
        xp: `numpy`, or `keras.ops` for a grid of tensors.
        dtype: of the result, at least float32.
        last: whether 1 / temperature itself is a frequency; it is none in He et al. (2022).

    Returns:
        Array of shape (rows * columns, width), positions in reading order.
    """
    _check_multiple(width, 4, "sincos_2d")
    exponents = np.linspace(0.0, 1.0, width // 4, endpoint=last)
    frequency = xp.array(temperature**-exponents, dtype=dtype)
    places = [xp.arange(side, dtype=dtype) for side in grid]
    row, column = xp.meshgrid(*places, indexing="ij")
    angles = [xp.reshape(place, (-1, 1)) * frequency for place in (column, row)]
    return xp.concatenate([f(angle) for angle in angles for f in (xp.sin, xp.cos)], axis=1)


def _check_multiple(width, factor, kind):
    if width % factor:
        raise ValueError(
            f"The position embedding {kind!r} needs a width that {factor} divides. "
            f"Received: width={width}."
        )
