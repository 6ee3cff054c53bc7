"""A bias of attention for each offset of row and column of two patches (Bao et al., 2022)."""

import keras
import numpy as np
from keras import ops

from keras_vit.checks import pair
from keras_vit.layers import kernels
from keras_vit.layers.layer import Layer


@keras.saving.register_keras_serializable("keras_vit")
class RelativePosition2D(Layer):
    """A bias of attention for each head and offset of row and column (Bao et al., 2022).

    A class token has three biases: to the patches, from them, and to itself.

    Shapes: any -> (heads, tokens, tokens), to be added to the scores of queries (first) and keys.

    Args:
        num_heads: k.
        grid: (rows, columns) of patches.
        class_token: whether the first token is a class token.
    """

    def __init__(self, num_heads, grid, class_token=True, **kwargs):
        super().__init__(**kwargs)
        self.num_heads, self.grid, self.class_token = num_heads, pair(grid, "grid"), class_token
        rows, columns = self.grid
        offsets = [np.arange(n)[:, None] - np.arange(n) + n - 1 for n in self.grid]
        index = offsets[0][:, None, :, None] * (2 * columns - 1) + offsets[1][None, :, None, :]
        index = index.reshape(rows * columns, rows * columns)
        self.biases = (2 * rows - 1) * (2 * columns - 1)
        if class_token:
            index = np.pad(index, ((1, 0), (1, 0)), constant_values=self.biases)
            index[1:, 0], index[0, 0] = self.biases + 1, self.biases + 2
            self.biases += 3
        self.tokens, self.index = len(index), kernels.Constant(index.reshape(-1))

    def build(self, input_shape):
        self.table = self.add_weight((self.biases, self.num_heads), "zeros", name="table")

    def call(self, x):
        # Rows, since Keras's `take` of columns on PyTorch squeezes, which ONNX refuses.
        index = self.index.tensor(x)
        bias = ops.take(ops.cast(self.table, self.compute_dtype), index, axis=0)
        return ops.reshape(ops.transpose(bias), (self.num_heads, self.tokens, self.tokens))

    def compute_output_spec(self, x):
        return self._output((self.num_heads, self.tokens, self.tokens))
