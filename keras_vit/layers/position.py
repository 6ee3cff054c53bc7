"""Position embeddings: E_pos of Eq. 1 and the alternatives of Table 8 (appendix D.4)."""

import keras
import numpy as np
from keras import ops

from keras_vit.checks import check_choice, pair

ABSOLUTE = ("learned_1d", "learned_2d", "sincos_2d")


def _normal():
    # One for each variable: an initializer that is used twice gives the same numbers twice.
    return keras.initializers.RandomNormal(stddev=0.02)


@keras.saving.register_keras_serializable("keras_vit")
class PositionEmbedding(keras.layers.Layer):
    """Adds one vector per position to the tokens: z_0 = [...] + E_pos (Eq. 1).

    - `"learned_1d"`: a learned vector per token, the class token's included.
    - `"learned_2d"`: a learned vector of width / 2 per row and one per column of the grid,
      concatenated (appendix D.4).
    - `"sincos_2d"`: fixed sines and cosines of the column and the row (Beyer et al., 2022).

    The two 2-D kinds add zero to the class token, which has no place in the grid and is learned
    itself.

    Shapes: (batch, tokens, width) -> the same.

    Args:
        kind: one of the three names above.
        grid: (rows, columns) of patches.
        class_token: whether the first token is a class token.
    """

    def __init__(self, kind, grid, class_token=True, **kwargs):
        super().__init__(**kwargs)
        check_choice("kind", kind, ABSOLUTE)
        self.kind, self.grid, self.class_token = kind, pair(grid, "grid"), class_token

    def build(self, input_shape):
        tokens, width = input_shape[1:]
        rows, columns = self.grid
        if tokens != rows * columns + self.class_token:
            raise ValueError(
                f"A grid of {rows}x{columns} patches {'with' if self.class_token else 'without'} "
                f"class token has {rows * columns + self.class_token} tokens. "
                f"Received: tokens of shape {tuple(input_shape)}."
            )
        if self.kind == "learned_1d":
            self.embedding = self.add_weight((1, tokens, width), _normal(), name="embedding")
        elif self.kind == "learned_2d":
            _check_multiple(width, 2, self.kind)
            self.row_embedding = self.add_weight((rows, width // 2), _normal(), name="rows")
            self.column_embedding = self.add_weight(
                (columns, width // 2), _normal(), name="columns"
            )
        else:
            self.fixed = sincos_2d(self.grid, width)
        self.built = True

    def table(self):
        """E_pos itself. Shape: (1, tokens, width)."""
        if self.kind == "learned_1d":
            return ops.convert_to_tensor(self.embedding)
        if self.kind == "sincos_2d":
            patches = ops.convert_to_tensor(self.fixed, dtype=self.compute_dtype)
        else:
            (rows, columns), half = self.grid, self.row_embedding.shape[1]
            x = ops.broadcast_to(self.column_embedding[None, :, :], (rows, columns, half))
            y = ops.broadcast_to(self.row_embedding[:, None, :], (rows, columns, half))
            patches = ops.reshape(ops.concatenate([x, y], axis=-1), (rows * columns, 2 * half))
        return ops.pad(patches, ((int(self.class_token), 0), (0, 0)))[None]

    def call(self, x):
        return x + ops.cast(self.table(), x.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {
            **super().get_config(),
            "kind": self.kind,
            "grid": self.grid,
            "class_token": self.class_token,
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


def sincos_2d(grid, width, temperature=10_000.0):
    """Fixed 2-D position embedding of the "better plain ViT" (as in MoCo v3).

    A quarter of the values each: sin of the column, cos of the column, sin of the row, cos of the
    row, at frequencies from 1 down to 1 / temperature.

    Args:
        grid: (rows, columns).
        width: length of a vector, a multiple of 4.

    Returns:
        float64 array of shape (rows * columns, width), positions in reading order.
    """
    _check_multiple(width, 4, "sincos_2d")
    row, column = np.mgrid[: grid[0], : grid[1]].reshape(2, -1, 1)
    frequency = temperature ** -np.linspace(0.0, 1.0, width // 4)
    return np.concatenate(
        [f(place * frequency) for place in (column, row) for f in (np.sin, np.cos)], axis=1
    )


def _check_multiple(width, factor, kind):
    if width % factor:
        raise ValueError(
            f"The position embedding {kind!r} needs a width that {factor} divides. "
            f"Received: width={width}."
        )
