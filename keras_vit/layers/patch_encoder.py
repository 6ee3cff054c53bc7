"""Patches become tokens (Eq. 1)."""

import math

import keras
from keras import ops

from keras_vit.checks import pair, positive_int
from keras_vit.layers.dropout import Dropout
from keras_vit.layers.layer import Layer
from keras_vit.layers.linear import Linear
from keras_vit.layers.position import PositionEmbedding


def patch_projection(width, bias=True, dtype=None):
    """E of Eq. 1: (batch, N, P²·C) -> (batch, N, width)."""
    return Linear(
        "bnp,pd->bnd",
        (None, width),
        bias_axes="d" if bias else None,
        kernel_initializer="lecun_normal",
        dtype=dtype,
        name="projection",
    )


@keras.saving.register_keras_serializable("keras_vit")
class PatchEncoder(Layer):
    """z_0 = [x_class; x_p¹ E; ...; x_pᴺ E] + E_pos (Eq. 1).

    Shapes: (batch, N, P²·C) -> (batch, N + 1, width), or (batch, N, width) without class token.
    Patches that keep their grid, (batch, rows, columns, P²·C), may be of another grid than the
    position embedding, which is then resampled.

    Args:
        width: D, the length of a token.
        grid: (rows, columns) of patches, N = rows * columns.
        class_token: whether a learned token is prepended.
        position: `"learned_1d"`, `"learned_2d"`, `"sincos_2d"`, or `"none"` where no position
            embedding belongs at the input.
        dropout: rate on the tokens in training.
        interpolation: how the position embedding is resampled, a method of `resize_matrix`.
    """

    def __init__(
        self,
        width,
        grid,
        class_token=True,
        position="learned_1d",
        dropout=0.0,
        interpolation="align_corners",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.width, self.grid = positive_int(width, "width"), pair(grid, "grid")
        self.has_class_token = bool(class_token)
        self.learned_tokens = int(class_token)  # before those of the patches
        policy = self.dtype_policy
        self.projection = patch_projection(width, dtype=policy)
        self.position = None
        if position != "none":
            options = {"interpolation": interpolation, "dtype": policy, "name": "position"}
            self.position = PositionEmbedding(position, grid, class_token=class_token, **options)
        self.dropout = Dropout.of(dropout, dtype=policy, name="dropout")

    def build(self, input_shape):
        batch, *grid, values = input_shape
        self.projection.build((batch, None, values))
        self.build_tokens()
        if self.position is not None:
            tokens = self.compute_output_shape(input_shape)[1] if len(grid) == 1 else None
            self.position.build((batch, tokens, self.width))

    def build_tokens(self):
        self.class_token = None
        if self.has_class_token:
            self.class_token = self.add_weight((1, 1, self.width), "zeros", name="class_token")

    def call(self, patches, training=False):
        grid = ops.shape(patches)[1:3] if len(patches.shape) == 4 else None
        if grid is not None:
            patches = ops.reshape(patches, (-1, grid[0] * grid[1], patches.shape[3]))
        x = self.prepend_learned_tokens(self.project(patches))
        if self.position is not None:
            x = self.position(x, grid=grid)
        return self.dropout(x, training=training)

    def project(self, patches):
        """x_p E: (batch, N, P²·C) -> (batch, N, width)."""
        return self.projection(patches)

    def prepend_learned_tokens(self, x):
        """[x_class; x], or `x` without class token."""
        return prepend([self.class_token], x)

    def compute_output_spec(self, patches, training=False):
        batch, *grid, _ = patches.shape
        tokens = None if None in grid else self.learned_tokens + math.prod(grid)
        return self._output((batch, tokens, self.width))


def prepend(tokens, x):
    """Learned tokens, each `None` or of shape (1, count, width), before those of each image."""
    tokens = [ops.cast(token, x.dtype) for token in tokens if token is not None]
    if not tokens:
        return x
    first = ops.concatenate(tokens, axis=1)
    first = ops.broadcast_to(first, (ops.shape(x)[0], *first.shape[1:]))
    return ops.concatenate([first, x], axis=1)
