"""Patches become tokens (Eq. 1)."""

import keras
from keras import ops

from keras_vit.checks import pair, positive_int
from keras_vit.layers.dropout import Dropout
from keras_vit.layers.linear import Linear
from keras_vit.layers.position import PositionEmbedding


@keras.saving.register_keras_serializable("keras_vit")
class PatchEncoder(keras.layers.Layer):
    """z_0 = [x_class; x_p¹ E; ...; x_pᴺ E] + E_pos (Eq. 1).

    Shapes: (batch, N, P²·C) -> (batch, N + 1, width), or (batch, N, width) without class token.

    Args:
        width: D, the length of a token.
        grid: (rows, columns) of patches, N = rows * columns.
        class_token: whether a learned token is prepended.
        position: `"learned_1d"`, `"learned_2d"`, `"sincos_2d"`, or `"none"` where no position
            embedding belongs at the input.
        dropout: rate on the tokens in training.
    """

    def __init__(
        self,
        width,
        grid,
        class_token=True,
        position="learned_1d",
        dropout=0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.width, self.grid = positive_int(width, "width"), pair(grid, "grid")
        self.has_class_token, self.kind = class_token, position
        policy = self.dtype_policy
        self.projection = Linear(
            "bnp,pd->bnd",
            (None, width),
            bias_axes="d",
            kernel_initializer="lecun_normal",
            dtype=policy,
            name="projection",
        )
        self.position = None
        if position != "none":
            self.position = PositionEmbedding(
                position, grid, class_token, dtype=policy, name="position"
            )
        self.dropout = Dropout(dropout, dtype=policy, name="dropout")

    def build(self, input_shape):
        self.projection.build(input_shape)
        if self.has_class_token:
            self.class_token = self.add_weight(
                (1, 1, self.width), initializer="zeros", name="class_token"
            )
        if self.position is not None:
            self.position.build(self.compute_output_shape(input_shape))
        self.built = True

    def call(self, patches, training=False):
        x = self.projection(patches)
        if self.has_class_token:
            first = ops.broadcast_to(self.class_token, (ops.shape(x)[0], 1, self.width))
            x = ops.concatenate([ops.cast(first, x.dtype), x], axis=1)
        if self.position is not None:
            x = self.position(x)
        return self.dropout(x, training=training)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], input_shape[1] + self.has_class_token, self.width)

    def get_config(self):
        return {
            **super().get_config(),
            "width": self.width,
            "grid": self.grid,
            "class_token": self.has_class_token,
            "position": self.kind,
            "dropout": self.dropout.rate,
        }
