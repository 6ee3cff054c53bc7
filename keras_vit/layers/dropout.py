"""Dropout and stochastic depth, in a form that survives rematerialisation."""

import contextlib
import contextvars

import keras

from keras_vit import checks
from keras_vit.layers import kernels

# id of a Dropout layer -> the seed that was drawn for it
_DRAWN_SEEDS = contextvars.ContextVar("_DRAWN_SEEDS", default=None)


@keras.saving.register_keras_serializable("keras_vit")
class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout` whose seed the caller may draw beforehand (see `rematerialize`)."""

    def call(self, inputs, training=False):
        if not training or self.rate == 0:
            return inputs
        seed = (_DRAWN_SEEDS.get() or {}).get(id(self), self.seed_generator)
        return keras.random.dropout(inputs, self.rate, noise_shape=self.noise_shape, seed=seed)


def drop(layer, x, training):
    """What a `Dropout` or `StochasticDepth` makes of `x`, without a call where that is `x`."""
    return layer(x, training=True) if training and layer.rate else x


@keras.saving.register_keras_serializable("keras_vit")
class StochasticDepth(Dropout):
    """Drops the whole residual branch of an example (Huang et al., 2016).

    While training, each example's branch becomes zero with probability `rate`, and is divided by
    1 - rate otherwise, so that its expectation stays.

    Shapes: (batch, tokens, width) -> the same.

    Args:
        rate: probability, in [0, 1).
        seed: optional integer for repeatable masks.
    """

    def __init__(self, rate, seed=None, **kwargs):
        super().__init__(checks.rate(rate, "rate"), noise_shape=(None, 1, 1), seed=seed, **kwargs)

    def get_config(self):
        config = super().get_config()
        del config["noise_shape"]
        return config


class _DrawnSeed(keras.random.SeedGenerator):
    """A seed that was drawn already, in the shape that `keras.random` accepts. Has no variable."""

    def __init__(self, generator, value):
        # Keras's torch backend reads this to choose between its own and torch's generator.
        self._initial_seed = generator.get_config()["seed"]
        self._value = value

    def next(self, ordered=True):
        return self._value


def rematerialize(function, dropouts):
    """`function`, whose backward pass computes its inside again instead of keeping it.

    The second run must drop what the first one dropped. Therefore the seeds of `dropouts` are
    drawn here, outside, and handed in: drawing inside would change the masks on TensorFlow and
    leak a tracer on JAX.

    Args:
        function: maps tensors, given by position, to one tensor. Everything that needs a gradient
            must be an argument or a variable.
        dropouts: the `Dropout` layers in it that drop something in this call.

    Returns:
        A function of the same arguments.
    """

    def inside(seeds, *tensors):
        with _seeds_in_force(dropouts, seeds):
            return function(*tensors)

    def outside(*tensors):
        return kernels.remat(inside)([d.seed_generator.next() for d in dropouts], *tensors)

    return outside


def is_rematerialized():
    """Whether this is inside a function of `rematerialize`."""
    return _DRAWN_SEEDS.get() is not None


@contextlib.contextmanager
def _seeds_in_force(dropouts, values):
    token = _DRAWN_SEEDS.set(
        {id(d): _DrawnSeed(d.seed_generator, value) for d, value in zip(dropouts, values)}
    )
    try:
        yield
    finally:
        _DRAWN_SEEDS.reset(token)
