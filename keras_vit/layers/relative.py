"""Relative positions in one dimension (appendix D.4, Table 8; Shaw et al., 2018)."""

import keras
from keras import ops

from keras_vit.checks import check_heads
from keras_vit.layers import kernels
from keras_vit.layers.attention import MultiHeadSelfAttention
from keras_vit.layers.layer import Layer
from keras_vit.layers.position import small_normal


@keras.saving.register_keras_serializable("keras_vit")
class RelativePosition(Layer):
    """The embeddings of 1-D relative attention (appendix D.4): one per distance in the sequence.

    `RelativeAttention` compares its queries with these vectors as if they were further keys. All
    heads share them; the class token counts as the first position of the sequence.

    Shapes: (batch, tokens, width) -> (2 * tokens - 1, width / num_heads); row r is for keys that
    stand r - (tokens - 1) places after the query.
    """

    argument = "distances"  # of a block, which takes the output

    def __init__(self, num_heads, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads

    def build(self, input_shape):
        self.embedding = self.add_weight(
            self.compute_output_shape(input_shape), small_normal(), name="embedding"
        )

    def call(self, x):
        return ops.cast(self.embedding, self.compute_dtype)

    def compute_output_spec(self, x):
        _, tokens, width = x.shape
        if tokens is None:
            raise ValueError(
                "Relative positions have an embedding for each distance, so that the number of "
                f"tokens must be known. Received: tokens of shape {tuple(x.shape)}; build the "
                "model for one image size, or choose another position."
            )
        check_heads(width, self.num_heads)
        return self._output((2 * tokens - 1, width // self.num_heads))


@keras.saving.register_keras_serializable("keras_vit")
class RelativeAttention(MultiHeadSelfAttention):
    """softmax((q kᵀ + q rᵀ) / √D_h) v: queries meet keys and distances (Shaw et al., 2018).

    As `MultiHeadSelfAttention`; `distances` is the output of `RelativePosition`.
    """

    def call(self, x, memory=None, bias=None, rotation=None, distances=None, training=False):
        memory = x if memory is None else memory
        q, k = self.queries(x, rotation), self.keys(memory, rotation)
        bias = bias if distances is None else distance_bias(q, distances)
        return self.join(self.attend(q, k, self.value(memory), bias=bias, training=training))

    def scores(self, x, memory=None, bias=None, rotation=None, distances=None):
        q, k = self.queries(x, rotation), self.keys(x if memory is None else memory, rotation)
        bias = bias if distances is None else distance_bias(q, distances)
        return kernels.attention_weights(q, k, bias)


def distance_bias(query, table):
    """q · r / √D_h for each query and key, r being the embedding of their distance.

    Shapes: (batch, T, heads, D_h), (2·T - 1, D_h) -> (batch, heads, T, T).
    """
    _, tokens, heads, _ = query.shape
    if table.shape[0] != 2 * tokens - 1:
        raise ValueError(
            f"{tokens} tokens have {2 * tokens - 1} distances. Received: a relative position "
            f"table of shape {tuple(table.shape)}."
        )
    by_distance = ops.einsum("bthd,rd->bhtr", query * query.shape[-1] ** -0.5, table)
    # Query t needs the distances from tokens - 1 - t on. Padding each row by one and reading the
    # rows again one value shorter moves row t by t: no gather, no index.
    x = _padded(by_distance, 1)
    x = _padded(ops.reshape(x, (-1, heads, 2 * tokens * tokens)), tokens - 1)
    x = ops.reshape(x, (-1, heads, tokens + 1, 2 * tokens - 1))
    return x[:, :, :tokens, tokens - 1 :]


def _padded(x, size):
    """`x` with `size` zeros after each row.

    `ops.pad` makes an object with a new name at each call, for which PyTorch would compile again.
    """
    return ops.concatenate([x, ops.zeros_like(x[..., :size])], axis=-1)
