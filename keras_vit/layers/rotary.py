"""Rotary positions, which later families turn queries and keys by (Su et al., 2021)."""

import math

import keras
import numpy as np
from keras import ops

from keras_vit.checks import check_choice, pair
from keras_vit.layers import kernels


def dinov3_angles(grid, half_width, xp, dtype):
    """The angles of DINOv3 (Siméoni et al., 2025): rows and columns from -1 to 1, periods to 100.

    Shapes: (rows, columns) -> (rows * columns, half_width), rows in the first half.
    """
    count = half_width // 2
    frequency = xp.array(2 * math.pi * 100.0 ** (-np.arange(count) / count), dtype=dtype)
    places = [(2 * xp.arange(n, dtype=dtype) + 1) / xp.array(n, dtype=dtype) - 1 for n in grid]
    angles = [xp.reshape(p, (-1, 1)) * frequency for p in xp.meshgrid(*places, indexing="ij")]
    return xp.concatenate(angles, axis=1)


ROTARIES = {"dinov3": dinov3_angles}


@keras.saving.register_keras_serializable("keras_vit")
class RotaryPosition(keras.layers.Layer):
    """Cosines and sines of the angles by which `rotate` turns the tokens of one image.

    Learned tokens, which have no place in the grid, are not turned: their angle is 0.

    Shapes: patches (batch, N, values) or (batch, rows, columns, values) -> (2, tokens,
    head width), cosines first.

    Args:
        kind: a name of `ROTARIES`.
        head_width: D_h; a multiple of 4.
        grid: (rows, columns) of patches, where these do not tell it.
        learned_tokens: number of tokens before those of the patches.
    """

    def __init__(self, kind, head_width, grid, learned_tokens=0, **kwargs):
        super().__init__(**kwargs)
        check_choice("kind", kind, tuple(ROTARIES))
        if head_width % 4:
            raise ValueError(
                "Rotary positions need a head width that 4 divides. Received: "
                f"head_width={head_width}; choose another width or num_heads."
            )
        self.kind, self.head_width = kind, head_width
        self.grid, self.learned_tokens = pair(grid, "grid"), learned_tokens
        self.fixed = self._table(self.grid, np, "float64")

    def call(self, patches):
        if len(patches.shape) == 3:
            return ops.cast(kernels.constant(self.fixed), self.compute_dtype)
        dtype = kernels.at_least_float32(self.variable_dtype)
        return ops.cast(self._table(ops.shape(patches)[1:3], ops, dtype), self.compute_dtype)

    def _table(self, grid, xp, dtype):
        angles = ROTARIES[self.kind](grid, self.head_width // 2, xp, dtype)
        angles = xp.pad(angles, ((self.learned_tokens, 0), (0, 0)))
        angles = xp.concatenate([angles, angles], axis=1)  # one for each half of a head
        return xp.stack([xp.cos(angles), xp.sin(angles)])

    def compute_output_spec(self, patches):
        known = patches.shape[1:-1]
        tokens = None if None in known else math.prod(known) + self.learned_tokens
        return keras.KerasTensor((2, tokens, self.head_width), self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "kind": self.kind,
            "head_width": self.head_width,
            "grid": self.grid,
            "learned_tokens": self.learned_tokens,
        }


def rotate(x, rotary):
    """Turns each pair (x_i, x_{i + D_h / 2}) of a token by its angle.

    Shapes: (batch, tokens, heads, D_h), output of `RotaryPosition` -> the same as `x`.
    """
    cos, sin = (part[:, None, :] for part in (rotary[0], rotary[1]))
    first, second = ops.split(x, 2, axis=-1)
    return x * cos + ops.concatenate([-second, first], axis=-1) * sin
