"""Polyak averaging: a moving average of the weights, which is what gets evaluated and published."""

import contextlib

import keras
from keras import ops

from keras_vit.distribution.reading import to_numpy


def average_rate(optimizer):
    """How far the next step moves the average towards the weights, as a tensor.

    The first update makes the average equal to the weights; later ones move it by 1 - momentum;
    a step that only accumulates gradients moves it by nothing.
    """
    every = optimizer.gradient_accumulation_steps or 1
    first = ops.equal(optimizer.iterations, 0)
    rate = ops.where(first, 1.0, 1.0 - optimizer.ema_momentum)
    completes = ops.equal((optimizer._iterations + 1) % every, 0)
    return ops.where(completes, rate, 0.0)


@contextlib.contextmanager
def averaged_weights(model):
    """Gives a model its averaged weights for a `with` block, and then its own back.

    Its own come back however the block ends. Inside, `evaluate`, `predict` and `save` see the
    averages; an optimizer saved inside is of no use for training on.

        with keras_vit.training.averaged_weights(model):
            model.save("averaged.keras")

    Before the first update there is no average, and the weights stay as they are.

    Args:
        model: compiled with an optimizer that has `use_ema=True`.

    Raises:
        ValueError: the optimizer keeps no averages.
    """
    optimizer = _inner(getattr(model, "optimizer", None))
    if not getattr(optimizer, "use_ema", False):
        raise ValueError(
            "Averaged weights need an optimizer that keeps them. Received: optimizer "
            f"{type(optimizer).__name__} without use_ema; compile the model with use_ema=True, or "
            "with a recipe that has ema=0.9999."
        )
    if not optimizer.built or int(ops.convert_to_numpy(optimizer.iterations)) == 0:
        yield
        return
    own = [to_numpy(variable).copy() for variable, _ in _pairs(optimizer)]
    try:
        take_averages(model)
        yield
    finally:
        if hasattr(model, "jax_state_sync"):  # an interrupted evaluation still holds the variables
            model.jax_state_sync()
        for (variable, _), value in zip(_pairs(optimizer), own):
            variable.assign(value)


def take_averages(model):
    """Gives a model its averaged weights for good."""
    for variable, average in _pairs(_inner(model.optimizer)):
        # A copy: on JAX the two would share their memory, which the next step gives away.
        variable.assign(to_numpy(average).copy())


def _pairs(optimizer):
    pairs = zip(optimizer._trainable_variables, optimizer._model_variables_moving_average)
    return [(variable, average) for variable, average in pairs if average is not None]


class EvaluateAverages(keras.callbacks.Callback):
    """Lets the evaluation within `fit` see the averaged weights.

    The metrics `val_...` are then those of the averages. Training goes on with the model's own
    weights, which it has again after each evaluation, also one that an error or Ctrl-C ends; so
    a checkpoint written at the end of an epoch holds the state to resume from. A `fit` that comes
    to its end leaves the averages in the model; one that is interrupted leaves its own weights.

    `keras.callbacks.SwapEMAWeights` leaves the averages in the model where an evaluation is
    interrupted or `predict` was called, and then trains on them.

    Outside of `fit`, use `averaged_weights`.
    """

    def on_train_begin(self, logs=None):
        with averaged_weights(self.model):
            pass  # an optimizer without averages is told now, not after an epoch
        evaluate = type(self.model).evaluate.__get__(self.model)

        def evaluate_averages(*args, **kwargs):
            # `fit` hands over its list of callbacks. A call by anyone else is left alone, because
            # an interrupted `fit` has no chance to take this function away again.
            if not isinstance(kwargs.get("callbacks"), keras.callbacks.CallbackList):
                return evaluate(*args, **kwargs)
            with averaged_weights(self.model):
                return evaluate(*args, **kwargs)

        self.model.evaluate = evaluate_averages

    def on_train_end(self, logs=None):
        del self.model.evaluate
        if int(ops.convert_to_numpy(self.model.optimizer.iterations)) > 0:
            take_averages(self.model)


def _inner(optimizer):
    """The optimizer inside the one that scales the loss, under mixed_float16."""
    return getattr(optimizer, "inner_optimizer", optimizer)
