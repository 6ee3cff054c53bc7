"""MLPs with another activation, a norm, a gate or without biases."""

import keras

from keras_vit.extensions import get_extensions
from keras_vit.layers import kernels
from keras_vit.layers.extensions.norm import NORMS
from keras_vit.layers.mlp import MLP


@keras.saving.register_keras_serializable("keras_vit")
class ExtendedMLP(MLP):
    """An `MLP` whose activation, biases and norm of the hidden layer are fields of `Extensions`.

    Shapes: (batch, tokens, width) -> the same.

    Args:
        hidden_dim, gelu, dropout: as in `MLP`.
        extensions: `keras_vit.Extensions`, or its fields as a dict.
        epsilon: of the norm.
    """

    def __init__(
        self, hidden_dim, gelu="tanh", dropout=0.0, extensions=None, epsilon=1e-6, **kwargs
    ):
        super().__init__(hidden_dim, gelu, dropout, **kwargs)
        self.extensions = get_extensions(extensions)
        norm = NORMS[self.extensions.mlp_norm]
        self.norm = norm(epsilon, dtype=self.dtype_policy, name="norm")

    def build(self, input_shape):
        width, use_bias = input_shape[-1], self.extensions.has_bias("mlp")
        self.build_hidden(width, use_bias)
        self.norm.build((None, None, self.hidden_dim))
        self.dense_2 = self.dense("dense_2", self.hidden_dim, width, use_bias=use_bias)

    def build_hidden(self, width, use_bias):
        activation = kernels.ACTIVATIONS[self.extensions.activation or f"gelu_{self.gelu}"]
        self.dense_1 = self.dense("dense_1", width, self.hidden_dim, activation, use_bias)

    def hidden(self, x):
        return self.dense_1(x)

    def call(self, x, training=False):
        x = self.norm(self.dropout_1(self.hidden(x), training=training))
        return self.dropout_2(self.dense_2(x), training=training)


@keras.saving.register_keras_serializable("keras_vit")
class SwiGLU(ExtendedMLP):
    """(activation(x W_gate) * x W_1) W_2: a hidden layer with a gate (Shazeer, 2020).

    Shapes and arguments are those of `ExtendedMLP`.
    """

    def build_hidden(self, width, use_bias):
        activation = kernels.ACTIVATIONS[self.extensions.activation or "silu"]
        self.gate = self.dense("gate", width, self.hidden_dim, activation, use_bias)
        self.dense_1 = self.dense("dense_1", width, self.hidden_dim, use_bias=use_bias)

    def hidden(self, x):
        return self.gate(x) * self.dense_1(x)


MLPS = {"mlp": ExtendedMLP, "swiglu": SwiGLU}  # names of `keras_vit.Extensions.mlp`
