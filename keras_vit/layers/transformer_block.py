"""The Transformer encoder block (Eq. 2 and 3)."""

import keras

from keras_vit.extensions import get_extensions
from keras_vit.layers import kernels
from keras_vit.layers.attention import MultiHeadSelfAttention
from keras_vit.layers.dropout import Dropout, StochasticDepth, drawn_seeds
from keras_vit.layers.layer import Identity, Layer
from keras_vit.layers.mlp import MLPS
from keras_vit.layers.norm import NORMS, LayerScale

unchanged = Identity()


@keras.saving.register_keras_serializable("keras_vit")
class TransformerBlock(Layer):
    """One pre-norm encoder block: z' = MSA(LN(z)) + z, z'' = MLP(LN(z')) + z' (Eq. 2 and 3).

    Shapes: (batch, tokens, width) -> the same.

    Args:
        num_heads, qkv_bias: as in `MultiHeadSelfAttention`.
        mlp_dim, gelu: hidden units and activation of the `MLP`.
        epsilon: added to the variance in LayerNorm.
        dropout: rate after the attention and in the MLP.
        attention_dropout: rate at which attention weights are dropped.
        stochastic_depth: probability that a residual branch is left out for an example.
        later: `keras_vit.Extensions`, or its fields as a dict: what later families changed.
    """

    one_branch = False  # whether attention and MLP share norm, LayerScale and stochastic depth

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
        later=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.later = later = get_extensions(later)
        norm, mlp, kind = NORMS[later.norm], MLPS[later.mlp], {"dtype": self.dtype_policy}
        scale = LayerScale if later.layer_scale else Identity
        self.norm_1 = norm(epsilon, **kind, name="norm_1")
        self.attention = MultiHeadSelfAttention(
            num_heads, qkv_bias, attention_dropout, epsilon, later, **kind, name="attention"
        )
        self.layer_scale_1 = scale(later.layer_scale, **kind, name="layer_scale_1")
        self.dropout = Dropout.of(dropout, **kind, name="dropout")
        self.drop_path_1 = StochasticDepth.of(stochastic_depth, **kind, name="drop_path_1")
        if self.one_branch:
            norm, scale, stochastic_depth = Identity, Identity, 0.0
        self.norm_2 = norm(epsilon, **kind, name="norm_2")
        self.mlp = mlp(mlp_dim, gelu, dropout, later, epsilon, **kind, name="mlp")
        self.layer_scale_2 = scale(later.layer_scale, **kind, name="layer_scale_2")
        self.drop_path_2 = StochasticDepth.of(stochastic_depth, **kind, name="drop_path_2")

    def build(self, input_shape):
        attention = (self.norm_1, self.attention, self.dropout, self.layer_scale_1)
        mlp = (self.norm_2, self.mlp, self.layer_scale_2)
        for layer in (*attention, self.drop_path_1, *mlp, self.drop_path_2):
            layer.build(input_shape)

    def call(self, x, relative_position=None, training=False):
        how = {"relative_position": relative_position, "training": training}
        return self.around(lambda tokens: self.attention(tokens, **how), x, training)

    def around(self, attend, x, training=False, between=unchanged):
        """The block around a function of its tokens in place of the attention.

        `between` is what happens to the tokens between Eq. 2 and 3.
        """
        y = self.layer_scale_1(self.dropout(attend(self.norm_1(x)), training=training))
        x = between(x + self.drop_path_1(y, training=training))  # Eq. 2
        y = self.layer_scale_2(self.mlp(self.norm_2(x), training=training))
        return x + self.drop_path_2(y, training=training)  # Eq. 3

    def attention_scores(self, x, relative_position=None):
        """A of Eq. 6 for the tokens `x` that enter the block.

        Shapes: (batch, tokens, width) -> (batch, heads, tokens, tokens).
        """
        return self.attention(
            self.norm_1(x), relative_position=relative_position, return_attention_scores=True
        )[1]


class Remat:
    """A block whose backward pass computes it again instead of keeping its inside.

    It takes less memory and about a third more time. The outputs and gradients are the same.
    """

    def call(self, x, relative_position=None, training=False):
        if not training:
            return super().call(x, relative_position=relative_position)
        layers = (self.attention.dropout, self.dropout, self.drop_path_1)
        layers += (self.mlp.dropout_1, self.mlp.dropout_2, self.drop_path_2)
        generators = [layer.seed_generator for layer in layers if layer.rate > 0]
        call = super().call

        # The second run must drop what the first one dropped. Drawing seeds inside would change
        # the masks on TensorFlow and leak a tracer on JAX, so they are drawn outside.
        def block(seeds, x, *relative_position):
            with drawn_seeds(generators, seeds):
                return call(x, *relative_position, training=True)

        inputs = (x,) if relative_position is None else (x, relative_position)
        return kernels.remat(block)([generator.next() for generator in generators], *inputs)


@keras.saving.register_keras_serializable("keras_vit")
class RematTransformerBlock(Remat, TransformerBlock):
    """A `TransformerBlock` that is computed again in the backward pass."""
