"""Values to estimate that are far from 1, such as grams or years, in units that a head can learn.

A head begins with outputs near 0 and moves by about the learning rate in an update: of targets such
as 9,800 +- 800 it would need millions. It learns (target - mean) / deviation instead, and its
weights are turned into the units of the labels when it has.
"""

import copy
from collections.abc import Mapping

import keras
import numpy as np

from keras_vit.heads import map_heads, of_head

_MOST = 1000  # labels that mean and deviation are taken of
_FAR = 10.0


def units_of(pipeline):
    """(mean, deviation) of the targets of a `Pipeline`, lists; `None` where they are near 1.

    Also `None` for labels that are no values. Of several heads {head: either}, or `None` for none.
    """

    def of_values(problem, head):
        if problem != "regression":
            return None
        rows = pipeline.rows
        rows = rows[np.linspace(0, len(rows) - 1, min(_MOST, len(rows))).astype(int)]
        labels = [of_head(pipeline.source.label(row), head) for row in rows]
        targets = np.array(labels, "float64").reshape(len(rows), -1)
        targets = targets[~np.isnan(targets).any(axis=1)]
        if not len(targets):
            return None
        mean, deviation = np.mean(targets, axis=0), np.std(targets, axis=0)
        deviation = np.where(deviation > 0, deviation, 1.0)
        size = np.maximum(np.abs(mean), deviation)
        is_near = ((size <= _FAR) & (deviation >= 1 / _FAR)).all()
        return None if is_near else (mean.tolist(), deviation.tolist())

    heads = isinstance(pipeline.problem, Mapping) and dict(zip(pipeline.problem, pipeline.problem))
    units = map_heads(of_values, pipeline.problem, heads or None)
    return units if not heads or any(units.values()) else None


def in_units(pipeline, units):
    """The `Pipeline` of the same batches, whose labels are in these units; itself without any."""
    if pipeline is None or units is None:
        return pipeline
    other = copy.copy(pipeline)
    other.label_rows = pipeline.label_rows.in_units(units)
    return other


def turn_head(model, units, back=False):
    """Turns the heads of a model of this library, so that outputs are in the labels' units.

    With `back` those that are so are in units of `units_of` afterwards.
    """
    is_one = not isinstance(units, Mapping)  # the layer of one head of several has its name
    by_layer = dict.fromkeys(("head", "head_distillation"), units) if is_one else units
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
    heads = units if isinstance(units, Mapping) else {"": units}
    pairs = ", ".join(
        f"{head} {mean:.6g} +- {deviation:.4g}".strip()
        for head, pair in heads.items()
        for mean, deviation in zip(*pair or ((), ()))
    )
    return (
        f"Targets are {pairs} and are learned as (target - mean) / deviation: losses and errors of "
        "training are in these units, the test and the saved model in those of the labels."
    )
