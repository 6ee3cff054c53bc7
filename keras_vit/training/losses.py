"""The authors' losses: on logits, of one-hot or integer labels, in float32 or better."""

import copy
import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_vit.checks import positive_float, positive_int, rate, require


def sigmoid_head_bias(num_classes: int) -> float:
    """The initial bias of a head under a sigmoid loss: -ln(K), the logit of one class in K.

    Without it, the first steps only unlearn that each class is as likely as not. The authors write
    -6.9 for ImageNet's 1,000 classes and -10 for ImageNet-21k's 21,843.
    """
    return -math.log(positive_int(num_classes, "num_classes"))


class Loss(keras.losses.Loss):
    """`keras.losses.Loss`, in float64 to the end where that is its dtype.

    Keras 3.15 takes the mean over the examples in float32 on PyTorch, and so does this where the
    outputs have a mask.
    """

    arguments = ("reduction", "name", "dtype")

    def __call__(self, y_true, y_pred, sample_weight=None):
        exact = self.dtype == "float64" and keras.backend.backend() == "torch"
        exact = exact and getattr(y_pred, "_keras_mask", None) is None  # what counts, Keras knows
        if not exact or self.reduction in (None, "none", "sum"):
            return super().__call__(y_true, y_pred, sample_weight)
        each = copy.copy(self)
        each.reduction = "none"
        losses = each(y_true, y_pred, sample_weight)
        count = max(math.prod(losses.shape), 1)
        if self.reduction == "mean_with_sample_weight" and sample_weight is not None:
            count = ops.sum(ops.convert_to_tensor(sample_weight, self.dtype))
        return ops.sum(losses) / count

    def get_config(self):
        return {name: getattr(self, name) for name in self.arguments}


class ClassificationLoss(Loss):
    """A loss of logits against labels, summed over the classes and averaged over the examples.

    A subclass has `per_example(labels, logits)`: (batch, classes), twice, -> (batch,).

    Shapes: labels (batch, classes), one-hot or mixed, or (batch,) integers; logits
    (batch, classes) -> one number. More axes may stand between batch and classes. The labels of a
    single logit, (batch,) or (batch, 1), are 0 for no and 1 for yes.

    Args:
        label_smoothing: s in [0, 1): labels y become y · (1 - s) + s / classes.
        reduction, name, dtype: as in `keras.losses.Loss`; float64 is never rounded to float32.
        class_weights: a weight w for each class, of labels with one class for each image: the loss
            of an example is the sum over the classes of w · y · (the loss, were it of that class),
            as in PyTorch's `CrossEntropyLoss(weight=w)`, but the mean is that of the examples. See
            `keras_vit.data.Pipeline.balanced_class_weights`.

    Raises:
        ValueError: `label_smoothing` is out of range, labels and logits do not fit, or
            `class_weights` are not positive or not one for each logit.
    """

    arguments = ("label_smoothing", *Loss.arguments)
    class_weights: tuple[float, ...] | None = None

    def __init__(
        self,
        label_smoothing: float = 0.0,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: Any = None,
        class_weights: Sequence[float] | None = None,
    ):
        super().__init__(name=name or type(self).__name__, reduction=reduction, dtype=dtype)
        self.label_smoothing = rate(label_smoothing, "label_smoothing")
        if class_weights is not None:  # otherwise not there: older checkpoints do not name it
            self.class_weights = tuple(positive_float(w, "class_weights") for w in class_weights)

    def call(self, y_true, y_pred):
        logits, labels = ops.convert_to_tensor(y_pred), ops.convert_to_tensor(y_true)
        shape, classes = tuple(labels.shape), logits.shape[-1]
        missing = len(logits.shape) - len(shape)  # axes of the labels
        dtype = keras.backend.standardize_dtype(logits.dtype)
        if missing == 0 and shape[-1] == classes:
            labels = ops.cast(labels, dtype)
        elif missing == 1 and classes == 1:
            labels = ops.cast(labels, dtype)[..., None]
        elif missing == 1 or (missing == 0 and shape[-1] == 1):
            labels = ops.reshape(ops.cast(labels, "int32"), ops.shape(logits)[:-1])
            labels = ops.one_hot(labels, classes, dtype=dtype)
        else:
            raise ValueError(
                "Labels must be integers (batch,) or one value per class (batch, classes). "
                f"Received: labels of shape {shape} for logits of shape {tuple(logits.shape)}."
            )
        if s := self.label_smoothing:
            labels = labels * (1.0 - s) + s / classes
        if (weights := self.class_weights) is not None:
            if len(weights) != classes:
                raise ValueError(
                    "class_weights must be one for each logit of the model. Received: "
                    f"{len(weights)} weights for logits of shape {tuple(logits.shape)}."
                )
            labels = labels * ops.convert_to_tensor(weights, dtype)
        return self.per_example(labels, logits)

    def get_config(self):
        weights = {"class_weights": self.class_weights} if self.class_weights else {}
        return super().get_config() | weights


