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


@keras.saving.register_keras_serializable("keras_vit")
class PositionEmbedding(Layer):
    """Adds one vector per position to the tokens: z_0 = [...] + E_pos (Eq. 1).

    The two 2-D embeddings add zero to the class token and to registers, which have no place in the
    grid and are learned themselves.

    Shapes: (batch, tokens, width) -> the same.

    Args:
        kind: `"learned_1d"`, a learned vector per token, the class token's included;
            `"learned_2d"`, a learned vector of width / 2 per column and one per row of the grid,
            concatenated (appendix D.4); or `"sincos_2d"`, fixed sines and cosines of the column and
            the row (Beyer et al., 2022).
        grid: (rows, columns) of patches.
        class_token: whether the first token is a class token.
        registers: number of further learned tokens before the patches; a distillation token is one.
        interpolation: how the embedding is resampled for patches of another grid, a method of
            `resize_matrix`; `"sincos_2d"` is computed for that grid instead.
    """

    def __init__(
        self, kind, grid, class_token=True, registers=0, interpolation="align_corners", **kwargs
    ):
        super().__init__(**kwargs)
        check_choice("kind", kind, ("learned_1d", "learned_2d", "sincos_2d"))
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
        if self.kind == "learned_1d":
            shape = (1, expected, width)
            self.embedding = self.add_weight(shape, small_normal(), name="embedding")
        elif self.kind == "learned_2d":
            _check_multiple(width, 2, kind=self.kind)
            of_rows, of_columns = (rows, width // 2), (columns, width // 2)
            self.row_embedding = self.add_weight(of_rows, small_normal(), name="rows")
            self.column_embedding = self.add_weight(of_columns, small_normal(), name="columns")
        else:
            self.width, self.fixed = width, kernels.Constant(sincos_2d(self.grid, width))

    def call(self, x, grid=None):
        is_known = grid is not None and all(isinstance(side, int) for side in grid)
        table = self.table(None if is_known and tuple(grid) == self.grid else grid)
        return x + ops.cast(table, x.dtype)

    def table(self, grid=None):
        """E_pos itself. Shape: (1, tokens, width).

        Args:
            grid: (rows, columns) of the patches, ints or tensors; `None` for the layer's own.
        """
        if self.kind == "learned_1d":
            return self._learned_1d(grid)
        patches = self._learned_2d(grid) if self.kind == "learned_2d" else self._sincos_2d(grid)
        # A padding of Keras breaks the graphs of PyTorch's compiler.
        zeros = ops.zeros((self.learned_tokens, patches.shape[-1]), dtype=patches.dtype)
        return ops.concatenate([zeros, patches], axis=0)[None]

    def _learned_1d(self, grid):
        if grid is None:
            return ops.convert_to_tensor(self.embedding)
        row_matrix, column_matrix = self._resize_matrices(grid)
        table = ops.cast(self.embedding[0], self.precise_dtype)
        learned, patches = table[: self.learned_tokens], table[self.learned_tokens :]
        patches = ops.reshape(patches, (*self.grid, patches.shape[-1]))
        patches = ops.einsum("ro,opd->rpd", row_matrix, patches)
        patches = ops.einsum("cp,rpd->rcd", column_matrix, patches)
        patches = ops.reshape(patches, (-1, patches.shape[-1]))
        return ops.concatenate([learned, patches], axis=0)[None]

    def _learned_2d(self, grid):
        of_rows = ops.cast(self.row_embedding, self.precise_dtype)
        of_columns = ops.cast(self.column_embedding, self.precise_dtype)
        if grid is not None:
            row_matrix, column_matrix = self._resize_matrices(grid)
            of_rows, of_columns = row_matrix @ of_rows, column_matrix @ of_columns
        (rows, half), (columns, _) = ops.shape(of_rows), ops.shape(of_columns)
        x = ops.broadcast_to(of_columns[None], (rows, columns, half))
        y = ops.broadcast_to(of_rows[:, None], (rows, columns, half))
        return ops.reshape(ops.concatenate([x, y], axis=-1), (-1, 2 * half))

    def _sincos_2d(self, grid):
        if grid is None:
            table = self.fixed.tensor(ops.zeros(()), self.precise_dtype)
        else:
            table = from_sizes(sincos_2d, tuple(grid), self.width, dtype=self.precise_dtype)
        return ops.cast(table, self.compute_dtype)

    def _resize_matrices(self, grid):
        """The matrices that resample the rows and the columns of the layer's grid to `grid`."""
        return [
            from_sizes(resize_matrix, old, new, self.interpolation, dtype=self.precise_dtype)
            for old, new in zip(self.grid, grid)
        ]

    @property
    def precise_dtype(self):
        """The type in which the table is computed."""
        return kernels.at_least_float32(self.variable_dtype)


def from_sizes(function, *arguments, dtype):
    """`function(*arguments)`, an array of `dtype` that depends on sizes and on no weights.

    NumPy computes it, once, where the sizes are numbers, such as a grid of (7, 7). The graph does
    where they are tensors, as the size of the images is known only when it runs.
    """
    if all(isinstance(each, (int, str)) for each in keras.tree.flatten(arguments)):
        # `like` names the device, that of any new tensor.
        return kernels.computed(function, *arguments, like=ops.zeros(()), dtype=dtype)
    return ops.cast(function(*arguments, ops, dtype), dtype)


def sincos_2d(grid, width, xp=np, dtype="float64", temperature=10_000.0, endpoint=True):
    """Fixed 2-D position embedding of the "better plain ViT" (as in MoCo v3).

    A quarter of the values each: sin of the column, cos of the column, sin of the row, cos of the
    row, at frequencies from 1 down to 1 / temperature.

    Shape: (rows * columns, width), positions in reading order.

    Args:
        grid, width: (rows, columns), and the length of a vector, a multiple of 4.
        xp, dtype: `numpy`, or `keras.ops` for a grid of tensors; float32 or float64.
        endpoint: whether 1 / temperature itself is a frequency, as it is not in He et al. (2022).
    """
    _check_multiple(width, 4, kind="sincos_2d")
    exponents = np.linspace(0.0, 1.0, width // 4, endpoint=endpoint)
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
