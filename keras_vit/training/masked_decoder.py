"""Which patches a masked autoencoder hides, and what fills them in (He et al., 2022)."""

import keras
import numpy as np
from keras import ops

from keras_vit.checks import positive_int
from keras_vit.layers import RematTransformerBlock, TransformerBlock
from keras_vit.layers.layer import Layer
from keras_vit.layers.linear import Linear
from keras_vit.layers.norm import LayerNorm
from keras_vit.layers.position import sincos_2d, small_normal
from keras_vit.training.masked_images import DrawnPatches, gather, ordered


@keras.saving.register_keras_serializable("keras_vit")
class MaskPatches(DrawnPatches):
    """Draws which patches of each image the encoder does not see.

    Those with the smallest random numbers stay visible: N * (1 - masked) of them, rounded down.

    Shapes: (batch, N, width) -> the patches in a random order, the visible ones first, and the
    place of each patch in that order; twice (batch, N) of integers.

    Args:
        masked: share of the patches that are hidden, in (0, 1).
        seed: optional integer for repeatable draws in training.
    """

    def __init__(self, masked=0.75, seed=None, **kwargs):
        super().__init__(seed, **kwargs)
        if isinstance(masked, bool) or not 0 < masked < 1:
            raise ValueError(
                f"masked must be a share in (0, 1), such as 0.75. Received: {masked=}."
            )
        self.masked = float(masked)

    def build(self, input_shape):
        super().build(input_shape)
        self.visible = int(self.patches * (1 - self.masked))
        if not 0 < self.visible < self.patches:
            raise ValueError(
                f"Some of the {self.patches} patches must be visible, and some masked. Received: "
                f"masked={self.masked}, which leaves {self.visible} visible; choose another share, "
                "or smaller patches."
            )

    def call(self, x, noise=None, training=False):
        return ordered(self.draw(x, training)[0] if noise is None else noise)


@keras.saving.register_keras_serializable("keras_vit")
class MaskedDecoder(Layer):
    """A narrow Transformer that fills in the patches which the encoder did not see.

    One learned token stands for every hidden patch, and fixed sines and cosines of column and row
    say where each patch is. The table is kept with the weights, as in the authors' files.

    Shapes: tokens (batch, learned + visible, encoder width), places (batch, N) -> (batch, N, P²·C).

    Args:
        grid: (rows, columns) of patches.
        learned_tokens: tokens of the encoder before those of the patches.
        pixels: P²·C, values of a patch.
        width, depth, num_heads, mlp_dim: of its blocks.
        gelu, qkv_bias, epsilon: as in `TransformerBlock`.
        remat: whether the backward pass computes each block again.
    """

    integers = ("places",)

    def __init__(
        self,
        grid,
        learned_tokens,
        pixels,
        width,
        depth,
        num_heads,
        mlp_dim,
        gelu="tanh",
        qkv_bias=True,
        epsilon=1e-6,
        remat=False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        dtype = self.dtype_policy
        self.grid, self.learned_tokens = tuple(grid), learned_tokens
        self.width = positive_int(width, "decoder_width")
        options = {"gelu": gelu, "qkv_bias": qkv_bias, "epsilon": epsilon, "dtype": dtype}
        block = RematTransformerBlock if remat else TransformerBlock
        self.embed = Linear("btd,dk->btk", (None, width), bias_axes="k", dtype=dtype, name="embed")
        self.blocks = [
            block(num_heads, mlp_dim, **options, name=f"block_{i}")
            for i in range(positive_int(depth, "decoder_depth"))
        ]
        self.norm = LayerNorm(epsilon, dtype=dtype, name="norm")
        # Half precision would be too coarse for the loss.
        precise = self.dtype_policy.variable_dtype
        self.prediction = Linear(
            "btd,dk->btk", (None, pixels), bias_axes="k", dtype=precise, name="prediction"
        )

    def build(self, input_shape):
        table = np.pad(
            sincos_2d(self.grid, self.width, endpoint=False), ((self.learned_tokens, 0), (0, 0))
        )
        self.mask = self.add_weight((1, 1, self.width), small_normal(), name="mask")
        self.position = self.add_weight(
            (1, *table.shape),
            lambda shape, dtype: ops.convert_to_tensor(table[None], dtype),
            trainable=False,
            name="position",
        )
        self.embed.build(input_shape)
        for layer in (*self.blocks, self.norm, self.prediction):
            layer.build((None, None, self.width))

    def call(self, tokens, places, training=False):
        x = self.embed(tokens)
        learned, visible = x[:, : self.learned_tokens], x[:, self.learned_tokens :]
        hidden = places.shape[1] - visible.shape[1]
        hidden = ops.broadcast_to(
            ops.cast(self.mask, x.dtype), (ops.shape(x)[0], hidden, self.width)
        )
        patches = gather(ops.concatenate([visible, hidden], axis=1), places)
        x = ops.concatenate([learned, patches], axis=1) + ops.cast(self.position, x.dtype)
        for block in self.blocks:
            x = block(x, training=training)
        return self.prediction(self.norm(x[:, self.learned_tokens :]))

    def compute_output_spec(self, tokens, places, training=False):
        pixels = self.prediction.partial_output_shape[-1]
        return self._output((*places.shape, pixels), self.prediction.compute_dtype)