@keras.saving.register_keras_serializable("keras_vit")
class SigmoidLoss(ClassificationLoss):
    """Binary cross-entropy of every class, summed over the classes, averaged over the batch.

    `keras.losses.BinaryCrossentropy` averages over the classes instead: its gradient is K times
    smaller, and a norm of 1 never clips it. The arguments are those of `ClassificationLoss`.

    Source: big_vision/utils.py, `sigmoid_xent`.
    """

    def per_example(self, labels, logits):
        # Of one class the others are not: of a weighted label 1 is the weight of the class.
        one = 1.0 if self.class_weights is None else ops.sum(labels, axis=-1, keepdims=True)
        positive = labels * ops.log_sigmoid(logits)
        return -ops.sum(positive + (one - labels) * ops.log_sigmoid(-logits), axis=-1)


@keras.saving.register_keras_serializable("keras_vit")
class SoftmaxLoss(ClassificationLoss):
    """Cross-entropy between the labels and the softmax of the logits, averaged over the batch.

    The arguments are those of `ClassificationLoss`.

    Source: big_vision/utils.py, `softmax_xent`; vit_jax/train.py, `cross_entropy_loss`.
    """

    def per_example(self, labels, logits):
        rule = "A softmax of one logit is always 1: take two classes, or SigmoidLoss"
        require(logits.shape[-1] != 1, rule, received=tuple(logits.shape))
        return -ops.sum(labels * ops.log_softmax(logits, axis=-1), axis=-1)


@keras.saving.register_keras_serializable("keras_vit")
class DistillationLoss(Loss):
    """How far a student's logits are from what a teacher says, averaged over the examples.

    Shapes: the teacher's logits (batch, classes), the student's (batch, classes) -> one number.

    Args:
        hard: whether the teacher's likeliest class is taken as a label (cross-entropy), or all of
            its probabilities (Kullback-Leibler divergence).
        temperature: divides both logits before the softmax where `hard` is False; the divergence is
            multiplied by its square, so that the gradients keep their size.
        mean_over_classes: whether the divergence is also divided by the number of classes, as in
            the code of DeiT's authors; their paper does not have it.
        reduction, name, dtype: as in `keras.losses.Loss`.

    Source: Touvron et al., 2021, Eq. 2 and 3; facebookresearch/deit, losses.py.
    """

    arguments = ("hard", "temperature", "mean_over_classes", *Loss.arguments)

    def __init__(
        self,
        hard: bool = True,
        temperature: float = 1.0,
        mean_over_classes: bool = False,
        reduction: str | None = "sum_over_batch_size",
        name: str = "distillation",
        dtype: Any = None,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.hard, self.mean_over_classes = bool(hard), bool(mean_over_classes)
        self.temperature = positive_float(temperature, "temperature")

    def call(self, y_true, y_pred):
        if self.hard:
            return SoftmaxLoss(dtype=self.dtype).call(ops.argmax(y_true, axis=-1), y_pred)
        teacher = ops.log_softmax(y_true / self.temperature, axis=-1)
        student = ops.log_softmax(y_pred / self.temperature, axis=-1)
        divergence = ops.sum(ops.exp(teacher) * (teacher - student), axis=-1)
        classes = y_pred.shape[-1] if self.mean_over_classes else 1
        return divergence * (self.temperature**2 / classes)


@keras.saving.register_keras_serializable("keras_vit")
class Accuracy(keras.metrics.MeanMetricWrapper):
    """Share of the examples whose label is among the `top` largest logits.

    Of equal logits the one of the lower class is the larger, so that a fresh head of zeros has
    the accuracy of a guess; an example with a logit that is NaN is wrong. (`ops.in_top_k` counts
    ties as right on every backend, and NaN on JAX.) Labels may be integers or one-hot, even in
    turns. Of mixed labels the largest counts, and for a single logit the nearer of 0 and 1.
    """

    def __init__(self, top: int = 1, name: str | None = None, dtype: Any = None):
        self.top = positive_int(top, "top")
        super().__init__(self._right, name=name or f"top_{top}_accuracy", dtype=dtype)

    def _right(self, y_true, y_pred):
        logits = ops.convert_to_tensor(y_pred)
        labels = ops.convert_to_tensor(y_true)
        if len(labels.shape) == len(logits.shape) and labels.shape[-1] == logits.shape[-1] > 1:
            labels = ops.argmax(labels, axis=-1)
        if logits.shape[-1] == 1:  # sigmoid(z) is the softmax of (0, z)
            labels = ops.round(ops.cast(labels, "float32"))
            logits = ops.concatenate([ops.zeros_like(logits), logits], axis=-1)
        classes = logits.shape[-1]
        labels = ops.cast(ops.reshape(labels, (-1, 1)), "int32")
        logits = ops.reshape(logits, (-1, classes))
        of_label = ops.take_along_axis(logits, ops.clip(labels, 0, classes - 1), axis=-1)
        lower = ops.arange(classes, dtype="int32") < labels
        tie = ops.logical_and(ops.equal(logits, of_label), lower)
        ahead = ops.cast(ops.logical_or(logits > of_label, tie), "int32")
        known = ops.logical_and(labels >= 0, labels < classes)[:, 0]
        known = ops.logical_and(known, ops.logical_not(ops.any(ops.isnan(logits), axis=-1)))
        right = ops.logical_and(ops.sum(ahead, axis=-1) < self.top, known)
        return ops.cast(ops.reshape(right, ops.shape(y_pred)[:-1]), self.dtype)

    def get_config(self):
        return {"top": self.top, "name": self.name, "dtype": self.dtype}
