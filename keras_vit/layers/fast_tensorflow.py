"""What TensorFlow does faster than `keras.ops` asks for; `kernels` has the twin of each function.

The gradients of GELU and LayerNorm are written out: they keep less, and take fewer operations than
one for each step of the forward pass.
"""

import functools
import math

import tensorflow as tf

from keras_vit.layers import kernels

_GATE = math.sqrt(8 / math.pi)  # (1 + tanh(y)) / 2 is sigmoid(2 y)
_CUBIC = 0.044715 * _GATE


def applies():
    return True


def with_own_gradient(function, *arguments):
    """Calls a function that returns its value and its gradient, as `tf.custom_gradient` wants it.

    Without a tape the bare value is computed, which TensorFlow can fuse with its neighbours.
    """
    # A variable among the arguments would count as something else than an argument.
    arguments = [tf.convert_to_tensor(argument) for argument in arguments]
    if _is_recording():
        return tf.custom_gradient(function)(*arguments)
    return function(*arguments)[0]


def _is_recording():
    """Whether there is a `tf.GradientTape`, as far as this TensorFlow tells."""
    try:
        from tensorflow.python.eager import record
    except ImportError:
        return True
    return getattr(record, "could_possibly_record", lambda: True)()


def product(x, kernel, bias=None, activation=None):
    """The linear map of `kernels.product`."""
    x = tf.matmul(x, kernel)
    x = x if bias is None else tf.nn.bias_add(x, bias)
    return x if activation is None else activation(x)


def gelu(x, approximate):
    """The GELU of `kernels.gelu`, whose gradient keeps its argument alone."""

    def function(x):
        def gradient(dy):
            square = tf.square(x)
            if approximate:
                gate = tf.sigmoid(x * (_GATE + _CUBIC * square))
                slope = gate + x * (_GATE + 3 * _CUBIC * square) * (gate - tf.square(gate))
            else:
                density = tf.exp(-0.5 * square) * (1 / math.sqrt(2 * math.pi))
                slope = 0.5 * tf.math.erfc(-x * math.sqrt(0.5)) + x * density
            return dy * slope

        return tf.nn.gelu(x, approximate), gradient

    return with_own_gradient(function, x)


def layer_norm(x, gamma, beta, epsilon):
    """The LayerNorm of `kernels.layer_norm`."""
    if _takes_onednns_norm(x):
        return _onednns_norm(x, gamma, beta, epsilon)
    others = tuple(range(len(x.shape) - 1))

    def function(x, gamma, beta):
        wide = tf.cast(x, gamma.dtype)
        centred = wide - tf.reduce_mean(wide, -1, keepdims=True)
        r = tf.math.rsqrt(tf.reduce_mean(tf.square(centred), -1, keepdims=True) + epsilon)
        x_hat = centred * r

        def gradient(dy):
            dy = tf.cast(dy, gamma.dtype)
            g = dy * gamma
            along_x = tf.reduce_mean(g * x_hat, -1, keepdims=True)
            dx = (g - tf.reduce_mean(g, -1, keepdims=True) - x_hat * along_x) * r
            dgamma, dbeta = tf.reduce_sum(dy * x_hat, others), tf.reduce_sum(dy, others)
            return tf.cast(dx, x.dtype), dgamma, dbeta

        return tf.cast(x_hat * gamma + beta, x.dtype), gradient

    return with_own_gradient(function, x, gamma, beta)


def _takes_onednns_norm(x):
    # Not in what is exported or compiled by XLA, which may have to do without it.
    may = kernels.stays_here() and not tf.executing_eagerly() and not _is_recording()
    plain = x.dtype == tf.float32 and len(x.shape) in (2, 3) and not tf.distribute.has_strategy()
    return may and plain and has_onednns_norm()


@functools.cache
def has_onednns_norm():
    """Whether TensorFlow computes on CPUs alone here and has the LayerNorm of oneDNN.

    It is one pass instead of seven, and a private operation: TensorFlow puts it where it finds a
    LayerNorm of constants.
    """
    if tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("TPU"):
        return False
    try:
        with tf.init_scope():
            x = tf.constant([[1.0, 3.0], [5.0, 3.0]])
            y = tf.function(lambda x: _onednns_norm(x, x[0], x[1], 1e-6))(x)
            return bool(tf.reduce_all(tf.abs(y - [[4.0, 6.0], [6.0, 0.0]]) < 1e-4))
    except (tf.errors.OpError, ValueError, TypeError, AttributeError):
        return False


def _onednns_norm(x, gamma, beta, epsilon):
    inputs = [tf.convert_to_tensor(values) for values in (x, gamma, beta)]
    attributes = {"epsilon": tf.compat.v1.AttrValue(f=epsilon)}
    attributes["T"] = tf.compat.v1.AttrValue(type=x.dtype.as_datatype_enum)
    graph = tf.compat.v1.get_default_graph()
    operation = graph.create_op(
        "_MklLayerNorm", inputs, [x.dtype], name="layer_norm", attrs=attributes
    )
    y = operation.outputs[0]
    y.set_shape(x.shape)
    return y


def attention(query, key, value):
    """The attention of `kernels.attention` without bias, a product of matrices for each head."""
    query = query * query.shape[-1] ** -0.5
    query, key, value = (tf.transpose(x, (0, 2, 1, 3)) for x in (query, key, value))
    scores = tf.matmul(query, key, transpose_b=True)
    scores = scores if scores.dtype == tf.float32 else tf.cast(scores, tf.float32)
    weights = tf.cast(tf.nn.softmax(scores), value.dtype)
    return tf.transpose(tf.matmul(weights, value), (0, 2, 1, 3))
