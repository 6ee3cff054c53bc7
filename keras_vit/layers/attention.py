"""Multi-head self-attention (appendix A, Eq. 5 to 8)."""

import keras
from keras import ops

from keras_vit.checks import check_heads, positive_int
from keras_vit.layers import kernels
from keras_vit.layers.dropout import Dropout
from keras_vit.layers.linear import Linear, project
from keras_vit.layers.nested import nested
from keras_vit.layers.position import relative_scores


@keras.saving.register_keras_serializable("keras_vit")
class MultiHeadSelfAttention(keras.layers.Layer):
    """MSA(z) = [SA_1(z); ...; SA_k(z)] U_msa (Eq. 8), with SA(z) = A v (Eq. 7).

    The projections [q, k, v] = z U_qkv (Eq. 5) are three, and keep the head axis: their kernels
    have shape (width, heads, head width), that of the output (heads, head width, width), as in
    the authors' files. A = softmax(q kᵀ / √D_h) (Eq. 6) stays inside the backend's fused kernel;
    asking for it computes it a second time and leaves the output as it is.

    Shapes: (batch, tokens, width) -> the same, or with the scores (batch, heads, tokens, tokens).

    Args:
        num_heads: k; must divide the width of the input.
        qkv_bias: whether the query, key and value projections have a bias.
        dropout: rate at which attention weights are dropped in training. The paper uses 0; any
            other rate leaves the fused kernel.
    """

    def __init__(self, num_heads, qkv_bias=True, dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = positive_int(num_heads, "num_heads")
        self.qkv_bias = qkv_bias
        self.dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout")

    def build(self, input_shape):
        width = input_shape[-1]
        check_heads(width, self.num_heads)
        head_width = width // self.num_heads
        for name in ("query", "key", "value"):
            projection = Linear(
                "btd,dhk->bthk",
                (None, self.num_heads, head_width),
                bias_axes="hk" if self.qkv_bias else None,
                dtype=self.dtype_policy,
                name=name,
            )
            projection.build(input_shape)
            setattr(self, name, projection)
        self.out = Linear(
            "bthk,hkd->btd", (None, width), bias_axes="d", dtype=self.dtype_policy, name="out"
        )
        self.out.build((*input_shape[:-1], self.num_heads, head_width))
        self.built = True

    def call(
        self,
        x,
        memory=None,
        relative_position=None,
        return_attention_scores=False,
        training=False,
    ):
        """
        Args:
            x: the tokens that ask.
            memory: the tokens that answer, where they are others (attention pooling).
            relative_position: output of `RelativePosition`, for Table 8's relative attention.
            return_attention_scores: whether to return A beside the output, in at least float32.
        """
        q, k, v, bias = self._project(x, memory, relative_position)
        if training and self.dropout.rate > 0:
            weights = ops.cast(kernels.attention_weights(q, k, bias), v.dtype)
            heads = kernels.weighted_sum(self.dropout(weights, training=True), v)
        else:
            heads = kernels.attention(q, k, v, bias)
        outputs = nested(self.out, heads)
        if return_attention_scores:
            return outputs, kernels.attention_weights(q, k, bias)
        return outputs

    def scores(self, x, memory=None, relative_position=None):
        """A of Eq. 6 alone, without the work for the output."""
        if self.compute_dtype != self.variable_dtype:  # a call is what casts the variables
            return self(x, memory, relative_position, return_attention_scores=True)[1]
        q, k, _, bias = self._project(x, memory, relative_position)
        return kernels.attention_weights(q, k, bias)

    def _project(self, x, memory, relative_position):
        """q, k and v (Eq. 5), and what relative positions add to the scores."""
        if memory is None:
            q, k, v = project(x, [self.query, self.key, self.value])
        else:
            q, k, v = self.query(x), self.key(memory), self.value(memory)
        if relative_position is None:
            return q, k, v, None
        return q, k, v, relative_scores(q * q.shape[-1] ** -0.5, relative_position)

    def compute_output_spec(
        self, x, memory=None, relative_position=None, return_attention_scores=False, training=False
    ):
        outputs = keras.KerasTensor(x.shape, self.compute_dtype)
        if not return_attention_scores:
            return outputs
        shape = (x.shape[0], self.num_heads, x.shape[1], (x if memory is None else memory).shape[1])
        return outputs, keras.KerasTensor(shape, kernels.at_least_float32(self.compute_dtype))

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "qkv_bias": self.qkv_bias,
            "dropout": self.dropout.rate,
        }
