"""What becomes of the tokens: pooling, pre-logits and the linear head (Eq. 4, section 3.1)."""

import keras
from keras import ops

from keras_vit.checks import check_choice
from keras_vit.layers import kernels
from keras_vit.layers.attention import MultiHeadSelfAttention
from keras_vit.layers.layer import Layer
from keras_vit.layers.linear import Linear
from keras_vit.layers.mlp import MLP
from keras_vit.layers.norm import LayerNorm
from keras_vit.layers.token_merging import log_size
from keras_vit.workarounds import own_policy

POOLS = ("token", "first", "mean", "token_mean", "distillation")


@keras.saving.register_keras_serializable("keras_vit")
class TokenPool(Layer):
    """One vector per image: the first token, z⁰ in Eq. 4, or the mean of the patch tokens.

    Shapes: (batch, tokens, width) -> (batch, width), or (batch, 2 * width) for both.

    Args:
        pool: `"token"` or `"first"` for the first token, `"mean"`, `"token_mean"` for both, or
            `"distillation"` for the second token.
        class_token: whether the first token is a class token, which the mean leaves out.
        registers: number of further learned tokens, which the mean leaves out too.
    """

    integers = ("size",)

    def __init__(self, pool, class_token, registers=0, **kwargs):
        super().__init__(**kwargs)
        check_choice("pool", pool, POOLS)
        self.pool, self.class_token, self.registers = pool, class_token, registers

    def call(self, x, size=None):
        """Pools the tokens of each image, of shape (batch, tokens, width).

        Args:
            x: the tokens.
            size: how many patches each token stands for (`MergingBlock`), integers of shape
                (batch, tokens); `None` for one each.
        """
        if self.pool in ("token", "first", "distillation"):
            return x[:, 1 if self.pool == "distillation" else 0]
        learned = int(self.class_token) + self.registers
        patches = x[:, learned:] if learned else x
        if size is None:
            mean = kernels.mean(patches, axis=1)
        else:
            share = ops.cast(size[:, learned:, None], kernels.at_least_float32(x.dtype))
            total = ops.sum(ops.cast(patches, share.dtype) * share, axis=1)
            mean = ops.cast(total / ops.sum(share, axis=1), x.dtype)
        return mean if self.pool == "mean" else ops.concatenate([x[:, 0], mean], axis=-1)

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
        self.skipped, self.has_mlp, kind = (
            skipped,
            mlp_dim is not None,
            {"dtype": self.dtype_policy},
        )
        self.attention = MultiHeadSelfAttention(
            num_heads, qkv_bias, project_query=self.has_mlp, **kind, name="attention"
        )
        if self.has_mlp:
            later = {"activation": activation}
            self.norm = LayerNorm(epsilon, **kind, name="norm")
            self.mlp = MLP(mlp_dim, gelu, later=later, **kind, name="mlp")

    def build(self, input_shape):
        probe = (1, 1, input_shape[-1])
        self.probe = self.add_weight(probe, kernels.initial("glorot_uniform"), name="probe")
        self.attention.build(input_shape)
        if self.has_mlp:
            self.norm.build(probe)
            self.mlp.build(probe)

    def call(self, x, size=None):
        """Attends to the tokens of each image, of shape (batch, tokens, width).

        Args:
            x: the tokens.
            size: how many patches each token stands for, as in `TokenPool`: the probe counts a
                token that often.
        """
        bias = None if size is None else log_size(size[:, self.skipped :], x.dtype)
        memory = x[:, self.skipped :] if self.skipped else x
        y = self.attention(self._probes(x), memory=memory, bias=bias)
        return (y + self.mlp(self.norm(y)) if self.has_mlp else y)[:, 0]

    def attention_scores(self, x):
        """A of Eq. 6, where the probe asks: (batch, tokens, width) -> (batch, heads, 1, tokens).

        Tokens that it does not see have the weight 0.
        """
        seen = x[:, self.skipped :]
        scores = self.attention(self._probes(x), memory=seen, return_attention_scores=True)[1]
        return ops.pad(scores, ((0, 0), (0, 0), (0, 0), (self.skipped, 0)))

    def _probes(self, x):
        probe = ops.broadcast_to(self.probe, (ops.shape(x)[0], 1, x.shape[-1]))
        return ops.cast(probe, x.dtype)

    def compute_output_spec(self, x, size=None):
        return self._output((x.shape[0], x.shape[2]))


def pre_logits(rank, representation_size, dtype=None):
    """The hidden layer of the pre-training head: linear, then tanh (section 3.1).

    Args:
        rank: axes of the input: 2 for (batch, width), 3 for (batch, tokens, width).
        representation_size: units.
        dtype: dtype policy, or `None` for the global one.
    """
    how = _equation(rank, representation_size)
    return Linear(**how, activation=kernels.tanh, dtype=dtype, name="pre_logits")


def linear_head(rank, num_classes, bias=0.0, dtype=None, name="head"):
    """The linear head, zero when fresh (section 3.1).

    It computes in the precision of its variables (float32 under a mixed policy), because a loss
    needs more digits of the logits than half precision keeps. A `DTypePolicyMap` may name another.

    Args:
        rank, dtype: as in `pre_logits`.
        num_classes: K, the number of logits.
        bias: initial value of every bias: 0, or about -log(K) for a sigmoid loss over K classes,
            so that training starts from rare positives.
        name: of the layer.
    """
    policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
    return Linear(
        **_equation(rank, num_classes),
        kernel_initializer="zeros",
        bias_initializer=keras.initializers.Constant(bias),
        dtype=head_policy(policy),
        name=name,
    )


def head_policy(policy):
    """The dtype policy of `linear_head` in a model of the dtype policy `policy`."""
    return own_policy(policy, default=policy.variable_dtype)


def projection(rank, units, dtype=None):
    """The linear map without bias into the space that images and texts share.

    Args:
        rank, dtype: as in `pre_logits`.
        units: length of the embedding.
    """
    how = {**_equation(rank, units), "bias_axes": None}
    return Linear(**how, dtype=dtype, name="projection")


def _equation(rank, units):
    t, shape = ("t", (None, units)) if rank == 3 else ("", (units,))
    return {"equation": f"b{t}d,dk->b{t}k", "output_shape": shape, "bias_axes": "k"}
