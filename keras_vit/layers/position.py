"""Position embeddings: E_pos of Eq. 1 and the alternatives of Table 8 (appendix D.4)."""

import keras
import numpy as np
from keras import ops

from keras_vit.checks import check_choice, pair
from keras_vit.layers import kernels
from keras_vit.layers.initial import initial
from keras_vit.layers.resample import resize_matrix, resize_matrix_in_graph

ABSOLUTE = ("learned_1d", "learned_2d", "sincos_2d")


def _normal():
    # One for each variable: an initializer that is used twice gives the same numbers twice.
    return initial(keras.initializers.RandomNormal(stddev=0.02))


@keras.saving.register_keras_serializable("keras_vit")
class PositionEmbedding(keras.layers.Layer):
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
        registers: number of register tokens before the patches.
        interpolation: how the embedding is resampled for patches of another grid, as in
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

    @property
    def _precise_dtype(self):
        return kernels.at_least_float32(self.variable_dtype)

    def build(self, input_shape):
        tokens, width = input_shape[1:]
        rows, columns = self.grid
        expected = rows * columns + self.learned_tokens
        if tokens not in (None, expected):
            registers = f" and {self.registers} registers" * bool(self.registers)
            raise ValueError(
                f"A grid of {rows}x{columns} patches {'with' if self.class_token else 'without'} "
                f"class token{registers} has {expected} tokens. "
                f"Received: tokens of shape {tuple(input_shape)}."
            )
        if self.kind == "learned_1d":
            self.embedding = self.add_weight((1, expected, width), _normal(), name="embedding")
        elif self.kind == "learned_2d":
            _check_multiple(width, 2, self.kind)
            self.row_embedding = self.add_weight((rows, width // 2), _normal(), name="rows")
            self.column_embedding = self.add_weight(
                (columns, width // 2), _normal(), name="columns"
            )
        else:
            self.width, self.fixed = width, sincos_2d(self.grid, width)
        self.built = True

    def table(self, grid=None):
        """E_pos itself. Shape: (1, tokens, width).

        Args:
            grid: (rows, columns) of the patches, ints or tensors; `None` for those of the layer.
        """
        same = grid is None or (_are_ints(grid) and tuple(grid) == self.grid)
        if self.kind == "sincos_2d":
            table = kernels.constant(self.fixed) if same else self._sincos_2d(grid)
            return self._below_learned_tokens(ops.cast(table, self.compute_dtype))
        if self.kind == "learned_2d":
            return self._below_learned_tokens(self._rows_and_columns(None if same else grid))
        if same:
            return ops.convert_to_tensor(self.embedding)
        table = ops.cast(self.embedding[0], self._precise_dtype)
        first, patches = ops.split(table, [self.learned_tokens], axis=0)
        patches = ops.reshape(patches, (*self.grid, patches.shape[-1]))
        rows, columns = self._matrices(grid)
        patches = ops.einsum("ro,opd->rpd", rows, patches)
        patches = ops.einsum("cp,rpd->rcd", columns, patches)
        patches = ops.reshape(patches, (-1, patches.shape[-1]))
        return ops.concatenate([first, patches], axis=0)[None]

    def _rows_and_columns(self, grid):
        dtype = self._precise_dtype
        row, column = ops.cast(self.row_embedding, dtype), ops.cast(self.column_embedding, dtype)
        if grid is not None:
            row, column = (m @ e for m, e in zip(self._matrices(grid), (row, column)))
        (rows, half), (columns, _) = ops.shape(row), ops.shape(column)
        x = ops.broadcast_to(ops.expand_dims(column, 0), (rows, columns, half))
        y = ops.broadcast_to(ops.expand_dims(row, 1), (rows, columns, half))
        return ops.reshape(ops.concatenate([x, y], axis=-1), (-1, 2 * half))

    # The backends that know the grid take both from NumPy, which keeps float64 throughout.

    def _matrices(self, grid):
        args = [(old, new, self.interpolation) for old, new in zip(self.grid, grid)]
        if _are_ints(grid):
            return [ops.convert_to_tensor(resize_matrix(*a), self._precise_dtype) for a in args]
        return [resize_matrix_in_graph(*a, self._precise_dtype) for a in args]

    def _sincos_2d(self, grid):
        if _are_ints(grid):
            return sincos_2d(grid, self.width)
        return sincos_2d(grid, self.width, ops, self._precise_dtype)

    def _below_learned_tokens(self, patches):
        zeros = ops.zeros((self.learned_tokens, patches.shape[-1]), dtype=patches.dtype)
        return ops.concatenate([zeros, patches], axis=0)[None]

    def call(self, x, grid=None):
        return x + ops.cast(self.table(grid), x.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {
            **super().get_config(),
            "kind": self.kind,
            "grid": self.grid,
            "class_token": self.class_token,
            "registers": self.registers,
            "interpolation": self.interpolation,
        }


@keras.saving.register_keras_serializable("keras_vit")
class RelativePosition(keras.layers.Layer):
    """The embeddings of 1-D relative attention (appendix D.4): one per distance in the sequence.

    Attention compares its queries with these vectors as if they were further keys and adds the
    result to its scores (`relative_scores`). All heads share them, as in Shaw et al. (2018); the
    class token counts as the first position of the sequence.

    Shapes: (batch, tokens, width) -> (2 * tokens - 1, width / num_heads); row r is for keys that
    stand r - (tokens - 1) places after the query.
    """

    def __init__(self, num_heads, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads

    def build(self, input_shape):
        self.embedding = self.add_weight(
            self.compute_output_shape(input_shape), _normal(), name="embedding"
        )
        self.built = True

    def call(self, x):
        return ops.cast(self.embedding, self.compute_dtype)

    def compute_output_shape(self, input_shape):
        _, tokens, width = input_shape
        return (2 * tokens - 1, width // self.num_heads)

    def get_config(self):
        return {**super().get_config(), "num_heads": self.num_heads}


def relative_scores(query, table):
    """q · r for every pair of a query and a key, r being the embedding of their distance.

    Shapes: (batch, T, heads, D_h), (2·T - 1, D_h) -> (batch, heads, T, T).
    """
    _, tokens, heads, _ = query.shape
    if table.shape[0] != 2 * tokens - 1:
        raise ValueError(
            f"{tokens} tokens have {2 * tokens - 1} distances. Received: a relative position "
            f"table of shape {tuple(table.shape)}."
        )
    by_distance = ops.einsum("bthd,rd->bhtr", query, table)
    # Query t needs the distances from tokens - 1 - t on. Padding each row by one and reading the
    # rows again one value shorter moves row t by t: no gather, no index.
    x = ops.pad(by_distance, ((0, 0), (0, 0), (0, 0), (0, 1)))
    x = ops.reshape(x, (-1, heads, 2 * tokens * tokens))
    x = ops.pad(x, ((0, 0), (0, 0), (0, tokens - 1)))
    x = ops.reshape(x, (-1, heads, tokens + 1, 2 * tokens - 1))
    return x[:, :, :tokens, tokens - 1 :]


def _are_ints(grid):
    return all(isinstance(side, int) for side in grid)


def sincos_2d(grid, width, xp=np, dtype="float64", temperature=10_000.0):
    """Fixed 2-D position embedding of the "better plain ViT" (as in MoCo v3).

    A quarter of the values each: sin of the column, cos of the column, sin of the row, cos of the
    row, at frequencies from 1 down to 1 / temperature.

    Args:
        grid: (rows, columns).
        width: length of a vector, a multiple of 4.
        xp: `numpy`, or `keras.ops` for a grid of tensors.
        dtype: of the result, at least float32.

    Returns:
        Array of shape (rows * columns, width), positions in reading order.
    """
    _check_multiple(width, 4, "sincos_2d")
    frequency = xp.array(temperature ** -np.linspace(0.0, 1.0, width // 4), dtype=dtype)
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
