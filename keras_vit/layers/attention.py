"""Multi-head self-attention (appendix A, Eq. 5 to 8)."""

import keras
from keras import ops

from keras_vit.checks import check_heads, positive_int
from keras_vit.extensions import get_extensions
from keras_vit.layers import kernels
from keras_vit.layers.dropout import Dropout
from keras_vit.layers.layer import Layer
from keras_vit.layers.linear import Linear
from keras_vit.layers.norm import NORMS
from keras_vit.layers.position import relative_scores
from keras_vit.layers.rotary import rotate


@keras.saving.register_keras_serializable("keras_vit")
class MultiHeadSelfAttention(Layer):
    """MSA(z) = [SA_1(z); ...; SA_k(z)] U_msa (Eq. 8), with SA(z) = A v (Eq. 7).

    The projections [q, k, v] = z U_qkv (Eq. 5) are three layers with kernels of shape (width,
    heads, head width), that of the output (heads, head width, width), as in the authors' files.
    A = softmax(q kᵀ / √D_h) (Eq. 6) stays inside the backend's fused kernel; asking for it
    computes it a second time and leaves the output as it is.

    Shapes: (batch, tokens, width) -> the same, or with the scores (batch, heads, tokens, tokens).

    Args:
        num_heads: k; must divide the width of the input.
        qkv_bias: whether the query, key and value projections have a bias.
        dropout: rate at which attention weights are dropped in training; above 0 there is no
            fused kernel.
        epsilon: of the norms of queries, keys and heads, which only later families have.
        later: `keras_vit.Extensions`, or its fields as a dict.
        project_query: whether there is a query projection; if not, `x` are the queries.
    """

    def __init__(
        self,
        num_heads,
        qkv_bias=True,
        dropout=0.0,
        epsilon=1e-6,
        later=None,
        project_query=True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = positive_int(num_heads, "num_heads")
        self.project_query = project_query
        self.qkv_bias, self.epsilon, self.later = qkv_bias, epsilon, get_extensions(later)
        kind = {"dtype": self.dtype_policy}
        self.dropout = Dropout.of(dropout, **kind, name="dropout")
        self.query_norm = NORMS[self.later.qk_norm](epsilon, **kind, name="query_norm")
        self.key_norm = NORMS[self.later.qk_norm](epsilon, **kind, name="key_norm")
        self.norm = NORMS[self.later.attention_norm](epsilon, **kind, name="norm")

    def build(self, input_shape):
        width, kind = input_shape[-1], {"dtype": self.dtype_policy}
        check_heads(width, self.num_heads)
        heads = (self.num_heads, width // self.num_heads)
        for name in ("query", "key", "value")[not self.project_query :]:
            bias = "hk" if self.qkv_bias and self.later.has_bias(name) else None
            layer = Linear("btd,dhk->bthk", (None, *heads), bias_axes=bias, **kind, name=name)
            layer.build(input_shape)
            setattr(self, name, layer)
        bias = "d" if self.later.has_bias("out") else None
        self.out = Linear("bthk,hkd->btd", (None, width), bias_axes=bias, **kind, name="out")
        self.out.build((*input_shape[:-1], *heads))
        self.query_norm.build((*input_shape[:-1], *heads))
        self.key_norm.build((*input_shape[:-1], *heads))
        self.norm.build(input_shape)
        self.dropout.build(None)

    def call(
        self,
        x,
        memory=None,
        relative_position=None,
        return_attention_scores=False,
        training=False,
        bias=None,
        return_keys=False,
    ):
        """
        Args:
            x: the tokens of the queries.
            memory: the tokens of keys and values, if they are others (attention pooling).
            relative_position: output of `RelativePosition` (Table 8), `RelativePosition2D` or
                `RotaryPosition`, which are told by their number of axes: 2, 3 and 4; or 5 for
                rotary positions that each image has its own of (`PatchDropout`).
            return_attention_scores: whether to return A beside the output, in at least float32.
            bias: added to the scores in front of the softmax, a tensor that fits (batch, heads,
                queries, keys); not beside relative positions.
            return_keys: whether to return k beside the output: (batch, keys, heads, head width).
        """
        memory = x if memory is None else memory
        k, v = self.key(memory), self.value(memory)  # Eq. 5
        if self.project_query:
            q = self.query(x)
        else:
            q = ops.reshape(x, (*ops.shape(x)[:2], *k.shape[2:]))
        q, k = self.query_norm(q), self.key_norm(k)
        axes = 0 if relative_position is None else len(relative_position.shape)
        if axes >= 4:
            pairs = self.later.rotary.pairs
            q, k = rotate(q, relative_position, pairs), rotate(k, relative_position, pairs)
        elif axes == 3:
            bias = relative_position[None]
        elif axes == 2:
            bias = relative_scores(q * q.shape[-1] ** -0.5, relative_position)
        if training and self.dropout.rate > 0:
            weights = ops.cast(kernels.attention_weights(q, k, bias), v.dtype)  # Eq. 6
            heads = kernels.weighted_sum(self.dropout(weights, training=True), v)  # Eq. 7
        else:
            heads = kernels.attention(q, k, v, bias)  # Eq. 6 and 7
        outputs = self._joined(heads)
        if return_attention_scores:
            return outputs, kernels.attention_weights(q, k, bias)
        return (outputs, k) if return_keys else outputs

    def with_weights(self, x, weights):
        """Eq. 7 and 8 for a given A.

        Shapes: (batch, tokens, width), (batch, heads, tokens, tokens) -> (batch, tokens, width).
        """
        v = self.value(x)
        return self._joined(kernels.weighted_sum(ops.cast(weights, v.dtype), v))

    def _joined(self, heads):
        if self.later.attention_norm:
            shape = ops.shape(heads)
            joined = ops.reshape(heads, (*shape[:2], heads.shape[2] * heads.shape[3]))
            heads = ops.reshape(self.norm(joined), shape)
        return self.out(heads)  # Eq. 8

    def compute_output_spec(
        self, x, memory=None, return_attention_scores=False, return_keys=False, **others
    ):
        (batch, queries, width), heads = x.shape, self.num_heads
        keys = queries if memory is None else memory.shape[1]
        outputs = self._output(x.shape)
        if return_attention_scores:
            precise = kernels.at_least_float32(self.compute_dtype)
            return outputs, self._output((batch, heads, queries, keys), precise)
        if return_keys:
            return outputs, self._output((batch, keys, heads, width // heads))
        return outputs
