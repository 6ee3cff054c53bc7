"""NumPy and TensorFlow under the same names, for arithmetic that both must do alike.

What decides about pixels (random numbers, boxes, mixing) is written once and runs in NumPy
pipelines and in tf.data graphs: that they agree is not left to two texts.
"""

import functools
import types

import numpy as np

_NUMPY = types.SimpleNamespace(
    arange=np.arange,
    cast=lambda x, dtype: np.asarray(x).astype(dtype),
    cos=np.cos,
    floor=np.floor,
    maximum=np.maximum,
    minimum=np.minimum,
    reshape=np.reshape,
    rint=np.rint,
    sin=np.sin,
    sqrt=np.sqrt,
    take=lambda x, index: np.asarray(x)[index],
    first_true=np.argmax,
    roll=lambda x: np.roll(x, 1, axis=0),
    size=lambda x: x.shape[-3:-1],
    unstack=list,
    where=np.where,
)


class _LazyTensorFlow:
    """`tensorflow`, imported when it is first used."""

    def __getattr__(self, name):
        return getattr(import_tensorflow(), name)


tf = _LazyTensorFlow()


@functools.cache
def import_tensorflow():
    """Returns the `tensorflow` module, or raises ImportError naming the extra."""
    try:
        import tensorflow
    except ImportError as error:
        raise ImportError(
            "A tf.data pipeline needs TensorFlow. Install it with: "
            'pip install "keras3-vit[tensorflow]", or use the NumPy transforms.'
        ) from error
    return tensorflow


@functools.cache
def _tensorflow():
    return types.SimpleNamespace(
        arange=tf.range,
        cast=tf.cast,
        cos=tf.cos,
        floor=tf.floor,
        maximum=tf.maximum,
        minimum=tf.minimum,
        reshape=tf.reshape,
        rint=tf.math.rint,
        sin=tf.sin,
        sqrt=tf.sqrt,
        take=tf.gather,
        first_true=lambda x: tf.argmax(tf.cast(x, tf.int32)),
        roll=lambda x: tf.roll(x, 1, axis=0),
        size=lambda x: tf.unstack(tf.shape(x)[-3:-1]),
        unstack=tf.unstack,
        where=tf.where,
    )


def as_written(function):
    """Keeps AutoGraph from translating a function that has no need of it.

    Its ifs are about Python values. Translating them all takes as long again as building the
    graph, a second in front of the first batch.
    """

    @functools.wraps(function)
    def run(*args, **kwargs):
        return tf.autograph.experimental.do_not_convert(function)(*args, **kwargs)

    return run


def is_tensorflow(x):
    """Whether `x` is a TensorFlow tensor; TensorFlow is not imported to find out."""
    return type(x).__module__.startswith("tensorflow")


def namespace(x):
    """The functions that fit `x`: TensorFlow's for its tensors, NumPy's for all else."""
    return _tensorflow() if is_tensorflow(x) else _NUMPY
