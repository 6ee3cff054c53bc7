"""Multi-head self-attention (appendix A of the paper, Eq. 5 to 8)."""

import keras
from keras import ops

from keras_vit.checks import check_heads, positive_int
from keras_vit.layers import kernels
from keras_vit.layers.dropout import Dropout
from keras_vit.layers.layer import Layer
from keras_vit.layers.linear import Linear


@keras.saving.register_keras_serializable("keras_vit")
class MultiHeadSelfAttention(Layer):
    """MSA(z) = [SA_1(z); ...; SA_k(z)] U_msa (Eq. 8), with SA(z) = A v (Eq. 7).

    The projections [q, k, v] = z U_qkv (Eq. 5) are three layers with kernels of shape (width,
    heads, head width). U_msa has the shape (heads, head width, width), as in the authors' files.
    Where the backend has a fused kernel, it computes Eq. 6 and 7 together, without
    A = softmax(q kᵀ / √D_h) in memory; `scores` computes A by itself.

    Shapes: (batch, tokens, width) -> the same.

    Args:
        num_heads: the number of heads, k of Eq. 8; must divide the width of the input.
        qkv_bias: whether the query, key and value projections have a bias.
        dropout: rate at which attention weights are dropped in training; a rate above 0 disables
            the fused kernel in training.
    """

    def __init__(self, num_heads, qkv_bias=True, dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = positive_int(num_heads, "num_heads")
        self.qkv_bias = qkv_bias
        self.dropout = Dropout.of(dropout, dtype=self.dtype_policy, name="dropout")

    def build(self, input_shape):
        self.query = self.head_projection("query", input_shape, use_bias=self.qkv_bias)
        self.key = self.head_projection("key", input_shape, use_bias=self.qkv_bias)
        self.value = self.head_projection("value", input_shape, use_bias=self.qkv_bias)
        self.out = self.output_projection(input_shape)

    def head_projection(self, name, input_shape, use_bias):
        """A layer of Eq. 5, built: (batch, tokens, width) -> (batch, tokens, heads, D_h)."""
        width = input_shape[-1]
        check_heads(width, self.num_heads)
        return Linear.built(
            "btd,dhk->bthk",
            (None, self.num_heads, width // self.num_heads),
            input_shape,
            use_bias=use_bias,
            dtype=self.dtype_policy,
            name=name,
        )

    def output_projection(self, input_shape, use_bias=True):
        """U_msa of Eq. 8, built: (batch, tokens, heads, D_h) -> (batch, tokens, width)."""
        width = input_shape[-1]
        return Linear.built(
            "bthk,hkd->btd",
            (None, width),
            (*input_shape[:-1], self.num_heads, width // self.num_heads),
            use_bias=use_bias,
            dtype=self.dtype_policy,
            name="out",
        )

    def call(self, x, memory=None, bias=None, rotation=None, training=False):
        """Eq. 5 to 8. `TransformerBlock` gives `x` alone; later models give the other arguments.

        Args:
            memory: tokens of keys and values, where these are not `x` (attention pooling).
            bias: added to q kᵀ / √D_h; it broadcasts to (batch, heads, queries, keys).
            rotation: cosines and sines that rotate queries and keys (`kernels.rotate`).
        """
        memory = x if memory is None else memory
        q, k = self.queries(x, rotation), self.keys(memory, rotation)  # Eq. 5
        heads = self.attend(q, k, self.value(memory), bias=bias, training=training)  # Eq. 6 and 7
        return self.join(heads)  # Eq. 8

    def queries(self, x, rotation=None):
        """q of Eq. 5: (batch, tokens, width) -> (batch, tokens, heads, D_h)."""
        return kernels.rotate(self.query(x), rotation)

    def keys(self, x, rotation=None):
        """k of Eq. 5; shapes as in `queries`."""
        return kernels.rotate(self.key(x), rotation)

    def attend(self, q, k, v, bias=None, training=False):
        """softmax(q kᵀ / √D_h + bias) v, Eq. 6 and 7: (batch, tokens, heads, D_h) -> the same."""
        if not (training and self.dropout.rate):
            return kernels.attention(q, k, v, bias=bias)  # the same, fused where the backend can
        weights = kernels.attention_weights(q, k, bias)  # Eq. 6
        weights = self.dropout(ops.cast(weights, v.dtype), training=True)
        return kernels.weighted_sum(weights, v)  # Eq. 7

    def join(self, heads):
        """Eq. 8: (batch, tokens, heads, D_h) -> (batch, tokens, width).

        A subclass may normalise the heads here.
        """
        return self.out(heads)

    def scores(self, x, memory=None, bias=None, rotation=None):
        """A of Eq. 6 in at least float32: (batch, heads, queries, keys). Arguments as in `call`."""
        q, k = self.queries(x, rotation), self.keys(x if memory is None else memory, rotation)
        return kernels.attention_weights(q, k, bias)

    def compute_output_spec(self, x, **others):
        return self._output(x.shape)
