"""The Transformer encoder block (Eq. 2 and 3)."""

import keras

from keras_vit.checks import check_choice, positive_int
from keras_vit.layers import kernels
from keras_vit.layers.attention import MultiHeadSelfAttention
from keras_vit.layers.dropout import Dropout, StochasticDepth, drop, rematerialize
from keras_vit.layers.linear import LayerNorm, Linear
from keras_vit.layers.nested import is_direct, nested
from keras_vit.layers.whole_block import whole_block
from keras_vit.variants import GELUS


@keras.saving.register_keras_serializable("keras_vit")
class MLP(keras.layers.Layer):
    """Two linear layers with a GELU between them (section 3.1).

    Shapes: (batch, tokens, width) -> the same.

    Args:
        hidden_dim: units of the hidden layer.
        gelu: `"tanh"`, the authors' approximation, or `"erf"`, the exact form.
        dropout: rate after each of the two layers.
    """

    def __init__(self, hidden_dim, gelu="tanh", dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        check_choice("gelu", gelu, GELUS)
        self.hidden_dim, self.gelu = positive_int(hidden_dim, "hidden_dim"), gelu
        policy = self.dtype_policy
        self.dropout_1 = Dropout(dropout, dtype=policy, name="dropout_1")
        self.dropout_2 = Dropout(dropout, dtype=policy, name="dropout_2")

    def build(self, input_shape):
        width = input_shape[-1]
        gelu = kernels.gelu_tanh if self.gelu == "tanh" else kernels.gelu_erf
        for name, units, activation in (
            ("dense_1", self.hidden_dim, gelu),
            ("dense_2", width, None),
        ):
            layer = Linear(
                "btd,df->btf",
                (None, units),
                activation=activation,
                bias_axes="f",
                bias_initializer=keras.initializers.RandomNormal(stddev=1e-6),
                dtype=self.dtype_policy,
                name=name,
            )
            setattr(self, name, layer)
        self.dense_1.build(input_shape)
        self.dense_2.build((*input_shape[:-1], self.hidden_dim))
        self.built = True

    def call(self, x, training=False):
        x = drop(self.dropout_1, nested(self.dense_1, x), training)
        return drop(self.dropout_2, nested(self.dense_2, x), training)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {
            **super().get_config(),
            "hidden_dim": self.hidden_dim,
            "gelu": self.gelu,
            "dropout": self.dropout_1.rate,
        }


@keras.saving.register_keras_serializable("keras_vit")
class TransformerBlock(keras.layers.Layer):
    """One pre-norm encoder block: z' = MSA(LN(z)) + z, z'' = MLP(LN(z')) + z' (Eq. 2 and 3).

    Shapes: (batch, tokens, width) -> the same.

    Args:
        num_heads: attention heads; must divide the width of the input.
        mlp_dim: hidden units of the MLP.
        gelu: `"tanh"` or `"erf"`.
        qkv_bias: whether the query, key and value projections have a bias.
        epsilon: added to the variance in LayerNorm.
        dropout: rate after the attention and in the MLP.
        attention_dropout: rate at which attention weights are dropped.
        stochastic_depth: probability that a residual branch is left out for an example.
        remat: whether the backward pass computes the block again instead of keeping its
            intermediate values: less memory, about a third more time.
    """

    # What is inside: attention, MLP, two norms, the linear maps of the first and of the second.
    KINDS = (MultiHeadSelfAttention, MLP, LayerNorm, LayerNorm, *[Linear] * 6)

    def __init__(
        self,
        num_heads,
        mlp_dim,
        gelu="tanh",
        qkv_bias=True,
        epsilon=1e-6,
        dropout=0.0,
        attention_dropout=0.0,
        stochastic_depth=0.0,
        remat=False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.remat, policy = remat, self.dtype_policy
        self.norm_1 = LayerNorm(epsilon, dtype=policy, name="norm_1")
        self.attention = MultiHeadSelfAttention(
            num_heads, qkv_bias, attention_dropout, dtype=policy, name="attention"
        )
        self.dropout = Dropout(dropout, dtype=policy, name="dropout")
        self.drop_path_1 = StochasticDepth(stochastic_depth, dtype=policy, name="drop_path_1")
        self.norm_2 = LayerNorm(epsilon, dtype=policy, name="norm_2")
        self.mlp = MLP(mlp_dim, gelu, dropout, dtype=policy, name="mlp")
        self.drop_path_2 = StochasticDepth(stochastic_depth, dtype=policy, name="drop_path_2")

    def build(self, input_shape):
        for layer in (self.norm_1, self.attention, self.norm_2, self.mlp):
            layer.build(input_shape)
        self.built = True

    def __call__(self, x, *args, **options):
        given = {name: value for name, value in options.items() if value is not None}
        is_usual = self.built and not args and list(given) == ["training"]
        if is_usual and is_direct(self, x, self.mlp.dense_2.bias):
            return self.call(x, **given)
        return super().__call__(x, *args, **options)

    def call(self, x, relative_position=None, training=False):
        def block(x, relative_position=None):
            y = nested(self.norm_1, x)
            y = nested(self.attention, y, relative_position=relative_position, training=training)
            y = drop(self.dropout, y, training)
            x = x + drop(self.drop_path_1, y, training)  # Eq. 2
            y = nested(self.mlp, nested(self.norm_2, x), training=training)
            return x + drop(self.drop_path_2, y, training)  # Eq. 3

        inputs = (x,) if relative_position is None else (x, relative_position)
        if self.remat and training:
            return rematerialize(block, self._active_dropouts())(*inputs)
        is_usual = len(inputs) == 1 and not (training and self._active_dropouts())
        whole = whole_block(self, x) if is_usual else None
        return block(*inputs) if whole is None else whole

    def attention_scores(self, x, relative_position=None):
        """A of Eq. 6 for the tokens `x` that enter the block.

        Shapes: (batch, tokens, width) -> (batch, heads, tokens, tokens).
        """
        return self.attention.scores(self.norm_1(x), relative_position=relative_position)

    def _active_dropouts(self):
        layers = (
            self.attention.dropout,
            self.dropout,
            self.drop_path_1,
            self.mlp.dropout_1,
            self.mlp.dropout_2,
            self.drop_path_2,
        )
        return [layer for layer in layers if layer.rate > 0]

    def compute_output_spec(self, x, relative_position=None, training=False):
        return keras.KerasTensor(x.shape, self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.attention.num_heads,
            "mlp_dim": self.mlp.hidden_dim,
            "gelu": self.mlp.gelu,
            "qkv_bias": self.attention.qkv_bias,
            "epsilon": self.norm_1.epsilon,
            "dropout": self.dropout.rate,
            "attention_dropout": self.attention.dropout.rate,
            "stochastic_depth": self.drop_path_1.rate,
            "remat": self.remat,
        }
