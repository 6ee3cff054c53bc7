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
    """A `TokenPool` that knows other learned tokens, merged tokens and other pools.

    Shapes: (batch, tokens, width) -> (batch, width), or (batch, 2 * width) of `"token_mean"`.

    Args:
        pool, class_token: as in `TokenPool`; or `"token_mean"`, the class token beside the mean of
            the patches, as in DINOv2's linear heads, or `"distillation"` for the second token.
        registers: number of further learned tokens, which the mean leaves out too.
    """

    integers = ("size",)
    pools = (*TokenPool.pools, "token_mean", "distillation")

    def __init__(self, pool, class_token, registers=0, **kwargs):
        super().__init__(pool, class_token, **kwargs)
        self.learned_tokens = int(class_token) + registers

    def call(self, x, size=None):
        """`size` is the number of patches that each token stands for (`MergingBlock`), integers of
        shape (batch, tokens); `None` for one each.
        """
        if self.pool in ("mean", "token_mean"):
            mean = self.mean(x, size)
            return mean if self.pool == "mean" else ops.concatenate([x[:, 0], mean], axis=-1)
        return x[:, 1] if self.pool == "distillation" else x[:, 0]

    def mean(self, x, size=None):
        patches = x[:, self.learned_tokens :] if self.learned_tokens else x
        if size is None:
            return kernels.mean(patches, axis=1)
        share = ops.cast(size[:, self.learned_tokens :, None], kernels.at_least_float32(x.dtype))
        total = ops.sum(ops.cast(patches, share.dtype) * share, axis=1)
        return ops.cast(total / ops.sum(share, axis=1), x.dtype)

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

    def call(self, x, size=None, training=False):
        """`size` is as in `ExtendedTokenPool`: the probe counts a token that often."""
        bias = None if size is None else log_size(size[:, self.skipped :], x.dtype)
        memory = x[:, self.skipped :] if self.skipped else x
        y = self.attention(self._probes(x), memory=memory, bias=bias, training=training)
        return (y + self.mlp(self.norm(y), training=training) if self.has_mlp else y)[:, 0]

    def attention_scores(self, x):
        """A of Eq. 6, (batch, heads, 1, tokens); 0 for tokens that the probe does not see."""
        seen = x[:, self.skipped :]
        scores = self.attention.scores(self._probes(x), memory=seen)
        return ops.pad(scores, ((0, 0), (0, 0), (0, 0), (self.skipped, 0)))

    def _probes(self, x):
        probe = ops.broadcast_to(self.probe, (ops.shape(x)[0], 1, x.shape[-1]))
        return ops.cast(probe, x.dtype)

    def compute_output_spec(self, x, size=None, training=False):
        return self._output((x.shape[0], x.shape[2]))
