"""What makes two runs the same run."""

import importlib
import json

import keras

from keras_vit.training.checkpoint import inner_optimizer
from keras_vit.training.freeze import nested_layers

_SIMPLE = (bool, int, float, str, type(None))


def describe(model, data, progress, given):
    """What makes two runs the same run: a flat dict from a name to a value that JSON can hold."""
    optimizer = inner_optimizer(model)
    rate = getattr(optimizer, "schedule", None) or optimizer.get_config()["learning_rate"]
    settings = {
        "backend": keras.backend.backend(),
        "steps": progress.total_updates,
        "steps_per_epoch": progress.per_epoch,
        "batch_size": progress.batch_size,
        "data": getattr(data, "settings", None) or {},
        "model": [_plain(layer) for layer in nested_layers(model) if layer is not model],
        "optimizer": _plain(optimizer),
        "learning_rate": _plain(rate),
        "loss": _plain(model.loss),
        "settings": given or {},
    }
    return dict(_flatten(json.loads(json.dumps(settings, default=str))))


def _plain(thing):
    """The class of an object and its public attributes that are numbers or text."""
    if thing is None or isinstance(thing, (str, int, float, dict, list)):
        return thing
    attributes = {
        name: value
        for name, value in vars(thing).items()
        if not name.startswith("_")
        and name not in ("name", "built", "training")
        and all(isinstance(v, _SIMPLE) for v in (value if isinstance(value, tuple) else [value]))
    }
    if isinstance(thing, keras.Layer):
        attributes |= {"dtype": thing.dtype_policy.name, "trainable": thing.trainable}
    return {"class": type(thing).__name__, **attributes}


def _flatten(value, name=""):
    """Pairs of a dotted name and a value that is no dict and no list of dicts."""
    if isinstance(value, list) and any(isinstance(part, dict) for part in value):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        yield name, value
        return
    for key, part in value.items():
        yield from _flatten(part, f"{name}.{key}" if name else str(key))


def check_same(before, now, output):
    """Raises a ValueError that names each setting in which two runs differ."""
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if names:
        told = [f"{name}: {before.get(name)!r} there, {now.get(name)!r} here" for name in names]
        raise ValueError(
            f"{output} holds a run with other settings, which cannot be continued with these. "
            "Received:\n  " + "\n  ".join(told) + "\nUse the settings of that run, or another "
            "output folder."
        )


def versions():
    """The packages on which the last bits depend."""
    module = importlib.import_module(keras.backend.backend())
    return {"keras": keras.__version__, module.__name__: module.__version__}
