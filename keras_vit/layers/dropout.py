"""Dropout and stochastic depth, whose seeds a rematerialised block can draw beforehand."""

import contextlib
import contextvars

import keras
import numpy as np
from keras import ops

from keras_vit import checks
from keras_vit.layers import kernels
from keras_vit.layers.layer import Identity, Layer

# id of a SeedGenerator -> the seed that was drawn from it beforehand
_DRAWN_SEEDS = contextvars.ContextVar("_DRAWN_SEEDS")


class SeedGenerator(keras.random.SeedGenerator):
    """Keras's generator, whose next seed may come from `drawn_seeds`."""

    def next(self, ordered=True):
        seed = _DRAWN_SEEDS.get({}).get(id(self))
        return super().next(ordered) if seed is None else seed


@contextlib.contextmanager
def drawn_seeds(generators, seeds):
    """Within it, each of the generators gives the seed that was drawn from it beforehand."""
    if not generators:  # PyTorch's compiler cannot read a `ContextVar`
        yield
        return
    token = _DRAWN_SEEDS.set(dict(zip(map(id, generators), seeds, strict=True)))
    try:
        yield
    finally:
        _DRAWN_SEEDS.reset(token)


@keras.saving.register_keras_serializable("keras_vit")
class Dropout(Layer):
    """While training, sets values to zero with probability `rate` (Srivastava et al., 2014).

    The others are divided by 1 - rate, so that the expectation stays. A `seed` makes the masks
    repeatable.

    Shapes: any -> the same.
    """

    def __init__(self, rate, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.rate, self.seed = rate, seed
        self.built = True
        if self.drops:
            self.seed_generator = SeedGenerator(seed)

    @property
    def rate(self):
        return self._rate

    @rate.setter
    def rate(self, rate):
        self._rate = checks.rate(rate, "rate")
        # What `call` reads, because PyTorch would compile a program for each number.
        self.drops, self._keep = rate > 0, kernels.Constant(np.array([1.0 - rate]))

    @classmethod
    def of(cls, rate, **kwargs):
        """A layer of this class, or, for a rate of 0, an `Identity`, which is no layer of Keras."""
        return (cls if checks.rate(rate, "rate") else Identity)(rate, **kwargs)

    def call(self, inputs, training=False):
        return self.drop(inputs) if training and self.drops else inputs

    def drop(self, inputs):
        return keras.random.dropout(inputs, self.rate, seed=self.seed_generator)


@keras.saving.register_keras_serializable("keras_vit")
class StochasticDepth(Dropout):
    """While training, drops the whole residual branch of an example (Huang et al., 2016).

    Shapes: (batch, tokens, width) -> the same. It has the arguments of `Dropout`.
    """

    def drop(self, inputs):
        keep = self._keep.tensor(inputs, kernels.at_least_float32(inputs.dtype))
        drawn = kernels.uniform((ops.shape(inputs)[0], 1, 1), self.seed_generator, like=inputs)
        kept = ops.cast(ops.divide(inputs, keep), inputs.dtype)
        return ops.where(ops.less(drawn, keep), kept, 0)
