"""Faults of others that are worked around, each with the version in which it was found."""

import ctypes
import random
import sys

import keras
import numpy as np


def set_random_seed(seed):
    """What `keras.utils.set_random_seed` does, without importing TensorFlow on other backends.

    Keras 3.15 imports it wherever it is installed, which takes seconds and half a gigabyte.
    Layers that are given no seed draw theirs from Python's generator.

    Args:
        seed: a whole number.
    """
    random.seed(seed)
    np.random.seed(seed)
    if keras.backend.backend() == "torch":
        import torch

        torch.manual_seed(seed)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.random.set_seed(seed)


def keep_memory():
    """Lets this process keep the memory that it frees, instead of returning it to the system.

    On a CPU, JAX 0.10 takes the memory of each step from the system anew and gives it back, which
    can cost a third of a step: call this before the first model is built. It holds for the whole
    process, whose memory then stays at its peak; hence nothing here calls it by itself. The same
    from outside: `GLIBC_TUNABLES=glibc.malloc.mmap_max=0` and, joined to it by colons,
    `glibc.malloc.trim_threshold=2147483647` and `glibc.malloc.arena_max=1`.

    Returns:
        Whether it could be done: it takes Linux with the GNU C library.
    """
    mallopt = sys.platform.startswith("linux") and getattr(ctypes.CDLL(None), "mallopt", None)
    # Of mallopt(3): M_ARENA_MAX, M_MMAP_MAX and M_TRIM_THRESHOLD.
    settings = ((-8, 1), (-4, 0), (-1, 2**31 - 1))
    return bool(mallopt) and all([mallopt(*setting) for setting in settings])
