"""A trained model as a file that every backend reads."""

import contextlib
import sys


def save_portable(model, path):
    """Saves a model without its optimizer, which only the backend that made it could use.

    Args:
        model: a Keras model that `get_config` describes.
        path: the `.keras` file to write.
    """
    with _without_tensorflow():
        portable = type(model).from_config(model.get_config())
        portable.set_weights(model.get_weights())
        portable.save(path)


@contextlib.contextmanager
def _without_tensorflow():
    """Spares a run that has no use for TensorFlow its import, which takes seconds.

    Keras imports it under every backend to see whether one of the values it saves is TensorFlow's.
    """
    hidden = "tensorflow" not in sys.modules
    if hidden:
        sys.modules["tensorflow"] = None
    try:
        yield
    finally:
        if hidden:
            del sys.modules["tensorflow"]
