"""Arrays of any backend: to NumPy, compared, of a layer, of a file, and random ones."""

import pathlib

import keras
import numpy as np

ORACLES = pathlib.Path(__file__).parent / "oracles"


def to_numpy(x):
    """Any tensor as an array; bfloat16, which NumPy does not have, as float32."""
    if dtype_of(x) == "bfloat16":
        x = keras.ops.cast(x, "float32")
    return np.asarray(keras.ops.convert_to_numpy(x))


def dtype_of(x):
    return keras.backend.standardize_dtype(x.dtype)


def assert_close(actual, expected, tolerance):
    """Every value within `tolerance`, absolutely; shapes equal."""
    np.testing.assert_allclose(to_numpy(actual), to_numpy(expected), rtol=0, atol=tolerance)


def assert_same(ones, others):
    """Equal arrays or variables in two sequences, or in two dicts of the same names."""
    if isinstance(ones, dict):
        assert ones.keys() == others.keys()
        ones, others = ones.values(), [others[name] for name in ones]
    for one, other in zip(ones, others, strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))


def largest(x):
    return float(np.max(np.abs(to_numpy(x))))


def values(layer):
    """Path of a variable below `layer` -> its value, for a layer or a model."""
    return {v.path.removeprefix(f"{layer.name}/"): to_numpy(v) for v in layer.weights}


def images(shape=(4, 16, 16, 3), seed=0):
    """Random images in [-1, 1]."""
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype("float32")


def read_arrays(path):
    with np.load(path) as file:
        return {name: file[name] for name in file.files}
