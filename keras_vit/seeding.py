"""The random state that a run begins with."""

import random

import keras
import numpy as np


def set_random_seed(seed):
    """Does what `keras.utils.set_random_seed` does, without TensorFlow where it is not needed.

    Keras's own imports TensorFlow under every backend where it is installed, which takes seconds
    and half a gigabyte. Layers that are given no seed draw theirs from Python's generator.

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
