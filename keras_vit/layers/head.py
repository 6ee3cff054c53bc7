"""What becomes of the tokens: pooling, pre-logits and the linear head (Eq. 4, section 3.1)."""

import keras
from keras import ops

from keras_vit.checks import check_choice
from keras_vit.layers import kernels
from keras_vit.layers.layer import Layer
from keras_vit.layers.linear import Linear
from keras_vit.workarounds import own_policy


@keras.saving.register_keras_serializable("keras_vit")
class TokenPool(Layer):
    """One vector per image: the first token, z⁰ in Eq. 4, or the mean of the patch tokens.

    Shapes: (batch, tokens, width) -> (batch, width).

    Args:
        pool: `"token"` or `"first"` for the first token, or `"mean"`.
        class_token: whether the first token is a class token, which the mean leaves out.
        registers: number of further learned tokens, which the mean leaves out too.
    """

    integers = ("size",)
    pools = ("token", "first", "mean")

    def __init__(self, pool, class_token, registers=0, **kwargs):
        super().__init__(**kwargs)
        check_choice("pool", pool, self.pools)
        self.pool, self.learned_tokens = pool, int(class_token) + registers

    def call(self, x, size=None):
        """`size` is the number of patches that each token stands for (`MergingBlock`), integers of
        shape (batch, tokens); `None` for one each.
        """
        return self.mean(x, size) if self.pool == "mean" else x[:, 0]

    def mean(self, x, size=None):
        """The mean of the patches."""
        patches = x[:, self.learned_tokens :] if self.learned_tokens else x
        if size is None:
            return kernels.mean(patches, axis=1)
        share = ops.cast(size[:, self.learned_tokens :, None], kernels.at_least_float32(x.dtype))
        total = ops.sum(ops.cast(patches, share.dtype) * share, axis=1)
        return ops.cast(total / ops.sum(share, axis=1), x.dtype)

    def compute_output_spec(self, x, size=None):
        return self._output((x.shape[0], x.shape[2]))


def pre_logits(x, representation_size, dtype=None):
    """The hidden layer of the pre-training head, a layer of its own: linear, then tanh (3.1).

    Shapes: (batch, width) or (batch, tokens, width) -> the same with `representation_size`.
    """
    options = {"activation": kernels.tanh, "dtype": dtype, "name": "pre_logits"}
    return linear_map(x, representation_size, bias_axes="k", **options)


def linear_head(x, num_classes, bias=0.0, dtype=None, name="head"):
    """The logits of the linear head, a layer of its own that is zero when fresh (section 3.1).

    It computes in the precision of its variables (float32 under a mixed policy), because a loss
    needs more digits of the logits than half precision keeps. A `DTypePolicyMap` may name another.

    `bias` is the initial value of every bias: 0, or about -log(K) for a sigmoid loss over K
    classes, so that training starts from rare positives. Shapes are as in `pre_logits`.
    """
    policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
    initial = {"kernel_initializer": "zeros", "bias_initializer": keras.initializers.Constant(bias)}
    options = {"bias_axes": "k", "dtype": head_policy(policy), "name": name}
    return linear_map(x, num_classes, **initial, **options)


def head_policy(policy):
    """The dtype policy of `linear_head` in a model of the dtype policy `policy`."""
    return own_policy(policy, default=policy.variable_dtype)


def linear_map(x, units, **options):
    """`x` through a new `Linear` of each image, (batch, width), or of each token."""
    is_of_tokens = len(x.shape) == 3
    equation, shape = ("btd,dk->btk", (None, units)) if is_of_tokens else ("bd,dk->bk", (units,))
    return Linear(equation, shape, **options)(x)
