"""The backend of Keras, chosen before Keras is imported."""

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import runpy
import sys

BACKENDS = ("jax", "tensorflow", "torch")


def choose_backend(name=None):
    """Sets KERAS_BACKEND to `name`, or to an installed backend where it says nothing.

    Raises:
        ValueError: Keras is imported already, with another backend; or there is no such backend.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # or TensorFlow tells of its devices
    if "keras" in sys.modules:
        present = sys.modules["keras"].backend.backend()
        if name not in (None, present):
            raise ValueError(
                f"Keras already runs on {present}, which KERAS_BACKEND decides where Keras is "
                f"imported first, as by `python -m keras_vit`. Received: --backend {name}"
            )
        return
    os.environ["KERAS_BACKEND"] = name or os.environ.get("KERAS_BACKEND") or _default()
    if os.environ["KERAS_BACKEND"] not in BACKENDS:
        raise ValueError(
            f"Keras computes with {', '.join(BACKENDS)} here, as KERAS_BACKEND says. "
            f"Received: {os.environ['KERAS_BACKEND']!r}"
        )
    if os.environ["KERAS_BACKEND"] != "tensorflow" or not importlib.util.find_spec("tensorflow"):
        return
    # TensorFlow 2.21 logs of the processor when it is imported, which no setting stops.
    before, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        importlib.import_module("tensorflow")
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(nothing)


def versions():
    """The versions of this library and of Keras, and the backend; nothing is imported for it."""
    name = os.environ.get("KERAS_BACKEND") or _default()
    is_installed = name in BACKENDS and importlib.util.find_spec(name)
    missing = "" if is_installed else ", which is not installed"
    file = pathlib.Path(importlib.util.find_spec("keras_vit").origin).with_name("version.py")
    library, keras = runpy.run_path(str(file))["__version__"], importlib.metadata.version("keras")
    return f"keras-vit {library}, Keras {keras} on {name}{missing}"


@contextlib.contextmanager
def without_keras():
    """Meanwhile modules of keras_vit that need no Keras can be imported without it.

    The packages around them stand there empty, unless keras_vit has been imported already.
    """
    if "keras_vit" in sys.modules:
        yield
        return
    try:
        for name in ("keras_vit", "keras_vit.weights"):
            spec = importlib.util.find_spec(name)
            sys.modules[name] = importlib.util.module_from_spec(spec)
        yield
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "keras_vit"]:
            del sys.modules[name]


def _default():
    """The backend that Keras itself would take, or another if that is not installed."""
    folder = pathlib.Path(os.environ.get("KERAS_HOME") or "~/.keras").expanduser()
    configured = "tensorflow"
    with contextlib.suppress(OSError, ValueError, AttributeError):
        settings = json.loads((folder / "keras.json").read_text("utf-8"))
        configured = settings.get("backend", configured)
    installed = [name for name in BACKENDS if importlib.util.find_spec(name)]
    return installed[0] if installed and configured not in installed else configured
