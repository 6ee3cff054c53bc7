"""The backend of Keras, chosen before Keras is imported."""

import importlib.util
import json
import os
import pathlib
import sys

BACKENDS = ("jax", "tensorflow", "torch")


def choose_backend(name=None):
    """Sets KERAS_BACKEND to `name`, or to an installed backend where it says nothing.

    Raises:
        ValueError: Keras is imported already, with another backend.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # or TensorFlow tells about the processor
    if "keras" in sys.modules:
        present = sys.modules["keras"].backend.backend()
        if name not in (None, present):
            raise ValueError(f"Keras already runs on {present}. Received: --backend {name}")
    elif name is not None:
        os.environ["KERAS_BACKEND"] = name
    elif "KERAS_BACKEND" not in os.environ:
        there = [known for known in BACKENDS if importlib.util.find_spec(known)]
        if there and _configured() not in there:
            os.environ["KERAS_BACKEND"] = there[0]


def _configured():
    """The backend that Keras itself would take."""
    folder = pathlib.Path(os.environ.get("KERAS_HOME") or "~/.keras").expanduser()
    try:
        return json.loads((folder / "keras.json").read_text("utf-8")).get("backend", "tensorflow")
    except (OSError, ValueError, AttributeError):
        return "tensorflow"
