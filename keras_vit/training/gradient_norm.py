"""The gradients' norm and the learning rate of an update, kept where they can be read."""

import keras

from keras_vit.training import optimizers_torch


def track_gradient_norm(optimizer):
    """Makes an optimizer remember the norm of all gradients of its last update, before clipping.

    Keras clips in one place, just before the update and inside the compiled step, on every
    backend; the norm is taken there, of the mean over the batches if they are accumulated. It is
    a scalar variable of the optimizer, `optimizer.gradient_norm`; beside it, the learning rate of
    that update is in `optimizer.applied_learning_rate`. Neither is written into `.keras` files,
    so that these open with any optimizer of the same kind.

    Args:
        optimizer: a Keras optimizer. One that has a `gradient_norm` is left as it is.

    Returns:
        The variable, float32 of shape ().
    """
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # of LossScaleOptimizer
    if hasattr(optimizer, "gradient_norm"):
        return optimizer.gradient_norm
    norm, rate = (_variable(optimizer, name) for name in ("gradient_norm", "learning_rate"))
    clip, load = optimizer._clip_gradients, optimizer.load_own_variables

    def clip_and_remember(gradients):
        norm.assign(global_norm(gradients))
        rate.assign(keras.ops.cast(optimizer.learning_rate, "float32"))
        return clip(gradients)

    def others():
        return [v for v in optimizer.variables if v is not norm and v is not rate]

    def save_others(store):
        for i, variable in enumerate(others()):
            store[str(i)] = keras.ops.convert_to_numpy(variable)

    def load_others(store):
        if len(store.keys()) != len(others()):
            return load(store)  # which says that they do not fit
        for i, variable in enumerate(others()):
            variable.assign(store[str(i)])

    # Around the tracking of attributes, which would list the variables twice.
    optimizer.__dict__.update(
        gradient_norm=norm,
        applied_learning_rate=rate,
        _clip_gradients=clip_and_remember,
        save_own_variables=save_others,
        load_own_variables=load_others,
    )
    return norm


def global_norm(gradients):
    """The Euclidean norm of all gradients together, float32."""
    norm = optimizers_torch.global_norm(gradients)
    if norm is not None:
        return keras.ops.cast(norm, "float32")
    squares = [
        keras.ops.sum(keras.ops.square(keras.ops.cast(gradient, "float32")))
        for gradient in gradients
        if gradient is not None
    ]
    return keras.ops.sqrt(keras.ops.sum(keras.ops.stack(squares)))


def _variable(optimizer, name):
    """A new scalar variable, also of an optimizer that takes no more since it is built."""
    locked = optimizer._tracker.locked
    optimizer._tracker.unlock()
    # Replicas of tf.distribute see the same gradients, those of all (see `distribution`).
    variable = optimizer.add_variable(
        (), name=name, dtype="float32", aggregation="only_first_replica"
    )
    if locked:
        optimizer._tracker.lock()
    return variable
