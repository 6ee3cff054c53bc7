"""The MLP of a Transformer block (section 3.1)."""

import keras

from keras_vit.checks import check_choice, positive_int
from keras_vit.layers import kernels
from keras_vit.layers.dropout import Dropout
from keras_vit.layers.layer import Layer
from keras_vit.layers.linear import Linear
from keras_vit.variant import GELUS


@keras.saving.register_keras_serializable("keras_vit")
class MLP(Layer):
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
        self.hidden_dim = positive_int(hidden_dim, "hidden_dim")
        self.gelu = gelu
        self.dropout_1 = Dropout.of(dropout, dtype=self.dtype_policy, name="dropout_1")
        self.dropout_2 = Dropout.of(dropout, dtype=self.dtype_policy, name="dropout_2")

    def build(self, input_shape):
        width = input_shape[-1]
        gelu = kernels.ACTIVATIONS[f"gelu_{self.gelu}"]
        self.dense_1 = self.dense("dense_1", width, units=self.hidden_dim, activation=gelu)
        self.dense_2 = self.dense("dense_2", self.hidden_dim, units=width)

    def dense(self, name, inputs, units, activation=None, use_bias=True):
        """One of the linear layers, built: (batch, tokens, inputs) -> (batch, tokens, units)."""
        return Linear.built(
            "btd,df->btf",
            (None, units),
            (None, None, inputs),
            use_bias=use_bias,
            activation=activation,
            bias_initializer=keras.initializers.RandomNormal(stddev=1e-6),
            dtype=self.dtype_policy,
            name=name,
        )

    def call(self, x, training=False):
        x = self.dense_1(x)  # GELU(x W_1 + b_1)
        x = self.dense_2(self.dropout_1(x, training=training))
        return self.dropout_2(x, training=training)
