"""Labels as a pipeline carries them: one row of numbers for each image, whatever they mean.

Rows of a batch are mixed as its pixels are. What Keras is fed is made of them at the end.
"""

import copy
import math
from collections.abc import Mapping

import numpy as np

from keras_vit.checks import require
from keras_vit.heads import map_heads, of_head


class LabelRows:
    """Labels of a source -> float32 rows of `width` numbers -> labels for Keras.

    The row of one class is its number, unless it is `one_hot`; that of several classes has a 0 or 1
    for each, that of a regression its values. Those of several heads stand side by side. NaN is a
    label that an image lacks. Images may do so where Keras is fed weights of 0 and 1, too, if the
    rows are `weighted`.
    """

    units = None  # Keras gets values as they are

    def __init__(self, source, one_hot=False, weighted=False):
        self._weighted, self._heads = weighted, {}  # head, or None: (problem, shape for Keras)
        for head in source.problem if isinstance(source.problem, Mapping) else [None]:
            fields = source.problem, source.label_shape, source.num_classes
            problem, shape, classes = (of_head(each, head) for each in fields)
            shape = (classes,) if one_hot and problem == "single_label" else shape
            self._heads[head] = problem, shape
        self.width = sum(math.prod(shape) for _, shape in self._heads.values())

    def row(self, label):
        """The row of one label of a source."""
        parts = []
        for head, (problem, shape) in self._heads.items():
            part = of_head(label, head)
            if is_missing(part, problem):
                part = np.full(shape, np.nan)
            elif problem == "single_label" and shape:
                part = np.arange(shape[0]) == part
            parts.append(np.asarray(part, np.float32).reshape(-1))
        return np.concatenate(parts)

    def in_units(self, units):
        """The same, but Keras gets values in these units of `keras_vit.data.units`."""
        other = copy.copy(self)
        other.units = units
        return other

    def labels(self, rows):
        """(labels,) of a batch of rows as Keras takes them, or (labels, weights) if `weighted`.

        Numbers of classes are int32. A label that lacks is 0, with the weight 0.
        """
        labels, weights, start = {}, {}, 0
        for head, (problem, shape) in self._heads.items():
            columns = rows[:, start : start + math.prod(shape)]
            start += columns.shape[1]
            is_known = ~np.isnan(columns).any(axis=1)
            if (of_values := of_head(self.units, head)) is not None:
                mean, deviation = (np.reshape(each, -1) for each in of_values)
                columns = (columns - mean) / deviation
            if self._weighted:
                columns = np.where(is_known[:, None], columns, 0)
            dtype = np.int32 if problem == "single_label" and not shape else np.float32
            labels[head] = columns.astype(dtype).reshape(len(rows), *shape)
            weights[head] = is_known.astype(np.float32)
        if None in labels:  # there is no head
            labels, weights = labels[None], weights[None]
        return (labels, weights) if self._weighted else (labels,)


def is_missing(label, problem):
    """Whether a label is -1 or NaN, which stand for a label that an image lacks."""
    return label < 0 if problem == "single_label" else bool(np.isnan(label).any())


def count_missing(source, rows):
    """{head: how many of the rows of a source lack its label}, without those of 0."""
    heads = source.problem.items() if isinstance(source.problem, Mapping) else ()
    labels = [source.label(row) for row in rows] if heads else []
    counts = {head: sum(int(is_missing(y[head], of)) for y in labels) for head, of in heads}
    return {head: count for head, count in counts.items() if count}


def balanced_class_weights(source, rows):
    """As `Pipeline.balanced_class_weights`, of some rows of a source."""
    has_heads = isinstance(source.problem, Mapping)
    problems = source.problem.values() if has_heads else [source.problem]
    rule = "Weights balance classes of which each image has one; leave class weights out"
    require("single_label" in problems, rule, received=f"problem={source.problem!r}")

    def balanced(problem, class_names, labels):
        if problem != "single_label":
            return ()
        labels = np.array(labels)
        counts = np.bincount(labels[labels >= 0], minlength=len(class_names))
        if missing := [str(class_names[k]) for k in np.flatnonzero(counts == 0)]:
            raise ValueError(
                f"Balanced weights need an image of each class. Received: {len(rows)} images "
                f"of {source.name}, none of {', '.join(map(repr, missing[:10]))}."
            )
        return tuple((counts.sum() / (len(counts) * counts)).tolist())

    labels = [source.label(row) for row in rows]
    if has_heads:
        labels = {head: [label[head] for label in labels] for head in source.problem}
    return map_heads(balanced, source.problem, source.class_names, labels)
