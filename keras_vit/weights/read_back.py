"""Reads what was written of a model, and tells what of it is lost there."""

import dataclasses
import json
import re

import keras
import numpy as np

from keras_vit.checks import marked
from keras_vit.preprocessing import BY_PILLOW, Preprocessing
from keras_vit.weights.files import Contents
from keras_vit.weights.load import read_contents
from keras_vit.weights.model_arguments import POSITION
from keras_vit.weights.safety import CheckpointError, warn


def read_back(contents, model):
    """The checkpoint in the `Contents` written of a model, and two dicts of arguments.

    The first are those that the file asks for, as few as it needs: no checkpoint where it asks for
    others yet. The second are those that a reader takes otherwise, unasked.
    """
    v = model.variant
    values = {**vars(v), "image_size": model.image_size}
    fields = {**values, **dataclasses.asdict(v)}
    unusual = [f.name for f in dataclasses.fields(v) if getattr(v, f.name) != f.default]
    for names in ([], ["image_size"], ["image_size", *unusual]):
        given = {name: fields[name] for name in names}
        try:
            read = read_contents(contents, given)
        except CheckpointError:  # which asks for what is not in the file
            continue
        compared = {*marked(type(v), "compared"), "image_size"} & {*read.arguments}
        compared -= {"position"} if POSITION in read.weights.arrays else set()  # as its table
        changed = [n for n in fields if n in compared and read.arguments[n] != values[n]]
        return read, given, {name: fields[name] for name in changed}
    return None, {}, {}


def differences(model, checkpoint):
    """Settings of pixels and outputs that change when what was written of a model is read back.

    A dict {attribute: (value of the model, value that a reader takes)}.
    """
    pairs, recipes = {}, (model.preprocessing, checkpoint.metadata.preprocessing)
    wanted, taken = (each.for_channels(model.channels) for each in recipes)
    is_whole = (wanted.resize, wanted.crop_fraction) == ("squash", 1)
    if is_whole and {wanted.library, taken.library} == {*BY_PILLOW}:  # they differ in crops alone
        taken = dataclasses.replace(taken, library=wanted.library)
    if wanted != taken:
        pairs["preprocessing"] = wanted, taken
    read = checkpoint.metadata.reading or ("softmax" if model.num_classes > 1 else None)
    if model.reading not in (None, read):
        pairs["reading"] = (model.reading, read)
    names = model.class_names and tuple(model.class_names)
    if names and checkpoint.metadata.class_names != names:
        pairs["class_names"] = (names, checkpoint.metadata.class_names)
    return pairs


def _is_fresh(model):
    """Whether norms and heads have the values of a new model: the same in each array."""
    chosen = (v for v in model.weights if re.match(r"(.*/)?(head|gamma|beta)", v.path))
    return not any(np.ptp(keras.ops.convert_to_numpy(variable)) for variable in chosen)


def warn_of_changes(model, path, arrays, json_files, format):
    """Warns of what a reader of the files written takes otherwise than the model has it."""
    configs = (json_files.get(name, {}) for name in ("config.json", "preprocessor_config.json"))
    written = Contents(path, arrays, *map(json.loads, map(json.dumps, configs)))
    checkpoint, _, otherwise = read_back(written, model)
    if checkpoint is None:
        return
    if otherwise:
        lost = (f"{n}={x!r} (read as {checkpoint.arguments[n]!r})" for n, x in otherwise.items())
        call = ", ".join(f"{name}={value!r}" for name, value in otherwise.items())
        warn(
            f"A file in the format {format!r} does not say all of the architecture of "
            f"{model.name!r}. Received: {', '.join(lost)}; open it as "
            f"keras_vit.from_checkpoint({path.name!r}, {call})."
        )
    pairs = differences(model, checkpoint)
    pairs.pop("class_names", None)
    is_new = not model.weights_from and getattr(model, "optimizer", None) is None
    if is_new and model.preprocessing == Preprocessing() and _is_fresh(model):
        pairs.pop("preprocessing", None)  # that of a new model says nothing yet
    if "preprocessing" in pairs:
        wanted, taken = map(dataclasses.asdict, pairs.pop("preprocessing"))
        fields = [name for name in wanted if wanted[name] != taken[name]]
        pairs = {f"preprocessing.{n}": (wanted[n], taken[n]) for n in fields} | pairs
    if pairs:
        lost = (f"{name}={x!r} (read as {read!r})" for name, (x, read) in pairs.items())
        warn(
            f"Not all that {model.name!r} says of images and outputs has a place in the format "
            f"{format!r}. Received: {', '.join(lost)}. Set it anew after reading {path.name!r} "
            "(card=True writes the lines for it), or keep the model with model.save(...)."
        )
