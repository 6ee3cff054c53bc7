"""Values to estimate that are far from 1, such as grams or years, in units that a head can learn.

A head begins with outputs near 0 and moves by about the learning rate in an update: of targets such
as 9,800 +- 800 it would need millions. It learns (target - mean) / deviation instead, and its
weights are turned into the units of the labels when it has.
"""

import copy

import keras
import numpy as np

_MOST = 1000  # labels that mean and deviation are taken of
_FAR = 10.0


def units_of(pipeline):
    """(mean, deviation) of the targets of a `Pipeline`, lists; `None` where they are near 1.

    Also `None` for labels that are no values.
    """
    if pipeline.problem != "regression":
        return None
    rows = pipeline.rows
    rows = rows[np.linspace(0, len(rows) - 1, min(_MOST, len(rows))).astype(int)]
    found = []
    for row in rows:
        try:
            found.append(np.asarray(pipeline.source[row][1], "float64").reshape(-1))
        except (OSError, ValueError):  # which the pipeline reports when it gets there
            continue
    if not found:
        return None
    mean, deviation = np.mean(found, axis=0), np.std(found, axis=0)
    deviation = np.where(deviation > 0, deviation, 1.0)
    size = np.maximum(np.abs(mean), deviation)
    if ((size <= _FAR) & (deviation >= 1 / _FAR)).all():
        return None
    return mean.tolist(), deviation.tolist()


def in_units(pipeline, units):
    """The `Pipeline` of the same batches, whose labels are in these units; itself without any."""
    if pipeline is None or units is None:
        return pipeline
    other = copy.copy(pipeline)
    other.units = units
    return other


def standardized(labels, units):
    """Labels (batch,) or (batch, targets) in units of `units_of`."""
    mean, deviation = (np.reshape(each, labels.shape[1:]) for each in units)
    return ((labels - mean) / deviation).astype("float32")


def turn_head(model, units, back=False):
    """Turns the head of a model of this library, so that its outputs are in the labels' units.

    With `back` those that are so are in units of `units_of` afterwards.
    """
    mean, deviation = map(np.asarray, units)
    for layer in model.layers:
        if layer.name in ("head", "head_distillation"):
            kernel, bias = map(keras.ops.convert_to_numpy, (layer.kernel, layer.bias))
            if not back:
                layer.kernel.assign(kernel * deviation)
                layer.bias.assign(bias * deviation + mean)
            elif kernel.any():  # a fresh head has no units
                layer.kernel.assign(kernel / deviation)
                layer.bias.assign((bias - mean) / deviation)


def units_told(units):
    """A line that says so."""
    pairs = ", ".join(f"{mean:.6g} +- {deviation:.4g}" for mean, deviation in zip(*units))
    return (
        f"Targets are {pairs} and are learned as (target - mean) / deviation: losses and errors of "
        "training are in these units, the test and the saved model in those of the labels."
    )
