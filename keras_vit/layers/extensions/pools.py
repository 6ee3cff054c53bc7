"""Pools of later families: attention pooling, and a class token beside other ones."""

import keras
from keras import ops

from keras_vit.extensions import Extensions
from keras_vit.layers import kernels
from keras_vit.layers.extensions.attention import ExtendedAttention
from keras_vit.layers.extensions.mlp import ExtendedMLP
from keras_vit.layers.extensions.token_merging import log_size
from keras_vit.layers.head import TokenPool
from keras_vit.layers.layer import Layer
from keras_vit.layers.norm import LayerNorm


@keras.saving.register_keras_serializable("keras_vit")
class ExtendedTokenPool(TokenPool):
    """The class token beside the mean of the patches, or the distillation token.

    Shapes: (batch, tokens, width) -> (batch, 2 * width), or (batch, width) of one token.

    Args:
        pool: `"token_mean"`, as in DINOv2's linear heads, or `"distillation"` for the second token.
        class_token, registers: as in `TokenPool`.
    """

    pools = ("token_mean", "distillation")

    def call(self, x, size=None):
        if self.pool == "distillation":
            return x[:, 1]
        return ops.concatenate([x[:, 0], self.mean(x, size)], axis=-1)

    def compute_output_spec(self, x, size=None):
        batch, _, width = x.shape
        return self._output((batch, 2 * width if self.pool == "token_mean" else width))


@keras.saving.register_keras_serializable("keras_vit")
class AttentionPool(Layer):
    """Multi-head attention pooling, MAP (Zhai et al., 2022; Lee et al., 2019).

    One learned query, the probe, attends to the tokens; an MLP with a residual connection follows.
    With `mlp_dim=None` no MLP follows, and the probe is the query without a projection, as in AIMv2
    (Fini et al., 2025).

    Shapes: (batch, tokens, width) -> (batch, width).

    Args:
        num_heads, mlp_dim, gelu, qkv_bias, epsilon: as in `TransformerBlock`.
        skipped: number of tokens at the beginning that the probe does not see.
        activation: of the MLP, a name of `keras_vit.Extensions.activation`.
    """

    integers = ("size",)

    def __init__(
        self,
        num_heads,
        mlp_dim,
        gelu="tanh",
        qkv_bias=True,
        epsilon=1e-6,
        skipped=0,
        activation=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.skipped, self.has_mlp, dtype = skipped, mlp_dim is not None, self.dtype_policy
        self.attention = ExtendedAttention(
            num_heads, qkv_bias, project_query=self.has_mlp, dtype=dtype, name="attention"
        )
        if self.has_mlp:
            extensions = Extensions(activation=activation)
            self.norm = LayerNorm(epsilon, dtype=dtype, name="norm")
            self.mlp = ExtendedMLP(mlp_dim, gelu, extensions=extensions, dtype=dtype, name="mlp")

    def build(self, input_shape):
        probe = (1, 1, input_shape[-1])
        self.probe = self.add_weight(probe, kernels.initial("glorot_uniform"), name="probe")
        self.attention.build(input_shape)
        if self.has_mlp:
            self.norm.build(probe)
            self.mlp.build(probe)

    def call(self, x, size=None):
        """`size` is as in `TokenPool`: the probe counts a token that often."""
        bias = None if size is None else log_size(size[:, self.skipped :], x.dtype)
        memory = x[:, self.skipped :] if self.skipped else x
        y = self.attention(self._probes(x), memory=memory, bias=bias)
        return (y + self.mlp(self.norm(y)) if self.has_mlp else y)[:, 0]

    def attention_scores(self, x):
        """A of Eq. 6, (batch, heads, 1, tokens); 0 for tokens that the probe does not see."""
        seen = x[:, self.skipped :]
        scores = self.attention.scores(self._probes(x), memory=seen)
        return ops.pad(scores, ((0, 0), (0, 0), (0, 0), (self.skipped, 0)))

    def _probes(self, x):
        probe = ops.broadcast_to(self.probe, (ops.shape(x)[0], 1, x.shape[-1]))
        return ops.cast(probe, x.dtype)

    def compute_output_spec(self, x, size=None):
        return self._output((x.shape[0], x.shape[2]))
