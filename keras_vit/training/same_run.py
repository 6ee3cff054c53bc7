"""What makes two runs the same run, and what stays of one that has ended."""

import contextlib
import importlib
import json
import os
import pathlib

import keras

from keras_vit.data.files import listed
from keras_vit.text import brief
from keras_vit.training.checkpoint import RECORD, Checkpoints, inner_optimizer
from keras_vit.training.freeze import nested_layers
from keras_vit.writing import output_place, write_text

LATER = ("settings.recipe.keep_best", "settings.lora")


def describe(model, **settings):
    """Settings and what a compiled model is, as a flat dict from a name to a value for JSON."""
    optimizer = inner_optimizer(model)
    rate = getattr(optimizer, "schedule", None) or optimizer.get_config()["learning_rate"]
    settings |= {
        "backend": keras.backend.backend(),
        "model": [_facts(layer) for layer in nested_layers(model) if layer is not model],
        "optimizer": _facts(optimizer),
        "learning_rate": _facts(rate),
        "loss": _facts(model.loss),
        **({"own": model.facts()} if hasattr(model, "facts") else {}),
    }
    plain = json.loads(json.dumps(settings, default=str))
    return {".".join(map(str, at)): v for at, v in keras.tree.flatten_with_path(plain)}


def check_same_run(output, there, here):
    """Raises a ValueError that names where two results of `describe` differ."""
    names = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    # Which runs of before there was such a field do not name.
    names = [name for name in names if name not in LATER or name in there]
    names.sort(key=lambda name: not name.startswith("settings."))  # these somebody has chosen
    if names:
        both = [(name, brief(there.get(name)), brief(here.get(name))) for name in names]
        told = [f"{name}: {theirs} there, {ours} here" for name, theirs, ours in both]
        raise ValueError(
            f"{output} holds a run with other settings, which cannot be continued with these. "
            f"Received:\n{listed(told)}\nUse the settings of that run, or another output folder."
        )


def versions():
    """The packages on which the last bits depend."""
    module = importlib.import_module(keras.backend.backend())
    return {"keras": keras.__version__, module.__name__: module.__version__}


def _facts(thing):
    """The class of an object and its public attributes that are numbers or text.

    The names that Keras gives to layers are not among them: they differ from model to model. Nor
    is how the outputs of a model inside are read, which has no part in training.
    """
    if thing is None or isinstance(thing, (str, int, float)):
        return thing
    if isinstance(thing, dict):  # of several heads
        return {name: _facts(each) for name, each in thing.items()}
    if isinstance(thing, list):
        return [_facts(each) for each in thing]
    found, left_out = {"class": type(thing).__name__}, ("name", "built", "training", "reading")
    for name, value in vars(thing).items():
        parts = value if isinstance(value, tuple) else (value,)
        plain = all(part is None or isinstance(part, (int, float, str)) for part in parts)
        if plain and not name.startswith("_") and name not in left_out:
            found[name] = value
    if isinstance(thing, keras.Layer):
        found |= {"dtype": thing.dtype_policy.name, "trainable": thing.trainable}
    return found


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
        if not meta["finished"]:
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
    """(path, meta, {}) of a run whose checkpoints were removed when it had ended, or None."""
    path = output_place(pathlib.Path(output) / RECORD)
    return (path, json.loads(path.read_text()), {}) if path.is_file() else None
