"""Initial values on JAX by a few programs, where JAX itself compiles one for each shape.

Compiling them takes some tenths of a second for each shape, half of the time in which a ViT-B/16 is
built on a CPU. Here one program draws a block of numbers, and a variable takes as many as it needs.
Under `jax.jit`, which is how Keras makes a variable that is cut over devices, the values are the
same.
"""

import math

import keras
import numpy as np
from keras import initializers, ops

NORMAL, UNIFORM = initializers.RandomNormal, initializers.RandomUniform
TRUNCATED, SCALED = initializers.TruncatedNormal, initializers.VarianceScaling
_OF_SCALED = {"truncated_normal": TRUNCATED, "untruncated_normal": NORMAL, "uniform": UNIFORM}
_DRAWS = {NORMAL: "normal", UNIFORM: "uniform", TRUNCATED: "truncated_normal"}  # JAX's names
_CUT_DEVIATION = 0.87962566103423978  # of a standard normal variable between -2 and 2


def initial(initializer):
    """An initializer of Keras, or its name, in the form that suits the backend."""
    if initializer is None or keras.backend.backend() != "jax":
        return initializer
    initializer = initializers.get(initializer)
    return _ByBlocks(initializer) if _kind(initializer) else initializer


def _kind(initializer):
    """The class of Keras whose numbers this initializer draws; None for all others."""
    kinds = (NORMAL, TRUNCATED, UNIFORM, SCALED)
    return next((k for k in kinds if type(initializer).__call__ is k.__call__), None)


class _ByBlocks:
    """Calls of an initializer: the same distribution, drawn by blocks."""

    def __init__(self, initializer):
        self.initializer = initializer

    def __call__(self, shape, dtype=None):
        from keras_vit.layers import fast_jax

        dtype = keras.backend.standardize_dtype(dtype)
        kind, *line = _distribution(self.initializer, shape)
        key, drawn_as = _key(self.initializer.seed), "float64" if dtype == "float64" else "float32"
        values = fast_jax.draw(_DRAWS[kind], key, shape, drawn_as, *line)
        return ops.convert_to_tensor(values, dtype=dtype)


def _distribution(initializer, shape):
    """Which numbers to draw, a shift and a factor: the values are factor * number + shift."""
    kind = _kind(initializer)
    if kind is UNIFORM:
        return UNIFORM, initializer.minval, initializer.maxval - initializer.minval
    if kind is not SCALED:
        return kind, initializer.mean, initializer.stddev
    kind, variance = _OF_SCALED[initializer.distribution], _variance(initializer, shape)
    if kind is UNIFORM:
        limit = math.sqrt(3 * variance)
        return UNIFORM, -limit, 2 * limit
    return kind, 0.0, math.sqrt(variance) / (_CUT_DEVIATION if kind is TRUNCATED else 1)


def _variance(initializer, shape):
    """scale / fan of a `VarianceScaling`; axes before the last two are those of a convolution."""
    if initializer.input_axes is not None and initializer.output_axes is not None:
        axes = (initializer.input_axes, initializer.output_axes)
        fan_in, fan_out = (math.prod(shape[axis] for axis in each) for each in axes)
    else:
        pixels = math.prod(shape[:-2])
        fan_in, fan_out = (pixels * math.prod(each) for each in (shape[-2:][:1], shape[-1:]))
    fans = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}
    return initializer.scale / max(1.0, fans[initializer.mode])


def _key(seed):
    """What Keras makes of a seed for JAX."""
    if isinstance(seed, keras.random.SeedGenerator):
        return seed.next()
    return np.array([seed % 2**32, 0], "uint32")
