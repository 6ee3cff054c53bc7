"""Values to estimate that are far from 1, such as grams or years, in units that a head can learn.

A head begins with outputs near 0 and moves by about the learning rate in an update: of targets such
as 9,800 +- 800 it would need millions. It learns (target - mean) / deviation instead, and its
weights are turned into the units of the labels when it has.
"""

import copy
from collections.abc import Mapping

import keras
import numpy as np

from keras_vit.heads import of_head

_MOST = 1000  # labels that mean and deviation are taken of
_FAR = 10.0


def units_of(pipeline):
    """(mean, deviation) of the targets of a `Pipeline`, lists; `None` where they are near 1.

    Also `None` for labels that are no values. Of several heads {head: either}, or `None` for none.
    """
    if not isinstance(pipeline.problem, Mapping):
        return _units(pipeline, pipeline.problem, None)
    units = {head: _units(pipeline, problem, head) for head, problem in pipeline.problem.items()}
    return units if any(units.values()) else None


def _units(pipeline, problem, head):
    """Those of the values of one head, or of the only one."""
    if problem != "regression":
        return None
    rows = pipeline.rows
    rows = rows[np.linspace(0, len(rows) - 1, min(_MOST, len(rows))).astype(int)]
    targets = []
    for row in rows:
        try:
            label = of_head(pipeline.source[row][1], head)
            targets.append(np.asarray(label, "float64").reshape(-1))
        except (OSError, ValueError):  # which the pipeline reports when it gets there
            continue
    targets = [label for label in targets if not np.isnan(label).any()]
    if not targets:
        return None
    mean, deviation = np.mean(targets, axis=0), np.std(targets, axis=0)
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


def turn_head(model, units, back=False):
    """Turns the heads of a model of this library, so that outputs are in the labels' units.

    With `back` those that are so are in units of `units_of` afterwards. The layer of one head of
    several has its name.
    """
    has_heads = isinstance(units, Mapping)
    by_layer = units if has_heads else dict.fromkeys(("head", "head_distillation"), units)
    for layer in model.layers:
        if by_layer.get(layer.name) is None:
            continue
        mean, deviation = map(np.asarray, by_layer[layer.name])
        kernel, bias = map(keras.ops.convert_to_numpy, (layer.kernel, layer.bias))
        if not back:
            layer.kernel.assign(kernel * deviation)
            layer.bias.assign(bias * deviation + mean)
        elif kernel.any():  # a fresh head has no units
            layer.kernel.assign(kernel / deviation)
            layer.bias.assign((bias - mean) / deviation)


def units_told(units):
    """A line that says so."""
    has_heads = isinstance(units, Mapping)
    heads = {name: each for name, each in units.items() if each} if has_heads else {"": units}
    pairs = ", ".join(
        f"{name} {mean:.6g} +- {deviation:.4g}".strip()
        for name, each in heads.items()
        for mean, deviation in zip(*each)
    )
    return (
        f"Targets are {pairs} and are learned as (target - mean) / deviation: losses and errors of "
        "training are in these units, the test and the saved model in those of the labels."
    )
