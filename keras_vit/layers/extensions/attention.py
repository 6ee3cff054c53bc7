"""Attention with further norms, other biases or no query projection, and along one axis."""

import keras
from keras import ops

from keras_vit.checks import check_choice, pair
from keras_vit.extensions import get_extensions
from keras_vit.layers import kernels
from keras_vit.layers.extensions.norm import NORMS
from keras_vit.layers.relative import RelativeAttention


@keras.saving.register_keras_serializable("keras_vit")
class ExtendedAttention(RelativeAttention):
    """Attention whose biases, norms and pairs of rotary positions are fields of `Extensions`.

    Queries and keys are normalised before they are turned, the joined heads before Eq. 8.

    Shapes: (batch, tokens, width) -> the same.

    Args:
        num_heads, qkv_bias, dropout: as in `MultiHeadSelfAttention`.
        epsilon: of the norms.
        extensions: `keras_vit.Extensions`, or its fields as a dict.
        project_query: whether there is a query projection; if not, `x` are the queries.
    """

    def __init__(
        self,
        num_heads,
        qkv_bias=True,
        dropout=0.0,
        epsilon=1e-6,
        extensions=None,
        project_query=True,
        **kwargs,
    ):
        super().__init__(num_heads, qkv_bias, dropout, **kwargs)
        self.extensions, self.project_query = get_extensions(extensions), project_query
        rotary, dtype = self.extensions.rotary, self.dtype_policy
        self.pairs = rotary.pairs if rotary else "halves"
        qk_norm, norm = NORMS[self.extensions.qk_norm], NORMS[self.extensions.attention_norm]
        self.query_norm = qk_norm(epsilon, dtype=dtype, name="query_norm")
        self.key_norm = qk_norm(epsilon, dtype=dtype, name="key_norm")
        self.norm = norm(epsilon, dtype=dtype, name="norm")

    def build(self, input_shape):
        for name in ("query", "key", "value") if self.project_query else ("key", "value"):
            use_bias = self.qkv_bias and self.extensions.has_bias(name)
            setattr(self, name, self.head_projection(name, input_shape, use_bias))
        self.out = self.output_projection(input_shape, use_bias=self.extensions.has_bias("out"))
        heads = (*input_shape[:-1], self.num_heads, input_shape[-1] // self.num_heads)
        self.query_norm.build(heads)
        self.key_norm.build(heads)
        self.norm.build(input_shape)

    def queries(self, x, rotation=None):
        heads = (*ops.shape(x)[:2], self.num_heads, x.shape[-1] // self.num_heads)
        q = self.query(x) if self.project_query else ops.reshape(x, heads)
        return kernels.rotate(self.query_norm(q), rotation, pairs=self.pairs)

    def keys(self, x, rotation=None):
        return kernels.rotate(self.key_norm(self.key(x)), rotation, pairs=self.pairs)

    def join(self, heads):
        if self.extensions.attention_norm:
            shape, width = ops.shape(heads), heads.shape[2] * heads.shape[3]
            heads = ops.reshape(self.norm(ops.reshape(heads, (*shape[:2], width))), shape)
        return self.out(heads)


@keras.saving.register_keras_serializable("keras_vit")
class AxialAttention(ExtendedAttention):
    """Attention that stays within a row, or a column, of the patches (appendix D.6).

    It costs rows + columns products for a patch instead of rows * columns.

    Shapes: (batch, rows * columns, width) -> the same.

    Args:
        num_heads, **kwargs: as in `ExtendedAttention`.
        grid: (rows, columns) of the patches.
        axis: `"row"`, in which the patches of a row see each other, or `"column"`.
    """

    def __init__(self, num_heads, grid, axis="row", **kwargs):
        super().__init__(num_heads, **kwargs)
        check_choice("axis", axis, ("row", "column"))
        self.grid, self.axis = pair(grid, "grid"), axis

    def build(self, input_shape):
        rows, columns = self.grid
        if input_shape[1] != rows * columns:
            raise ValueError(
                f"Axial attention takes the {rows * columns} patches of its grid alone. Received: "
                f"grid={self.grid}, shape {tuple(input_shape)}."
            )
        super().build(input_shape)

    def call(self, x, training=False):
        return self.from_lines(super().call(self.to_lines(x), training=training))

    def scores(self, x):
        """A of Eq. 6 over all patches: 0 between patches of different rows (or columns)."""
        scores = super().scores(self.to_lines(x))
        _, heads, length, _ = scores.shape
        lines = self.grid[0] * self.grid[1] // length
        scores = ops.reshape(scores, (-1, lines, heads, length, length))
        same = ops.eye(lines, dtype=scores.dtype)
        order = "bhltms" if self.axis == "row" else "bhtlsm"
        scores = ops.einsum(f"blhts,lm->{order}", scores, same)
        return ops.reshape(scores, (-1, heads, lines * length, lines * length))

    def to_lines(self, x):
        """(batch, rows * columns, width) -> (batch * rows, columns, width), or with columns."""
        rows, columns = self.grid
        if self.axis == "row":
            return ops.reshape(x, (-1, columns, x.shape[-1]))
        x = ops.transpose(ops.reshape(x, (-1, rows, columns, x.shape[-1])), (0, 2, 1, 3))
        return ops.reshape(x, (-1, rows, x.shape[-1]))

    def from_lines(self, x):
        """The inverse of `to_lines`."""
        rows, columns = self.grid
        if self.axis == "column":
            x = ops.reshape(x, (-1, columns, rows, x.shape[-1]))
            x = ops.transpose(x, (0, 2, 1, 3))
        return ops.reshape(x, (-1, rows * columns, x.shape[-1]))
