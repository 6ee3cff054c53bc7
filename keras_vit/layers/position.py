"""Positions: E_pos of Eq. 1, and the absolute alternatives of Table 8 (appendix D.4)."""

import keras
import numpy as np
from keras import ops

from keras_vit.checks import check_choice, pair
from keras_vit.layers import kernels
from keras_vit.layers.layer import Layer
from keras_vit.layers.resample import resize_matrix


def small_normal():
    """A new initializer for one variable, as it gives the same numbers when it is used twice."""
    return kernels.initial(keras.initializers.RandomNormal(stddev=0.02))


class PositionEmbedding(Layer):
    """Adds one vector per position to the tokens: z_0 = [...] + E_pos (Eq. 1).

    `PositionEmbedding(kind, ...)` makes the subclass of that kind, which files name by this class.
    The two 2-D embeddings add zero to the class token and to registers, which have no place in the
    grid and are learned themselves.

    Shapes: (batch, tokens, width) -> the same.

    Args:
        kind: `"learned_1d"`, a learned vector per token, the class token's included;
            `"learned_2d"`, a learned vector of width / 2 per row and one per column of the grid,
            concatenated (appendix D.4); or `"sincos_2d"`, fixed sines and cosines of the column and
            the row (Beyer et al., 2022).
        grid: (rows, columns) of patches.
        class_token: whether the first token is a class token.
        registers: number of further learned tokens before the patches.
        interpolation: how the embedding is resampled for patches of another grid, a method of
            `resize_matrix`; `"sincos_2d"` is computed for that grid instead.
    """

    def __new__(cls, kind, *args, **kwargs):
        check_choice("kind", kind, tuple(POSITIONS))
        return super().__new__(POSITIONS[kind], kind, *args, **kwargs)

    def __init__(
        self, kind, grid, class_token=True, registers=0, interpolation="align_corners", **kwargs
    ):
        super().__init__(**kwargs)
        self.kind, self.grid, self.interpolation = kind, pair(grid, "grid"), interpolation
        self.learned_tokens = int(class_token) + registers  # before those of the patches

    def build(self, input_shape):
        tokens, width = input_shape[1:]
        rows, columns = self.grid
        expected = rows * columns + self.learned_tokens
        if tokens not in (None, expected):
            raise ValueError(
                f"A grid of {rows}x{columns} patches with {self.learned_tokens} learned tokens has "
                f"{expected} tokens. Received: tokens of shape {tuple(input_shape)}."
            )
        self.build_table(expected, width)

    def table(self, grid=None, like=None):
        """E_pos itself. Shape: (1, tokens, width).

        Args:
            grid: (rows, columns) of the patches, ints or tensors; `None` for those of the layer.
            like: a tensor on the device where the table shall be; `None` for Keras's device.
        """
        raise NotImplementedError

    def call(self, x, grid=None):
        is_known = grid is not None and all(isinstance(side, int) for side in grid)
        if is_known and tuple(grid) == self.grid:
            grid = None
        return x + ops.cast(self.table(grid, like=x), x.dtype)

    @property
    def precise_dtype(self):
        """The type in which the table is computed."""
        return kernels.at_least_float32(self.variable_dtype)

    def resize_matrices(self, grid, like):
        """The matrices that resample the rows and the columns of the layer's grid to `grid`."""
        return [
            _computed(
                resize_matrix, old, new, self.interpolation, like=like, dtype=self.precise_dtype
            )
            for old, new in zip(self.grid, grid)
        ]

    def after_zeros(self, patches):
        """A table that is zero for the learned tokens, from the vectors of the patches."""
        zeros = ops.zeros((self.learned_tokens, patches.shape[-1]), dtype=patches.dtype)
        return ops.concatenate([zeros, patches], axis=0)[None]


class Learned1D(PositionEmbedding):
    """A learned vector per token, the class token's included."""

    def build_table(self, tokens, width):
        self.embedding = self.add_weight((1, tokens, width), small_normal(), name="embedding")

    def table(self, grid=None, like=None):
        if grid is None:
            return ops.convert_to_tensor(self.embedding)
        rows, columns = self.resize_matrices(grid, like)
        table = ops.cast(self.embedding[0], self.precise_dtype)
        learned, patches = table[: self.learned_tokens], table[self.learned_tokens :]
        patches = ops.reshape(patches, (*self.grid, patches.shape[-1]))
        patches = ops.einsum("ro,opd->rpd", rows, patches)
        patches = ops.einsum("cp,rpd->rcd", columns, patches)
        patches = ops.reshape(patches, (-1, patches.shape[-1]))
        return ops.concatenate([learned, patches], axis=0)[None]


class Learned2D(PositionEmbedding):
    """A learned vector of width / 2 per column and one per row, concatenated."""

    def build_table(self, tokens, width):
        _check_multiple(width, 2, kind=self.kind)
        rows, columns = self.grid
        self.row_embedding = self.add_weight((rows, width // 2), small_normal(), name="rows")
        self.column_embedding = self.add_weight(
            (columns, width // 2), small_normal(), name="columns"
        )

    def table(self, grid=None, like=None):
        row = ops.cast(self.row_embedding, self.precise_dtype)
        column = ops.cast(self.column_embedding, self.precise_dtype)
        if grid is not None:
            rows, columns = self.resize_matrices(grid, like)
            row, column = rows @ row, columns @ column
        (rows, half), (columns, _) = ops.shape(row), ops.shape(column)
        x = ops.broadcast_to(column[None], (rows, columns, half))
        y = ops.broadcast_to(row[:, None], (rows, columns, half))
        return self.after_zeros(ops.reshape(ops.concatenate([x, y], axis=-1), (-1, 2 * half)))


class SinCos2D(PositionEmbedding):
    """Fixed sines and cosines of the column and the row; see `sincos_2d`."""

    def build_table(self, tokens, width):
        self.width, self.fixed = width, kernels.Constant(sincos_2d(self.grid, width))

    def table(self, grid=None, like=None):
        like = ops.zeros(()) if like is None else like
        if grid is None:
            return self.after_zeros(self.fixed.tensor(like, self.compute_dtype))
        table = _computed(sincos_2d, tuple(grid), self.width, like=like, dtype=self.precise_dtype)
        return self.after_zeros(ops.cast(table, self.compute_dtype))


POSITIONS = {"learned_1d": Learned1D, "learned_2d": Learned2D, "sincos_2d": SinCos2D}
for position in (*POSITIONS.values(), PositionEmbedding):  # the last one opens files
    position.__name__ = "PositionEmbedding"
    keras.saving.register_keras_serializable("keras_vit")(position)


def _computed(function, *arguments, like, dtype):
    """What `function` computes, which depends on no weights: by NumPy where numbers are known."""
    if any(not isinstance(number, (int, str)) for number in keras.tree.flatten(arguments)):
        return ops.cast(function(*arguments, ops, dtype), dtype)
    like = ops.zeros(()) if like is None else like
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
    _check_multiple(width, 4, kind="sincos_2d")
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
