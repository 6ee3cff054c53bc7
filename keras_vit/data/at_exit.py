"""Generators that hold an iterator of tf.data, closed while there still is a Python.

A process may end with a pipeline of which only some batches were taken. Left alone, TensorFlow
then asks the Python function that it reads from for a last call, and the generator finds the
modules it needs taken down: both complain on the screen of a run that did nothing wrong.
"""

import atexit
import contextlib
import functools
import weakref

_generators = weakref.WeakSet()


def closed_at_exit(function):
    """Decorates a generator function: what it returns is closed when the process ends."""

    @functools.wraps(function)
    def run(*args, **kwargs):
        _register()
        generator = function(*args, **kwargs)
        _generators.add(generator)
        return generator

    return run


@functools.cache
def _register():
    # When the first one begins: what TensorFlow has registered by then comes after it.
    atexit.register(_close)


def _close():
    for generator in list(_generators):
        with contextlib.suppress(Exception):  # one that runs in another thread, say
            generator.close()
