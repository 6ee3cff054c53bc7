"""The MLP of a Transformer block (section 3.1), and what later families have in its place."""

import keras

from keras_vit.checks import check_choice, positive_int
from keras_vit.extensions import get_extensions
from keras_vit.layers import kernels
from keras_vit.layers.dropout import Dropout
from keras_vit.layers.layer import Layer
from keras_vit.layers.linear import Linear
from keras_vit.layers.norm import NORMS
from keras_vit.variants import GELUS


@keras.saving.register_keras_serializable("keras_vit")
class MLP(Layer):
    """Two linear layers with a GELU between them (section 3.1).

    Shapes: (batch, tokens, width) -> the same.

    Args:
        hidden_dim: units of the hidden layer.
        gelu: `"tanh"`, the authors' approximation, or `"erf"`, the exact form.
        dropout: rate after each of the two layers.
        later: `keras_vit.Extensions`, or its fields as a dict: another activation, a norm of the
            hidden layer, or no biases.
        epsilon: of that norm.
    """

    def __init__(self, hidden_dim, gelu="tanh", dropout=0.0, later=None, epsilon=1e-6, **kwargs):
        super().__init__(**kwargs)
        check_choice("gelu", gelu, GELUS)
        self.hidden_dim, self.gelu = positive_int(hidden_dim, "hidden_dim"), gelu
        self.later = later = get_extensions(later)
        self.norm = NORMS[later.mlp_norm](epsilon, dtype=self.dtype_policy, name="norm")
        self.dropout_1 = Dropout.of(dropout, dtype=self.dtype_policy, name="dropout_1")
        self.dropout_2 = Dropout.of(dropout, dtype=self.dtype_policy, name="dropout_2")

    def build(self, input_shape):
        self._build_hidden(input_shape[-1])
        self.norm.build((None, None, self.hidden_dim))
        self.dense_2 = self._linear("dense_2", self.hidden_dim, input_shape[-1])
        self.dropout_1.build(None)
        self.dropout_2.build(None)

    def _build_hidden(self, width):
        activation = kernels.ACTIVATIONS[self.later.activation or f"gelu_{self.gelu}"]
        self.dense_1 = self._linear("dense_1", width, self.hidden_dim, activation)

    def _hidden(self, x):
        return self.dense_1(x)

    def _linear(self, name, width, units, activation=None):
        linear = Linear(
            "btd,df->btf",
            (None, units),
            activation=activation,
            bias_axes="f" if self.later.has_bias("mlp") else None,
            bias_initializer=keras.initializers.RandomNormal(stddev=1e-6),
            dtype=self.dtype_policy,
            name=name,
        )
        linear.build((None, None, width))
        return linear

    def call(self, x, training=False):
        x = self.norm(self.dropout_1(self._hidden(x), training=training))
        return self.dropout_2(self.dense_2(x), training=training)


@keras.saving.register_keras_serializable("keras_vit")
class SwiGLU(MLP):
    """(activation(x W_gate) * x W_1) W_2: a hidden layer with a gate (Shazeer, 2020).

    Shapes and arguments are those of `MLP`.
    """

    def _build_hidden(self, width):
        activation = kernels.ACTIVATIONS[self.later.activation or "silu"]
        self.gate = self._linear("gate", width, self.hidden_dim, activation)
        self.dense_1 = self._linear("dense_1", width, self.hidden_dim)

    def _hidden(self, x):
        return self.gate(x) * self.dense_1(x)


MLPS = {"mlp": MLP, "swiglu": SwiGLU}
