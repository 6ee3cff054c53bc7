"""Pooling by attention, where no class token reads the others."""

import keras
from keras import ops

from keras_vit.layers.attention import MultiHeadSelfAttention
from keras_vit.layers.initial import initial
from keras_vit.layers.mlp import MLP
from keras_vit.layers.norm import LayerNorm


@keras.saving.register_keras_serializable("keras_vit")
class AttentionPool(keras.layers.Layer):
    """Multi-head attention pooling, MAP (Zhai et al., 2022; Lee et al., 2019).

    One learned query, the probe, attends to all tokens; an MLP with a residual connection
    follows.

    Shapes: (batch, tokens, width) -> (batch, width).

    Args:
        num_heads, mlp_dim, gelu, qkv_bias, epsilon: as in `TransformerBlock`.
    """

    def __init__(self, num_heads, mlp_dim, gelu="tanh", qkv_bias=True, epsilon=1e-6, **kwargs):
        super().__init__(**kwargs)
        policy = self.dtype_policy
        self.attention = MultiHeadSelfAttention(num_heads, qkv_bias, dtype=policy, name="attention")
        self.norm = LayerNorm(epsilon, dtype=policy, name="norm")
        self.mlp = MLP(mlp_dim, gelu, dtype=policy, name="mlp")

    def build(self, input_shape):
        probe = (1, 1, input_shape[-1])
        self.probe = self.add_weight(probe, initial("glorot_uniform"), name="probe")
        self.attention.build(input_shape)
        self.norm.build(probe)
        self.mlp.build(probe)
        self.built = True

    def call(self, x):
        y = self.attention(self._probes(x), memory=x)
        return (y + self.mlp(self.norm(y)))[:, 0]

    def attention_scores(self, x):
        """A of Eq. 6, where the probe asks: (batch, tokens, width) -> (batch, heads, 1, tokens)."""
        return self.attention(self._probes(x), memory=x, return_attention_scores=True)[1]

    def _probes(self, x):
        probe = ops.broadcast_to(self.probe, (ops.shape(x)[0], 1, x.shape[-1]))
        return ops.cast(probe, x.dtype)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], input_shape[2])

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.attention.num_heads,
            "mlp_dim": self.mlp.hidden_dim,
            "gelu": self.mlp.gelu,
            "qkv_bias": self.attention.qkv_bias,
            "epsilon": self.norm.epsilon,
        }
