"""Blocks of other parts, with norms in other places, one branch, or attention along one axis."""

import functools

import keras

from keras_vit.extensions import get_extensions
from keras_vit.layers.dropout import Dropout, StochasticDepth
from keras_vit.layers.extensions.attention import AxialAttention, ExtendedAttention
from keras_vit.layers.extensions.mlp import MLPS
from keras_vit.layers.extensions.norm import NORMS, LayerScale
from keras_vit.layers.layer import Identity, Layer
from keras_vit.layers.position import PositionEmbedding
from keras_vit.layers.transformer_block import TransformerBlock


def with_position(x, layer):
    """The tokens and the arguments of a block, where a layer of positions stands before it."""
    if layer is None:
        return x, {}
    if isinstance(layer, PositionEmbedding):
        return layer(x), {}
    return x, {layer.argument: layer(x)}


def position_argument(block, position=None):
    """The argument of a block for positions of a graph that does not name it; {} for none."""
    if position is None:
        return {}
    if block.extensions.rotary:
        return {"rotation": position}
    return {"distances" if len(position.shape) == 2 else "bias": position}


@keras.saving.register_keras_serializable("keras_vit", name="ExtendedBlock")
class ExtendedBlock(TransformerBlock):
    """A `TransformerBlock` whose norms, attention and MLP are those that `Extensions` names.

    The attention takes positions, and each branch may end with LayerScale.

    Shapes: (batch, tokens, width) -> the same.

    Args:
        num_heads, mlp_dim, gelu, qkv_bias, epsilon, dropout, attention_dropout, stochastic_depth:
            as in `TransformerBlock`.
        extensions: `keras_vit.Extensions`, or its fields as a dict.
    """

    make_attention = ExtendedAttention
    is_parallel = False  # whether one norm, LayerScale and stochastic depth serve both branches

    def __init__(
        self,
        num_heads,
        mlp_dim,
        gelu="tanh",
        qkv_bias=True,
        epsilon=1e-6,
        dropout=0.0,
        attention_dropout=0.0,
        stochastic_depth=0.0,
        extensions=None,
        **kwargs,
    ):
        Layer.__init__(self, **kwargs)  # `TransformerBlock` would make the paper's parts
        self.extensions = extensions = get_extensions(extensions)
        dtype, initial, rate = self.dtype_policy, extensions.layer_scale, stochastic_depth
        norm, mlp = NORMS[extensions.norm], MLPS[extensions.mlp]
        scale = LayerScale if initial else Identity
        of_parts = {"epsilon": epsilon, "extensions": extensions, "dtype": dtype}
        self.norm_1 = norm(epsilon, dtype=dtype, name="norm_1")
        self.attention = self.make_attention(
            num_heads, qkv_bias=qkv_bias, dropout=attention_dropout, **of_parts, name="attention"
        )
        self.layer_scale_1 = scale(initial, dtype=dtype, name="layer_scale_1")
        self.dropout = Dropout.of(dropout, dtype=dtype, name="dropout")
        self.drop_path_1 = StochasticDepth.of(rate, dtype=dtype, name="drop_path_1")
        if not self.is_parallel:
            self.norm_2 = norm(epsilon, dtype=dtype, name="norm_2")
        self.mlp = mlp(mlp_dim, gelu, dropout=dropout, **of_parts, name="mlp")
        if not self.is_parallel:
            self.layer_scale_2 = scale(initial, dtype=dtype, name="layer_scale_2")
            self.drop_path_2 = StochasticDepth.of(rate, dtype=dtype, name="drop_path_2")

    def build(self, input_shape):
        parts = [self.norm_1, self.attention, self.dropout, self.layer_scale_1, self.drop_path_1]
        if not self.is_parallel:
            parts += [self.norm_2, self.layer_scale_2, self.drop_path_2]
        for layer in [*parts, self.mlp]:
            layer.build(input_shape)

    def taken(self, args, kwargs):
        # Graphs in files of version 0.1 have one name for all positions.
        kwargs |= position_argument(self, kwargs.pop("relative_position", None))
        return super().taken(args, kwargs)

    def call(self, x, training=False, **positions):
        """`positions` are `bias`, `rotation` or `distances`, as in `RelativeAttention`."""
        y = self.attend(self.norm_1(x), positions, training=training)
        x = x + self.drop_path_1(self.layer_scale_1(y), training=training)
        y = self.layer_scale_2(self.mlp(self.norm_2(x), training=training))
        return x + self.drop_path_2(y, training=training)

    def attend(self, x, positions, training=False):
        """The attention, by positions under their names in `call`, and the dropout after it."""
        return self.dropout(self.attention(x, **positions, training=training), training=training)

    def attention_scores(self, x, **positions):
        """As in `TransformerBlock`, with the positions that `call` takes."""
        return self.attention.scores(self.norm_1(x), **positions)


