"""What becomes of the tokens: pooling, pre-logits and the linear head (Eq. 4, section 3.1)."""

import keras

from keras_vit.layers import kernels
from keras_vit.layers.linear import Linear


@keras.saving.register_keras_serializable("keras_vit")
class TokenPool(keras.layers.Layer):
    """One vector per image: the class token z⁰ (Eq. 4) or the mean of the patch tokens.

    Shapes: (batch, tokens, width) -> (batch, width).

    Args:
        pool: `"token"` or `"mean"`.
        class_token: whether the first token is a class token, which the mean leaves out.
        registers: number of register tokens, which the mean leaves out too.
    """

    def __init__(self, pool, class_token, registers=0, **kwargs):
        super().__init__(**kwargs)
        if pool not in ("token", "mean") or (pool == "token" and not class_token):
            raise ValueError(
                "pool must be 'token', for tokens that begin with a class token, or 'mean'. "
                f"Received: pool={pool!r}, class_token={class_token}."
            )
        self.pool, self.class_token, self.registers = pool, class_token, registers

    def call(self, x):
        if self.pool == "token":
            return x[:, 0]
        learned = int(self.class_token) + self.registers
        return kernels.mean(x[:, learned:] if learned else x, axis=1)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], input_shape[2])

    def get_config(self):
        return {
            **super().get_config(),
            "pool": self.pool,
            "class_token": self.class_token,
            "registers": self.registers,
        }


def pre_logits(rank, representation_size, dtype=None):
    """The hidden layer of the pre-training head: linear, then tanh (section 3.1).

    Args:
        rank: axes of the input: 2 for (batch, width), 3 for (batch, tokens, width).
        representation_size: units.
        dtype: dtype policy, or `None` for the global one.
    """
    return Linear(
        **_equation(rank, representation_size),
        activation=kernels.tanh,
        dtype=dtype,
        name="pre_logits",
    )


def linear_head(rank, num_classes, bias=0.0, dtype=None):
    """The linear head, zero when fresh (section 3.1).

    It computes in the precision of its variables (float32 under a mixed policy), because a loss
    needs more digits of the logits than half precision keeps.

    Args:
        rank: axes of the input: 2 for (batch, width), 3 for (batch, tokens, width).
        num_classes: K, the number of logits.
        bias: initial value of every bias: 0, or about -log(K) for a sigmoid loss over K classes,
            so that training starts from rare positives.
        dtype: dtype policy of the model, or `None` for the global one.
    """
    policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
    return Linear(
        **_equation(rank, num_classes),
        kernel_initializer="zeros",
        bias_initializer=keras.initializers.Constant(bias),
        dtype=policy.variable_dtype,
        name="head",
    )


def _equation(rank, units):
    t, shape = ("t", (None, units)) if rank == 3 else ("", (units,))
    return {"equation": f"b{t}d,dk->b{t}k", "output_shape": shape, "bias_axes": "k"}
