"""Patches of images of any shape, in sequences of one length (NaFlex; Tschannen et al., 2025)."""

import keras
from keras import ops

from keras_vit.checks import pair, positive_int
from keras_vit.layers import kernels
from keras_vit.layers.layer import Layer
from keras_vit.layers.patch_encoder import patch_projection
from keras_vit.layers.position import small_normal
from keras_vit.layers.resample import bilinear_antialias


@keras.saving.register_keras_serializable("keras_vit")
class NaFlexPosition(Layer):
    """Adds a position table of (rows, columns) `grid` that is resampled to the grid of each image.

    It is resampled by `"bilinear_antialias"` of `resize_matrix`. Tokens beyond the patches of an
    image get the vector of its first patch, as in transformers.

    Shapes: tokens in reading order, (batch, tokens, width), and the (rows, columns) of each image,
    integers (batch, 2) -> (batch, tokens, width).
    """

    integers = ("shapes",)

    def __init__(self, grid, **kwargs):
        super().__init__(**kwargs)
        self.grid = pair(grid, "grid")

    def build(self, input_shape):
        shape = (1, self.grid[0] * self.grid[1], input_shape[-1])
        self.embedding = self.add_weight(shape, small_normal(), name="embedding")

    def call(self, x, shapes):
        shapes, dtype = ops.cast(shapes, "int32"), kernels.at_least_float32(self.variable_dtype)
        rows, columns = shapes[:, :1], shapes[:, 1:]
        token = ops.arange(ops.shape(x)[1], dtype="int32")[None]
        token = ops.where(token < rows * columns, token, 0)
        row, column = (
            bilinear_antialias(ops, ops.cast(place, dtype), old, ops.cast(new, dtype))
            for place, old, new in (
                (token // columns, self.grid[0], rows),
                (token % columns, self.grid[1], columns),
            )
        )
        weights = row[:, :, :, None] * column[:, :, None, :]
        weights = ops.reshape(weights, (*ops.shape(token), self.grid[0] * self.grid[1]))
        table = ops.einsum("btp,pd->btd", weights, ops.cast(self.embedding[0], dtype))
        return x + ops.cast(table, x.dtype)


@keras.saving.register_keras_serializable("keras_vit")
class NaFlexPatchEncoder(Layer):
    """Patches of images of any shape become tokens, each with the position in its image.

    Shapes: (batch, tokens, P²·C), (batch, 2) -> (batch, tokens, width). `patches` and `shapes` are
    as in `NaFlexVisionTransformer`; `grid` is as in `NaFlexPosition`.
    """

    integers = ("shapes",)

    def __init__(self, width, grid, **kwargs):
        super().__init__(**kwargs)
        self.width = positive_int(width, "width")
        self.projection = patch_projection(width, dtype=self.dtype_policy)
        self.position = NaFlexPosition(grid, dtype=self.dtype_policy, name="position")

    def build(self, input_shape):
        self.projection.build(input_shape)
        self.position.build((*input_shape[:-1], self.width))

    def call(self, patches, shapes):
        return self.position(self.projection(patches), shapes)

    def compute_output_spec(self, patches, shapes):
        return self._output((*patches.shape[:-1], self.width))
