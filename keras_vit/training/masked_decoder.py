"""The decoder of a masked autoencoder, and its files (He et al., 2022)."""

import re

import keras
import numpy as np
from keras import ops

from keras_vit.checks import positive_int
from keras_vit.layers import RematTransformerBlock, TransformerBlock
from keras_vit.layers.layer import Layer
from keras_vit.layers.linear import Linear
from keras_vit.layers.norm import LayerNorm
from keras_vit.layers.position import sincos_2d, small_normal
from keras_vit.text import shortened
from keras_vit.training.masked_images import gather
from keras_vit.weights.files import open_checkpoint
from keras_vit.weights.formats import huggingface
from keras_vit.weights.safety import CheckpointError
from keras_vit.weights.tables import SAME, Table, split_heads, torch_linear, torch_norm

# In files of Hugging Face's `ViTMAEForPreTraining` the blocks of the decoder have the names of an
# encoder's, behind one of these.
BLOCKS = re.compile(r"decoder\.decoder_(layers|encoder\.layer)\.")
OTHERS = Table(
    ("decoder.mask_token", "mask", SAME),
    ("decoder.decoder_pos_embed", "position", SAME),
    *torch_linear("decoder.decoder_embed", "embed"),
    *torch_norm("decoder.decoder_norm", "norm"),
    *torch_linear("decoder.decoder_pred", "prediction"),
)


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
        width, depth, num_heads, mlp_dim, gelu, qkv_bias, epsilon: of its `TransformerBlock`s.
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
        self.grid, self.learned_tokens = tuple(grid), learned_tokens
        self.width, dtype = positive_int(width, "decoder_width"), self.dtype_policy
        options = {"gelu": gelu, "qkv_bias": qkv_bias, "epsilon": epsilon, "dtype": dtype}
        block = RematTransformerBlock if remat else TransformerBlock
        self.embed = Linear("btd,dk->btk", (None, width), bias_axes="k", dtype=dtype, name="embed")
        self.blocks = [
            block(num_heads, mlp_dim, **options, name=f"block_{i}")
            for i in range(positive_int(depth, "decoder_depth"))
        ]
        self.norm = LayerNorm(epsilon, dtype=dtype, name="norm")
        dtype = dtype.variable_dtype  # half precision would be too coarse for the loss
        self.prediction = Linear(
            "btd,dk->btk", (None, pixels), bias_axes="k", dtype=dtype, name="prediction"
        )

    def build(self, input_shape):
        table = sincos_2d(self.grid, self.width, endpoint=False)
        table = np.pad(table, ((self.learned_tokens, 0), (0, 0)))[None]
        initial = keras.initializers.Constant(table)
        self.mask = self.add_weight((1, 1, self.width), small_normal(), name="mask")
        self.position = self.add_weight(table.shape, initial, trainable=False, name="position")
        self.embed.build(input_shape)
        for layer in (*self.blocks, self.norm, self.prediction):
            layer.build((None, None, self.width))

    def call(self, tokens, places, training=False):
        x = self.embed(tokens)
        learned, visible = x[:, : self.learned_tokens], x[:, self.learned_tokens :]
        shape = (ops.shape(x)[0], places.shape[1] - visible.shape[1], self.width)
        hidden = ops.broadcast_to(ops.cast(self.mask, x.dtype), shape)
        patches = gather(ops.concatenate([visible, hidden], axis=1), places)
        x = ops.concatenate([learned, patches], axis=1) + ops.cast(self.position, x.dtype)
        for block in self.blocks:
            x = block(x, training=training)
        return self.prediction(self.norm(x[:, self.learned_tokens :]))

    def compute_output_spec(self, tokens, places, training=False):
        pixels = self.prediction.partial_output_shape[-1]
        return self._output((*places.shape, pixels), self.prediction.compute_dtype)


def read_decoder(path):
    """The decoder of a folder: arguments of `MaskedAutoencoder`, and its arrays by variable.

    Raises:
        CheckpointError: there is none, it is damaged, or config.json is of another model.
    """
    contents = open_checkpoint(path)
    others = {name: x for name, x in contents.arrays.items() if name.startswith("decoder.")}
    blocks = {BLOCKS.sub("layers.", n): others.pop(n) for n in [*others] if BLOCKS.match(n)}
    if not blocks or not others:
        raise CheckpointError(
            f"{str(path)!r} has no decoder of a masked autoencoder: no arrays have names such as "
            f"'decoder.decoder_layers.0'. Received: {shortened([*blocks, *others], 3)}; take "
            "keras_vit.from_checkpoint for the encoder alone."
        )
    arrays, *_ = huggingface.FAMILY.table.read(blocks, "a masked autoencoder")
    arrays |= OTHERS.read(others, "a masked autoencoder")[0]
    config = contents.config
    heads = positive_int(config.get("decoder_num_attention_heads", 16), "decoder_heads")
    split_heads(arrays, heads)
    hidden = arrays.get("block_0/mlp/dense_1/kernel", np.zeros((0, 0)))
    depth = len({name.split("/")[0] for name in arrays if name.startswith("block_")})
    sizes = {  # argument -> the key of config.json, and the value that the arrays have
        "decoder_width": ("decoder_hidden_size", len(hidden)),
        "decoder_depth": ("decoder_num_hidden_layers", depth),
        "decoder_mlp_dim": ("decoder_intermediate_size", hidden.shape[1]),
    }
    for key, value in sizes.values():
        if not value or config.get(key, value) != value:
            raise CheckpointError(
                f"{str(path)!r}: the decoder is not that of config.json, or damaged. Received: "
                f"{key}={config.get(key)!r}, and {value} in the arrays."
            )
    options = {name: value for name, (_, value) in sizes.items()}
    options |= {"decoder_heads": heads, "masked": config.get("mask_ratio", 0.75)}
    return options | {"norm_pix_loss": config.get("norm_pix_loss", False)}, arrays


def assign_decoder(decoder, arrays, path):
    """Gives a decoder its arrays: all of them, or a CheckpointError and none."""
    variables = {v.path.removeprefix(f"{decoder.path}/"): v for v in decoder.weights}
    shapes = [{n: tuple(x.shape) for n, x in side.items()} for side in (variables, arrays)]
    names = sorted({*variables, *arrays})
    wrong = [name for name in names if shapes[0].get(name) != shapes[1].get(name)]
    wrong += [name for name, array in arrays.items() if not np.isfinite(array).all()]
    if wrong:
        raise CheckpointError(
            f"The decoder in {str(path)!r} does not fit, is damaged or not finite in "
            f"{shortened(wrong, 6)} (as (model, file): "
            f"{[(shapes[0].get(n), shapes[1].get(n)) for n in wrong[:3]]}); nothing was loaded."
        )
    for name, variable in variables.items():
        variable.assign(arrays[name])
