"""What makes two runs the same run: their settings, compared one by one."""

import json
import types

import keras


def describe(model, pipeline, steps, given=None):
    """The settings of a run as a flat dict from a dotted name to a value that JSON can hold.

    Args:
        model: a compiled model that is built.
        pipeline: its attribute `settings`, a dict, is taken where it has one.
        steps: updates in the whole run.
        given: a dict of the caller's own settings.
    """
    schedule = getattr(optimizer_of(model), "_learning_rate", None)
    settings = {
        "backend": keras.backend.backend(),
        "steps": steps,
        "steps_per_epoch": pipeline.steps_per_epoch,
        "batch_size": getattr(pipeline, "batch_size", None),
        "data": getattr(pipeline, "settings", None) or {},
        "model": {str(i): _layer(layer) for i, layer in enumerate(model._flatten_layers())},
        "optimizer": _plain(optimizer_of(model)),
        "learning_rate": _learning_rate(schedule),
        "loss": _plain(model.loss),
        "settings": given or {},
    }
    return dict(_flatten(json.loads(json.dumps(settings, default=_name))))


def differences(before, now):
    """One line for each setting that is not the same."""
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    return [f"{name}: {before.get(name)!r} there, {now.get(name)!r} here" for name in names]


def check(before, now, output):
    """Compares the settings of a checkpoint with those of the run that would continue it.

    Raises:
        ValueError: they differ; the message names what.
    """
    different = differences(before, now)
    if different:
        shown = different[:12] + [f"and {len(different) - 12} more"] * (len(different) > 12)
        raise ValueError(
            f"{output} holds a run with other settings, which cannot be continued with these. "
            "Received:\n  " + "\n  ".join(shown) + "\nUse the settings of that run, or another "
            "output folder."
        )


def optimizer_of(model):
    """The optimizer, or the one inside that which scales the loss under mixed_float16."""
    return getattr(model.optimizer, "inner_optimizer", model.optimizer)


# Keras's own `serialize` imports TensorFlow on every backend where it is installed, which takes
# seconds and half a gigabyte, so plain attributes stand for a config.
_CHANGING = ("name", "built", "training")


def _plain(thing):
    """The class of an object and its public attributes that are numbers, text or functions.

    A method that was replaced is none: how many devices compute an update changes from run to run.
    """
    if thing is None or isinstance(thing, (str, dict, list)):
        return thing
    attributes = {
        name: value
        for name, value in vars(thing).items()
        if not (name.startswith("_") or name in _CHANGING or _is_method(thing, name))
        and _is_simple(value)
    }
    return {"class": _name(thing), **attributes}


def _is_method(thing, name):
    return callable(getattr(type(thing), name, None))


def _layer(layer):
    # What a model has besides its layers belongs to its trainer, and changes.
    plain = {"class": _name(layer)} if isinstance(layer, keras.Model) else _plain(layer)
    return {**plain, "dtype": layer.dtype_policy.name, "trainable": layer.trainable}


def _learning_rate(rate):
    if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
        return _plain(rate)
    return None if rate is None or callable(rate) else float(keras.ops.convert_to_numpy(rate))


def _is_simple(value):
    if isinstance(value, (list, tuple)):
        return all(_is_simple(part) for part in value)
    return value is None or isinstance(value, (bool, int, float, str, types.FunctionType))


def _name(thing):
    """What stands for a value that JSON cannot hold: its number, its own name or its class's."""
    if hasattr(thing, "item") and getattr(thing, "ndim", 1) == 0:
        return thing.item()
    name = getattr(thing, "__qualname__", type(thing).__qualname__)
    return name.split(".")[-1]


def _flatten(value, name=""):
    """Pairs of a dotted name and a value that is no dict; lists are taken apart too."""
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list) and any(isinstance(part, (dict, list)) for part in value):
        parts = enumerate(value)
    else:
        yield name, value
        return
    for key, part in parts:
        yield from _flatten(part, f"{name}.{key}" if name else str(key))
