"""Accuracy as a Keras metric, with ties and damaged numbers counted as what they are."""

import keras
from keras import ops

from keras_vit.checks import positive_int


def label_ranks(scores, labels):
    """How many classes stand before the right one, for each image: 0 where it is the best.

    Of equal scores the lower class number stands first, as in `argmax`. An image has the last
    rank, the number of classes, where a score is NaN, where the right class's score is infinite,
    and where the label is none of the classes. `keras.ops.in_top_k` counts every tie as right,
    and on JAX NaN too, so that a fresh head of zeros is right about everything.

    Args:
        scores: (images, classes).
        labels: (images,) integers.

    Returns:
        int32 tensor (images,).
    """
    scores, labels = ops.convert_to_tensor(scores), ops.expand_dims(labels, -1)
    classes = scores.shape[-1]
    numbers = ops.arange(classes, dtype=labels.dtype)
    right = ops.where(numbers == labels, scores, float("-inf"))
    right = ops.max(right, axis=-1, keepdims=True)
    before = ops.logical_or(scores > right, ops.logical_and(scores == right, numbers < labels))
    known = ops.logical_and(
        ops.isfinite(right)[:, 0], ops.logical_not(ops.any(ops.isnan(scores), axis=-1))
    )
    return ops.where(known, ops.sum(ops.cast(before, "int32"), axis=-1), classes)


@keras.saving.register_keras_serializable("keras_vit")
class Accuracy(keras.metrics.MeanMetricWrapper):
    """Share of the examples whose label is among the `top` largest logits.

    Labels may be integers or one-hot, even in turns: a recipe trains on one-hot labels and
    evaluates on integers. Of mixed labels the largest counts. Ties and NaN count as in
    `label_ranks`.

    Args:
        top: how many logits may hold the label.
        name, dtype: as in `keras.metrics.Metric`.
    """

    def __init__(self, top=1, name=None, dtype=None):
        self.top = positive_int(top, "top")
        super().__init__(self._right, name=name or f"top_{top}_accuracy", dtype=dtype)

    def _right(self, y_true, y_pred):
        logits = ops.convert_to_tensor(y_pred)
        labels = ops.convert_to_tensor(y_true)
        if len(labels.shape) == len(logits.shape) and labels.shape[-1] == logits.shape[-1]:
            labels = ops.argmax(labels, axis=-1)
        labels = ops.cast(ops.reshape(labels, (-1,)), "int32")
        logits = ops.reshape(logits, (-1, logits.shape[-1]))
        return ops.cast(label_ranks(logits, labels) < self.top, self.dtype)

    def get_config(self):
        return {"top": self.top, "name": self.name, "dtype": self.dtype}
