"""Averaged weights: the optimizer keeps them (see `DecoupledOptimizer`), a model borrows them."""

import contextlib
from collections.abc import Iterator

import keras
import numpy as np
from keras import ops

from keras_vit.checks import require
from keras_vit.distribution import to_numpy
from keras_vit.training.checkpoint import inner_optimizer, sync


@contextlib.contextmanager
def averaged_weights(model: keras.Model) -> Iterator[None]:
    """Gives a model its averaged weights for a `with` block, and then its own back.

    Its own come back however the block ends. Inside, `evaluate`, `predict` and `save` see the
    averages; an optimizer saved inside is of no use for training on. Before the first update there
    is no average, and the weights stay as they are.

    Args:
        model: compiled with an optimizer of `keras_vit.training` that has `use_ema=True`.

    Raises:
        ValueError: the optimizer keeps no averages.
    """
    _lend_averages(model)
    try:
        yield
    finally:
        return_weights(model)


class EvaluateAverages(keras.callbacks.Callback):
    """Lets the evaluation within `fit` see the averaged weights.

    Training goes on with the model's own weights; a `fit` that comes to its end leaves the averages
    in the model. Where an error or Ctrl-C ends an evaluation within `model.fit`, they stay until
    `return_weights(model)` or the next `fit` with such a callback; `keras_vit.training.fit` returns
    the weights by itself. (`keras.callbacks.SwapEMAWeights` would train on the averages then.)
    """

    def on_train_begin(self, logs=None):
        _averaging_optimizer(self.model)  # one without averages is refused now, not after an epoch
        return_weights(self.model)

    def on_test_begin(self, logs=None):
        _lend_averages(self.model)

    def on_test_end(self, logs=None):
        return_weights(self.model)

    def on_train_end(self, logs=None):
        _lend_averages(self.model)
        _averaging_optimizer(self.model).replaced_weights = None  # for good


def return_weights(model: keras.Model) -> None:
    """Gives a model that has its averages its own weights back; any other is left alone."""
    optimizer = inner_optimizer(model)
    if getattr(optimizer, "replaced_weights", None) is None:
        return
    sync(model)  # an interrupted evaluation still holds the variables
    for variable, value in zip(_averaged(optimizer), optimizer.replaced_weights):
        variable.assign(value)
    optimizer.replaced_weights = None


def _averaging_optimizer(model):
    """The optimizer of a model, or a ValueError if it keeps no averages."""
    optimizer = inner_optimizer(model)
    rule = "The optimizer keeps no averages; compile with keras_vit.training.AdamW(use_ema=True), "
    rule += "or with a recipe that has ema=0.9999"
    require(getattr(optimizer, "keeps_averages", False), rule, received=type(optimizer).__name__)
    return optimizer


def _averaged(optimizer):
    """The variables that the averages are of, also those that were frozen since."""
    # Keras would take a list of our own, as an attribute, for variables of the optimizer.
    return optimizer._trainable_variables


def _lend_averages(model):
    optimizer = _averaging_optimizer(model)
    if not optimizer.built or int(ops.convert_to_numpy(optimizer.iterations)) == 0:
        return
    variables = _averaged(optimizer)
    if getattr(optimizer, "replaced_weights", None) is None:
        optimizer.replaced_weights = tuple(np.array(to_numpy(v)) for v in variables)
    for variable, average in zip(variables, optimizer.ema_weights):
        # A copy: on JAX the two would share their memory, which the next step gives away.
        value = None if average is None else np.array(to_numpy(average))
        # A scale of float8 has no average, and what got no gradient has one of zeros.
        if value is not None and value.any():
            variable.assign(value)
