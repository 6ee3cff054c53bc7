"""What makes two runs the same run, and what stays of one that has ended."""

import contextlib
import importlib
import json
import os
import pathlib

import keras
import numpy as np

from keras_vit.data.files import listed
from keras_vit.models.trainer import Trainer
from keras_vit.text import brief
from keras_vit.training.checkpoint import RECORD, Checkpoints, inner_optimizer
from keras_vit.writing import output_place, write_text

# Settings that earlier versions did not have, so that their runs do not name them.
_NEW_SETTINGS = ("settings.recipe.keep_best", "settings.lora", "data.class_names", "data.labels")
_NEW_SETTINGS += ("loss_weights",)
_NEW_SETTINGS += ("validation.",)  # the best weights would be chosen by figures of two sets
# What describes code, where versions have other names for the same computation. Earlier ones
# described a `model` by the attributes of each of its layers, this one `layers` by their configs.
_OF_CODE = ("model", "layers", "optimizer", "learning_rate", "loss")
# Parts of a config that differ between models which compute the same, or that the variables of a
# checkpoint tell.
_NOT_COMPARED = {"name", "module", "registered_name", "build_config", "function", "use_ema", "seed"}
_NOT_COMPARED |= {"preprocessing", "class_names", "label_set", "reading", "weights_from"}


def describe(model, **settings):
    """Settings and what a compiled model is, as a flat dict from a name to a value for JSON."""
    optimizer, layers = inner_optimizer(model), [_configuration(part) for part in _parts(model)]
    rate = optimizer.get_config()["learning_rate"]
    if isinstance(rate, dict) and isinstance(rate["config"], dict):  # a schedule
        rate = {"class": rate["class_name"], **rate["config"]}
    settings |= {
        "backend": keras.backend.backend(),
        "layers": {"count": len(layers), **dict(enumerate(layers))},
        "optimizer": _configuration(optimizer) | {"learning_rate": {}},  # which is apart
        "learning_rate": _configuration(rate),
        "loss": _configuration(model.loss),
    }
    if weights := getattr(getattr(model, "_compile_loss", None), "_user_loss_weights", None):
        settings["loss_weights"] = json.dumps(weights, default=float)
    if hasattr(model, "describe"):
        settings["own"] = model.describe()
    plain = json.loads(json.dumps(settings, default=str))
    return {".".join(map(str, at)): v for at, v in keras.tree.flatten_with_path(plain)}


def check_same_run(output, saved, present):
    """Raises a ValueError that names where two results of `describe` differ."""
    saved = dict(saved)
    for name in [name for name in saved if name.endswith(".round_to_uint8")]:  # of earlier versions
        library = name.replace("round_to_uint8", "library")
        if saved.pop(name):
            saved[library] = "tensorflow_uint8"
        elif saved.get(library) == "tensorflow":  # as it is by default
            del saved[library]

    def differs(name):
        if name in saved and name in present:
            return _rounded(saved[name]) != _rounded(present[name])
        if name in present and name.startswith(_NEW_SETTINGS):
            return False
        # A version may have names that another has not: of its code, and of settings that are off.
        is_on = saved.get(name) or present.get(name)
        return is_on and name.split(".")[0] not in _OF_CODE

    names = filter(differs, {**saved, **present})
    # Somebody has chosen the settings, which come first.
    if names := sorted(names, key=lambda name: not name.startswith("settings.")):
        lines = [
            f"{name}: {brief(saved.get(name))} there, {brief(present.get(name))} here"
            for name in names
        ]
        raise ValueError(
            f"{output} holds a run with other settings, which cannot be continued with these. "
            f"Received:\n{listed(lines)}\nUse the settings of that run, or another output folder."
        )


def _rounded(value):
    """A number as Keras keeps it: the learning rate of earlier versions was not rounded."""
    return float(np.float32(value)) if isinstance(value, float) else value


def versions():
    """The packages on which the last bits depend."""
    module = importlib.import_module(keras.backend.backend())
    return {"keras": keras.__version__, module.__name__: module.__version__}


def _parts(model):
    """The layers that a model is made of, one of this library as a whole."""
    if isinstance(model, Trainer) or not isinstance(model, keras.Model):
        yield model
        return
    for layer in model.layers:
        yield from _parts(layer)


def _configuration(thing):
    """The class and the config of an object of Keras, or of several, as numbers and text."""
    if isinstance(thing, dict):
        return {name: _configuration(each) for name, each in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [_configuration(each) for each in thing]
    if thing is None or isinstance(thing, (str, int, float)):
        return thing
    try:
        config = thing.get_config()
    except (AttributeError, NotImplementedError, ValueError):  # a function, or a layer without one
        config = {}

    def plain(value):
        if isinstance(value, dict):
            return {k: plain(v) for k, v in value.items() if k not in _NOT_COMPARED}
        if isinstance(value, (list, tuple)):  # as text, or a longer one would have more names
            return json.dumps(value, default=lambda each: type(each).__name__)
        is_plain = value is None or isinstance(value, (int, float, str))
        return value if is_plain else type(value).__name__

    return {"class": type(thing).__name__, **plain(config)}


def remove_checkpoints(output: str | os.PathLike[str]) -> None:
    """Removes the checkpoints of a run of `keras_vit.training.fit` that has ended.

    They are several times as large as the model; call this when the model is saved. A small file
    `run.json` stays, by which `fit` knows the run: it is not trained again. A process that is
    killed here leaves the last checkpoint or that file, or both.

    Args:
        output: the folder of the run.

    Raises:
        ValueError: the run has not ended.
    """
    output = pathlib.Path(output)
    checkpoints = Checkpoints(output / "checkpoints")
    if latest := checkpoints.latest():
        path, meta, _ = latest
        if not (meta["finished"] and meta["epoch_logs"] is None):
            raise ValueError(
                f"The run has not ended, and needs its checkpoints. Received: {str(output)!r}, "
                f"whose last one is {path.name}; continue it first."
            )
        meta.pop("callbacks", None)
        write_text(output / RECORD, json.dumps(meta))
        for each in checkpoints.paths():  # the last one, from which the run goes on, at last
            each.unlink()
    with contextlib.suppress(OSError):  # somebody's file is in it
        checkpoints.folder.rmdir()


def record_of_ended(output):
    """The `meta` of a run whose checkpoints were removed when it had ended, or None."""
    path = output_place(pathlib.Path(output) / RECORD)
    return json.loads(path.read_text()) if path.is_file() else None