# Keras's files name a layer, and the place of its weights, by its class; these are older than it.
ExtendedBlock.__name__ = "TransformerBlock"


@keras.saving.register_keras_serializable("keras_vit")
class PostNormBlock(ExtendedBlock):
    """Norms come last: z' = LN(MSA(z)) + z, z'' = LN(MLP(z')) + z' (Liu et al., 2022).

    Shapes and arguments are those of `ExtendedBlock`, without LayerScale, as the norm's gamma is
    such a factor.
    """

    def call(self, x, training=False, **positions):
        y = self.norm_1(self.attend(x, positions, training=training))
        x = x + self.drop_path_1(y, training=training)
        y = self.norm_2(self.mlp(x, training=training))
        return x + self.drop_path_2(y, training=training)

    def attention_scores(self, x, **positions):
        return self.attention.scores(x, **positions)


@keras.saving.register_keras_serializable("keras_vit")
class AddNormBlock(PostNormBlock):
    """The block of the first Transformer: z' = LN(MSA(z) + z), z'' = LN(MLP(z') + z').

    The norms stand outside of the residual branches, "Add & Norm" in Figure 1 of Vaswani et al.
    (2017), so that no path around them goes from the first block to the last. Shapes and arguments
    are those of `ExtendedBlock`.
    """

    def call(self, x, training=False, **positions):
        y = self.layer_scale_1(self.attend(x, positions, training=training))
        x = self.norm_1(x + self.drop_path_1(y, training=training))
        y = self.layer_scale_2(self.mlp(x, training=training))
        return self.norm_2(x + self.drop_path_2(y, training=training))


@keras.saving.register_keras_serializable("keras_vit")
class ParallelBlock(ExtendedBlock):
    """A block of one branch: z' = MSA(LN(z)) + MLP(LN(z)) + z (Dehghani et al., 2023).

    Shapes and arguments are those of `ExtendedBlock`.
    """

    is_parallel = True

    def call(self, x, training=False, **positions):
        y = self.norm_1(x)
        y = self.attend(y, positions, training=training) + self.mlp(y, training=training)
        y = self.layer_scale_1(y)
        return x + self.drop_path_1(y, training=training)


@keras.saving.register_keras_serializable("keras_vit")
class AxialBlock(ExtendedBlock):
    """A block whose attention stays within a row, or a column, of the patches (appendix D.6).

    In an Axial-ViT two of them, along rows and then along columns, each with its own MLP, stand in
    place of one `TransformerBlock` (Ho et al., 2019; Wang et al., 2020). There is no class token,
    which the paper does not mention here, and no position in the attention.

    Shapes: (batch, rows * columns, width) -> the same. It has the arguments of `ExtendedBlock`, and
    `grid` and `axis` of `AxialAttention`.
    """

    def __init__(self, num_heads, mlp_dim, grid, axis="row", **kwargs):
        self.make_attention = functools.partial(AxialAttention, grid=grid, axis=axis)
        super().__init__(num_heads, mlp_dim, **kwargs)


BLOCKS = {  # names of `keras_vit.Extensions.block`
    "pre_norm": ExtendedBlock,
    "post_norm": PostNormBlock,
    "add_norm": AddNormBlock,
    "parallel": ParallelBlock,
    "axial": AxialBlock,
}
