"""What becomes of the tokens: pooling, pre-logits and the linear head (Eq. 4, section 3.1)."""

import keras

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
    """

    pools = ("token", "first", "mean")

    def __init__(self, pool, class_token, **kwargs):
        super().__init__(**kwargs)
        check_choice("pool", pool, self.pools)
        self.pool, self.class_token = pool, bool(class_token)

    def call(self, x):
        if self.pool == "mean":
            return kernels.mean(x[:, 1:] if self.class_token else x, axis=1)
        return x[:, 0]

    def compute_output_spec(self, x):
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
