"""A fast path on TensorFlow: Adam's update of a variable by one operation instead of ten."""

import math

import keras
from keras import ops


def adamw(optimizer, gradients, variables, learning_rate):
    """One update of `AdamW`; the arguments are those of `optimizers_torch.adamw`.

    Returns:
        Whether it was made: under a `tf.distribute` strategy a variable is one for each device,
        which the operation does not know.
    """
    import tensorflow as tf

    if tf.distribute.has_strategy():
        return False
    dtype = keras.backend.standardize_dtype(variables[0].dtype)
    step = ops.cast(optimizer.updates + 1, dtype)
    first = ops.cast(correction(optimizer.beta_1, step), dtype)
    second = ops.sqrt(ops.cast(correction(optimizer.beta_2, step), dtype))
    for gradient, variable in zip(gradients, variables):
        i = optimizer._get_variable_index(variable)
        rate = ops.cast(learning_rate, dtype) * optimizer.layer_rates[i]
        value, slots = variable.value, [slot[i].value.handle for slot in optimizer._slots]
        if optimizer.decays(i):
            value.assign_sub(rate * optimizer.weight_decay * value)
        # m / first / (√v / second + ε) is what the operation computes with these two numbers;
        # its own powers of β, which have few digits in float32, are 0.
        tf.raw_ops.ResourceApplyAdam(
            var=value.handle,
            m=slots[0],
            v=slots[1],
            beta1_power=tf.zeros((), dtype),
            beta2_power=tf.zeros((), dtype),
            lr=rate * second / first,
            beta1=tf.constant(optimizer.beta_1, dtype),
            beta2=tf.constant(optimizer.beta_2, dtype),
            epsilon=optimizer.epsilon * second,
            grad=tf.cast(tf.convert_to_tensor(gradient), dtype),
        )
    return True


def correction(beta, step):
    """1 - βᵗ, without the loss of digits that a float32 power has where β is 0.999."""
    return -ops.expm1(step * math.log(beta)) if beta else 1.0
