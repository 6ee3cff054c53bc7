"""Positions in the attention: a bias for each offset of patches, and rotary positions."""

import math

import keras
import numpy as np
from keras import ops

from keras_vit.checks import pair
from keras_vit.extensions import get_rotary
from keras_vit.layers import kernels
from keras_vit.layers.layer import Layer
from keras_vit.layers.resample import resample, resize_matrix


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

    argument = "bias"  # of a block, which takes the output

    def __init__(self, num_heads, grid, class_token=True, **kwargs):
        super().__init__(**kwargs)
        (rows, columns), self.num_heads = pair(grid, "grid"), num_heads
        row, column = (np.arange(n)[:, None] - np.arange(n) + n - 1 for n in (rows, columns))
        index = row[:, None, :, None] * (2 * columns - 1) + column[None, :, None, :]
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


@keras.saving.register_keras_serializable("keras_vit")
class RotaryPosition(Layer):
    """Cosines and sines of the angles by which `kernels.rotate` turns the tokens of one image.

    Learned tokens, which have no place in the grid, are not turned: their angle is 0.

    Shapes: patches (batch, N, values) or (batch, rows, columns, values) -> (2, tokens, 1,
    head width), cosines first; heads instead of 1 where each learns its frequencies.

    Args:
        kind: a `keras_vit.Rotary`, a name of `keras_vit.extensions.ROTARIES`, or a dict of its
            fields.
        num_heads: k.
        head_width: D_h; a multiple of 4.
        grid: (rows, columns) of patches, where these do not tell it.
        learned_tokens: number of tokens before those of the patches.

    Raises:
        ValueError: 4 does not divide `head_width`.
    """

    argument = "rotation"  # of a block, which takes the output

    def __init__(self, kind, num_heads, head_width, grid, learned_tokens=0, **kwargs):
        super().__init__(**kwargs)
        if head_width % 4:
            raise ValueError(
                "Rotary positions need a head width that 4 divides. Received: "
                f"head_width={head_width}; choose another width or num_heads."
            )
        self.rotary, self.num_heads, self.head_width = get_rotary(kind), num_heads, head_width
        self.grid, self.learned_tokens = pair(grid, "grid"), learned_tokens
        if not self.rotary.learned:
            self.frequencies = kernels.Constant(self._frequencies())
            table = self._table(self.grid, self.frequencies.array, np, "float64")
            self.fixed = kernels.Constant(table)

    def build(self, input_shape):
        if self.rotary.learned:
            self.frequencies = self.add_weight(
                (2, self.num_heads, self.head_width // 2), self._drawn, name="frequencies"
            )

    def call(self, patches):
        dtype, keeps_grid = kernels.at_least_float32(self.variable_dtype), len(patches.shape) == 4
        if not keeps_grid and not self.rotary.learned:
            return self.fixed.tensor(patches, self.compute_dtype)
        grid, frequencies = ops.shape(patches)[1:3] if keeps_grid else self.grid, self.frequencies
        if self.rotary.learned:
            frequencies = ops.cast(frequencies, dtype)
        else:
            frequencies = frequencies.tensor(patches, dtype)
        return ops.cast(self._table(grid, frequencies, ops, dtype), self.compute_dtype)

    def _frequencies(self):
        """Those of the first and of the second coordinate in a head: shape (2, 1, D_h / 2)."""
        count = self.head_width // 4
        f = float(self.rotary.temperature) ** (-np.arange(count) / count)
        f = f * 2 * math.pi if self.rotary.places == "centered" else f
        return np.stack([np.concatenate([f, 0 * f]), np.concatenate([0 * f, f])])[:, None]

    def _drawn(self, shape, dtype=None):
        """The frequencies of each head, as directions that are turned by an angle of its own."""
        angle = keras.random.uniform((self.num_heads, 1), 0, 2 * math.pi, dtype="float32")
        f = ops.convert_to_tensor(self._frequencies()[0, 0, : self.head_width // 4], "float32")
        along, across = f * ops.cos(angle), f * ops.sin(angle)
        x, y = ops.concatenate([along, -across], -1), ops.concatenate([across, along], -1)
        return ops.cast(ops.stack([x, y]), dtype)

    def _table(self, grid, frequencies, xp, dtype):
        axes = [self._places(*row, xp, dtype) for row in zip(grid, self.rotary.reference or grid)]
        axes = [xp.reshape(p, (-1, 1, 1)) for p in xp.meshgrid(*axes, indexing="ij")]
        first, second = axes if self.rotary.order == "rows" else axes[::-1]
        angles = first * frequencies[0] + second * frequencies[1]
        angles = xp.pad(angles, ((self.learned_tokens, 0), (0, 0), (0, 0)))
        angles = xp.stack([angles, angles], axis=2 if self.rotary.pairs == "halves" else 3)
        angles = xp.reshape(angles, (-1, angles.shape[1], self.head_width))
        functions = np if xp is np else kernels
        return xp.stack([functions.cos(angles), functions.sin(angles)])

    def _places(self, n, counted, xp, dtype):
        """Where the rows (or columns) of a grid are."""
        places = xp.arange(n, dtype=dtype)
        n = places[-1] + 1
        if self.rotary.places == "centered":
            return (2 * places + 1 + 2 * self.rotary.offset) / n - 1
        places = places + self.rotary.offset
        return places if self.rotary.reference is None else places / n * counted

    def compute_output_spec(self, patches):
        known = patches.shape[1:-1] if len(patches.shape) == 4 else self.grid
        tokens = None if None in known else math.prod(known) + self.learned_tokens
        heads = self.num_heads if self.rotary.learned else 1
        return self._output((2, tokens, heads, self.head_width))


def resize_offsets(table, old_grid, new_grid, method):
    """Biases of attention for offsets of patches (BEiT), resampled from one grid to another.

    With `"bilinear"` offsets are resampled as pixels are, the rule of Hugging Face. Any other
    method stands for the authors' rule (Bao et al., 2022): the old offsets are moved so far apart,
    by distances that grow geometrically from 1, that they reach the new grid's ends, and what lies
    between them is linear, as in timm.

    Shapes: (offsets of the old grid + C, heads) -> (offsets of the new grid + C, heads), where the
    last C are those of a class token, which stay.

    Raises:
        ValueError: the table does not belong to the old grid.
    """
    old, new = ([2 * side - 1 for side in grid] for grid in (old_grid, new_grid))
    offsets = old[0] * old[1]
    if table.ndim != 2 or len(table) not in (offsets, offsets + 3):
        raise ValueError(
            f"The biases of a grid of {tuple(old_grid)} have {offsets} rows, or 3 more with a "
            f"class token. Received: shape {table.shape}."
        )
    matrix = resize_matrix if method == "bilinear" else _geometric_matrix
    resized = resample(table[:offsets], old, [matrix(o, n, method) for o, n in zip(old, new)])
    return np.concatenate([resized.astype(table.dtype), table[offsets:]])


def _geometric_matrix(old, new, method):
    """The matrix of shape (new, old) by which the authors of BEiT resample offsets along an axis.

    Offset k moves to 1 + q + ... + q^(k - 1), where q is the largest, between 1.01 and 1.5, for
    which the last offset stays within the new ones.
    """
    count, low, high = old // 2, 1.01, 1.5
    while high - low > 1e-6:  # by bisection, whose last q is taken, as in the authors' code
        q = (low + high) / 2
        low, high = (low, q) if (1 - q**count) / (1 - q) > new // 2 else (q, high)
    places = np.cumsum(q ** np.arange(count))
    places = np.concatenate([-places[::-1], [0], places])
    wanted = np.arange(new) - new // 2
    return np.stack([np.interp(wanted, places, row) for row in np.eye(old)], axis=1)
