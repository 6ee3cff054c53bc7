"""The other blocks: norms in other places, one branch instead of two, attention along one axis."""

import keras
from keras import ops

from keras_vit.checks import check_choice, pair
from keras_vit.layers.transformer_block import (
    Remat,
    RematTransformerBlock,
    TransformerBlock,
    unchanged,
)


@keras.saving.register_keras_serializable("keras_vit")
class PostNormBlock(TransformerBlock):
    """Norms come last: z' = LN(MSA(z)) + z, z'' = LN(MLP(z')) + z' (Liu et al., 2022).

    Shapes and arguments are those of `TransformerBlock`, without LayerScale, as the norm's gamma is
    such a factor.
    """

    def around(self, attend, x, training=False, between=unchanged):
        y = self.norm_1(self.dropout(attend(x), training=training))
        x = between(x + self.drop_path_1(y, training=training))
        y = self.norm_2(self.mlp(x, training=training))
        return x + self.drop_path_2(y, training=training)

    def attention_scores(self, x, relative_position=None):
        """As in `TransformerBlock`."""
        return self.attention(x, relative_position=relative_position, return_attention_scores=True)[
            1
        ]


@keras.saving.register_keras_serializable("keras_vit")
class ParallelBlock(TransformerBlock):
    """A block of one branch: z' = MSA(LN(z)) + MLP(LN(z)) + z (Dehghani et al., 2023).

    Shapes and arguments are those of `TransformerBlock`.
    """

    one_branch = True

    def around(self, attend, x, training=False):
        y = self.norm_1(x)
        y = self.dropout(attend(y), training=training) + self.mlp(y, training=training)
        return x + self.drop_path_1(self.layer_scale_1(y), training=training)


@keras.saving.register_keras_serializable("keras_vit")
class AddNormBlock(PostNormBlock):
    """The block of the first Transformer: z' = LN(MSA(z) + z), z'' = LN(MLP(z') + z').

    The norms stand outside of the residual branches, "Add & Norm" in Figure 1 of Vaswani et al.
    (2017), so that no path around them goes from the first block to the last. Shapes and arguments
    are those of `TransformerBlock`.
    """

    def around(self, attend, x, training=False):
        y = self.layer_scale_1(self.dropout(attend(x), training=training))
        x = self.norm_1(x + self.drop_path_1(y, training=training))
        y = self.layer_scale_2(self.mlp(x, training=training))
        return self.norm_2(x + self.drop_path_2(y, training=training))


@keras.saving.register_keras_serializable("keras_vit")
class AxialBlock(TransformerBlock):
    """A block whose attention stays within a row, or a column, of the patches (appendix D.6).

    In an Axial-ViT two of them, along rows and then along columns, each with its own MLP, stand in
    place of one `TransformerBlock` (Ho et al., 2019; Wang et al., 2020). Attention then costs
    rows + columns products for a patch instead of rows * columns. There is no class token, of which
    the paper does not speak.

    Shapes: (batch, rows * columns, width) -> the same.

    Args:
        num_heads, mlp_dim: as in `TransformerBlock`, with its other arguments as keywords.
        grid: (rows, columns) of the patches.
        axis: `"row"`, in which the patches of a row see each other, or `"column"`. Neither has
            relative positions, so that `relative_position` must be `None`.
    """

    def __init__(self, num_heads, mlp_dim, grid, axis="row", **kwargs):
        super().__init__(num_heads, mlp_dim, **kwargs)
        check_choice("axis", axis, ("row", "column"))
        self.grid, self.axis = pair(grid, "grid"), axis

    def build(self, input_shape):
        rows, columns = self.grid
        if input_shape[1] != rows * columns:
            raise ValueError(
                f"An axial block takes the {rows * columns} patches of its grid alone. Received: "
                f"grid={self.grid}, shape {tuple(input_shape)}."
            )
        super().build(input_shape)

    def call(self, x, relative_position=None, training=False):
        def attend(tokens):
            return self._joined(self.attention(self._lines(tokens), training=training))

        return self.around(attend, x, training)

    def attention_scores(self, x, relative_position=None):
        """A of Eq. 6 over all patches: 0 between patches of different rows (or columns).

        Shapes: (batch, patches, width) -> (batch, heads, patches, patches).
        """
        scores = super().attention_scores(self._lines(x))
        _, heads, length, _ = scores.shape
        lines = self.grid[0] * self.grid[1] // length
        scores = ops.reshape(scores, (-1, lines, heads, length, length))
        same = ops.eye(lines, dtype=scores.dtype)
        order = "bhltms" if self.axis == "row" else "bhtlsm"
        scores = ops.einsum(f"blhts,lm->{order}", scores, same)
        return ops.reshape(scores, (-1, heads, lines * length, lines * length))

    def _lines(self, x):
        """(batch, rows * columns, width) -> (batch * rows, columns, width), or with columns."""
        rows, columns = self.grid
        if self.axis == "row":
            return ops.reshape(x, (-1, columns, x.shape[-1]))
        x = ops.transpose(ops.reshape(x, (-1, rows, columns, x.shape[-1])), (0, 2, 1, 3))
        return ops.reshape(x, (-1, rows, x.shape[-1]))

    def _joined(self, x):
        """The inverse of `_lines`."""
        rows, columns = self.grid
        if self.axis == "column":
            x = ops.reshape(x, (-1, columns, rows, x.shape[-1]))
            x = ops.transpose(x, (0, 2, 1, 3))
        return ops.reshape(x, (-1, rows * columns, x.shape[-1]))


@keras.saving.register_keras_serializable("keras_vit")
class RematPostNormBlock(Remat, PostNormBlock):
    """A `PostNormBlock` that is computed again in the backward pass."""


@keras.saving.register_keras_serializable("keras_vit")
class RematAddNormBlock(Remat, AddNormBlock):
    """An `AddNormBlock` that is computed again in the backward pass."""


@keras.saving.register_keras_serializable("keras_vit")
class RematParallelBlock(Remat, ParallelBlock):
    """A `ParallelBlock` that is computed again in the backward pass."""


@keras.saving.register_keras_serializable("keras_vit")
class RematAxialBlock(Remat, AxialBlock):
    """An `AxialBlock` that is computed again in the backward pass."""


BLOCKS = {  # (`Extensions.block`, remat)
    ("pre_norm", False): TransformerBlock,
    ("pre_norm", True): RematTransformerBlock,
    ("post_norm", False): PostNormBlock,
    ("post_norm", True): RematPostNormBlock,
    ("add_norm", False): AddNormBlock,
    ("add_norm", True): RematAddNormBlock,
    ("parallel", False): ParallelBlock,
    ("parallel", True): RematParallelBlock,
    ("axial", False): AxialBlock,
    ("axial", True): RematAxialBlock,
}
