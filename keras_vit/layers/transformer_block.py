"""The Transformer encoder block (Eq. 2 and 3)."""

import keras

from keras_vit.layers.attention import MultiHeadSelfAttention
from keras_vit.layers.dropout import Dropout, StochasticDepth
from keras_vit.layers.layer import Layer
from keras_vit.layers.mlp import MLP
from keras_vit.layers.norm import LayerNorm


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
    """

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
        **kwargs,
    ):
        super().__init__(**kwargs)
        dtype = self.dtype_policy
        self.norm_1 = LayerNorm(epsilon, dtype=dtype, name="norm_1")
        self.attention = MultiHeadSelfAttention(
            num_heads, qkv_bias, dropout=attention_dropout, dtype=dtype, name="attention"
        )
        # For a rate of 0, `of` gives an `Identity`: its rate is 0, and it returns its input.
        self.dropout = Dropout.of(dropout, dtype=dtype, name="dropout")
        self.drop_path_1 = StochasticDepth.of(stochastic_depth, dtype=dtype, name="drop_path_1")
        self.norm_2 = LayerNorm(epsilon, dtype=dtype, name="norm_2")
        self.mlp = MLP(mlp_dim, gelu, dropout=dropout, dtype=dtype, name="mlp")
        self.drop_path_2 = StochasticDepth.of(stochastic_depth, dtype=dtype, name="drop_path_2")

    def build(self, input_shape):
        for layer in (self.norm_1, self.attention, self.dropout, self.drop_path_1):
            layer.build(input_shape)
        for layer in (self.norm_2, self.mlp, self.drop_path_2):
            layer.build(input_shape)

    def call(self, x, training=False):
        y = self.dropout(self.attention(self.norm_1(x), training=training), training=training)
        x = x + self.drop_path_1(y, training=training)  # Eq. 2
        y = self.mlp(self.norm_2(x), training=training)
        return x + self.drop_path_2(y, training=training)  # Eq. 3

    def attention_scores(self, x):
        """A of Eq. 6 for the tokens that enter the block: (batch, heads, tokens, tokens)."""
        return self.attention.scores(self.norm_1(x))
