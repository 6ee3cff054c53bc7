"""Token merging, ToMe: blocks that join the tokens that are most alike (Bolya et al., 2023)."""

import keras
from keras import ops

from keras_vit.layers import kernels
from keras_vit.layers.extensions.blocks import ExtendedBlock, PostNormBlock


def merge(x, size, keys, count, protected):
    """Joins pairs of tokens that are alike: bipartite soft matching.

    The tokens of even and of odd places are two sets. Each token of the first finds the one of the
    second whose key, the mean over the heads, is most like its own (cosine); the `count` best
    pairs become one token each, the mean of what they stand for. At most half of the tokens go.

    Shapes: (batch, T, width), (batch, T), (batch, T, heads, D_h) -> (batch, T - count, width),
    (batch, T - count). First come the protected tokens, then the others of the even places (in
    their order if there are protected ones, else the least alike last), then the odd places.
    `size`, `count` and `protected` are as in `Merging`; `keys` come from the attention.
    """
    _, tokens, width = x.shape
    count = mergeable(tokens, count, protected)
    if count == 0:
        return x, ops.cast(size, "int32")
    keys = ops.sum(ops.cast(keys, kernels.at_least_float32(keys.dtype)), axis=2)
    keys = keys / ops.sqrt(ops.sum(keys * keys, axis=-1, keepdims=True))
    even = slice(2 * ((protected + 1) // 2), None, 2)  # the places that are not protected
    odd = slice(2 * (protected // 2) + 1, None, 2)
    scores = ops.einsum("bsd,btd->bst", keys[:, even], keys[:, odd])
    order = ops.argsort(-ops.amax(scores, axis=-1), axis=-1)
    source, kept = order[:, :count], order[:, count:]
    kept = ops.sort(kept, axis=-1) if protected else kept
    target = ops.take_along_axis(ops.argmax(scores, axis=-1), ops.cast(source, "int32"), axis=1)

    share = ops.cast(size[:, :, None], kernels.at_least_float32(x.dtype))
    sums = ops.concatenate([ops.cast(x, share.dtype) * share, share], axis=-1)
    into = ops.one_hot(target, scores.shape[2], dtype=share.dtype)
    joined = ops.einsum("bst,bsd->btd", into, _rows(sums[:, even], source))
    first = [sums[:, :protected]] if protected else []
    sums = [*first, _rows(sums[:, even], kept), sums[:, odd] + joined]
    sums = ops.concatenate(sums, axis=1)
    sums, share = sums[:, :, :width], sums[:, :, width:]
    return ops.cast(sums / share, x.dtype), ops.cast(share[:, :, 0], "int32")


def mergeable(tokens, count, protected):
    """The number of tokens that are merged where `count` are asked for: at most half of them."""
    if not count:
        return 0
    if tokens is None:
        raise ValueError(
            "Tokens can be merged only where their number is known. Received: tokens of unknown "
            f"number, merged={count}; build the model for one image size, or choose merged=0."
        )
    return max(min(count, (tokens - protected) // 2), 0)


def log_size(size, dtype):
    """The bias by which a key counts `size` times: (batch, keys) -> (batch, 1, 1, keys)."""
    return ops.log(ops.cast(size, dtype))[:, None, None]


def _rows(x, places):
    return ops.take_along_axis(x, places[:, :, None], axis=1)


class Merging:
    """A block that joins tokens between its attention and its MLP.

    Shapes: tokens (batch, T, width), their sizes (batch, T) or none yet -> the same with T - merged
    tokens. Sizes are integers: how many tokens of the input each stands for.

    Args:
        num_heads, mlp_dim: as in `ExtendedBlock`, with its other arguments as keywords.
        merged: r, how many tokens the block takes away.
        protected: tokens at the beginning that stay as they are.
    """

    integers = ("size",)

    def __init__(self, num_heads, mlp_dim, merged=0, protected=0, **kwargs):
        super().__init__(num_heads, mlp_dim, **kwargs)
        self.merged, self.protected = merged, protected

    def attend_in_proportion(self, x, size, training):
        """The output of the attention, in which a token counts `size` times, and the keys."""
        attention = self.attention
        q, k, v = attention.queries(x), attention.keys(x), attention.value(x)
        bias = None if size is None else log_size(size, self.compute_dtype)
        y = attention.join(attention.attend(q, k, v, bias=bias, training=training))
        return self.dropout(y, training=training), k

    def merge(self, x, size, keys):
        """Fewer tokens and their sizes, by the keys of the attention."""
        size = ops.ones_like(x[:, :, 0]) if size is None else size
        return merge(x, ops.cast(size, "int32"), keys, self.merged, self.protected)

    def compute_output_spec(self, x, size=None, training=False):
        batch, tokens, width = x.shape
        if merged := mergeable(tokens, self.merged, self.protected):
            tokens -= merged
        return self._output((batch, tokens, width)), self._output((batch, tokens), "int32")


@keras.saving.register_keras_serializable("keras_vit")
class MergingBlock(Merging, ExtendedBlock):
    __doc__ = Merging.__doc__.replace("A block", "An `ExtendedBlock`")

    def call(self, x, size=None, training=False):
        y, keys = self.attend_in_proportion(self.norm_1(x), size, training)
        x = x + self.drop_path_1(self.layer_scale_1(y), training=training)
        x, size = self.merge(x, size, keys)
        y = self.layer_scale_2(self.mlp(self.norm_2(x), training=training))
        return x + self.drop_path_2(y, training=training), size


@keras.saving.register_keras_serializable("keras_vit")
class MergingPostNormBlock(Merging, PostNormBlock):
    __doc__ = Merging.__doc__.replace("A block", "A `PostNormBlock`")

    def call(self, x, size=None, training=False):
        y, keys = self.attend_in_proportion(x, size, training)
        x = x + self.drop_path_1(self.norm_1(y), training=training)
        x, size = self.merge(x, size, keys)
        y = self.norm_2(self.mlp(x, training=training))
        return x + self.drop_path_2(y, training=training), size


MERGING_BLOCKS = {"pre_norm": MergingBlock, "post_norm": MergingPostNormBlock}
