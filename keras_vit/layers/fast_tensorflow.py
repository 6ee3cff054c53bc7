"""Functions of `kernels` that are faster like this with TensorFlow."""

import tensorflow as tf

from keras_vit.layers import cpu


def applies(name):
    return name != "matmul" or not tf.config.list_logical_devices("GPU")


def matmul(x, kernel):
    """The product of two matrices; of types that the CPU lacks, in float32 between casts."""
    if x.dtype.name not in cpu.EMULATED:
        return x @ kernel
    return tf.cast(tf.cast(x, "float32") @ tf.cast(kernel, "float32"), x.dtype)


def layer_norm(x, gamma, beta, epsilon):
    """The LayerNorm of `kernels.layer_norm`, whose gradient keeps x̂ and 1 / deviation.

    With x̂ = (x - mean) r, r = 1 / deviation and g = γ dy, it is r (g - mean(g) - x̂ mean(g x̂)).
    """
    others = tuple(range(len(x.shape) - 1))

    @tf.custom_gradient
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

    # custom_gradient treats variables differently from tensors.
    return function(*map(tf.convert_to_tensor, (x, gamma, beta)))
