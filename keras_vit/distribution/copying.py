"""Whole copies, in each process, of variables that are spread over devices and processes."""

import contextlib

import keras
import numpy as np


def to_numpy(value: object) -> np.ndarray:
    """A variable or tensor as an array; all processes must call it for what they share."""
    if isinstance(value, keras.Variable):
        value = value.value
    if getattr(value, "is_fully_addressable", True) or value.is_fully_replicated:
        return keras.ops.convert_to_numpy(value)
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(value, tiled=True)


@contextlib.contextmanager
def one_device():
    """A context within which Keras knows one device, of this process."""
    before = keras.distribution.distribution()
    keras.distribution.set_distribution(None)
    try:
        yield
    finally:
        keras.distribution.set_distribution(before)
