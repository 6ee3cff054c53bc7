"""Labels, weights of images and metrics that do not fit to a model and its loss are refused."""

from collections.abc import Mapping

import keras
import numpy as np

from keras_vit.heads import heads_of, map_heads
from keras_vit.outputs import is_of_keras, reading_of_loss


def check_outputs(model, data):
    """Raises a ValueError where a model has not as many outputs as its loss needs for the data."""

    def check(problem, num_classes, loss, outputs):
        if problem not in ("single_label", "multi_label") or not (outputs and num_classes):
            return
        if reading_of_loss(loss)[0] not in ("softmax", "sigmoid"):
            return
        has_columns = problem == "multi_label" or getattr(data, "training", False)
        counts = (1, 2) if outputs == 1 and problem == "single_label" else (outputs,)
        if num_classes not in counts and (has_columns or num_classes > outputs):
            raise ValueError(
                f"A model must have an output for each class of the data. Received: {outputs} of "
                f"{model.name!r} for {num_classes} classes; give the model the data's num_classes."
            )

    if (problem := getattr(data, "problem", None)) is None:
        return
    loss, outputs = getattr(model, "loss", None), getattr(model, "num_classes", None)
    if heads := heads_of(model):
        loss = {name: head.loss for name, head in heads.items()}
        outputs = {name: head.output_shape[-1] for name, head in heads.items()}
    map_heads(check, problem, getattr(data, "num_classes", None), loss, outputs)


def check_class_weight(model, class_weight):
    """Raises a ValueError where Keras would weigh classes otherwise than `class_weight` says.

    It takes numbers of classes, gives those it does not find the weight 1, and of rows of several
    labels, or of values, the weight of the largest.
    """
    shape = getattr(model, "output_shape", None)
    outputs = shape[-1] if isinstance(shape, tuple) else None
    if class_weight is None or not isinstance(outputs, int):  # Keras refuses several heads
        return
    reading = reading_of_loss(model.loss)[0]
    if reading == "values" or (reading == "sigmoid" and outputs > 1):
        raise ValueError(
            "class_weight is for labels of one class of several; take sample_weight, or a loss "
            f"with weights. Received: class_weight={class_weight!r:.80}, loss={model.loss!r}."
        )
    numbers = range(max(outputs, 2))
    if wrong := [key for key in class_weight if isinstance(key, str) or key not in numbers]:
        raise ValueError(
            f"class_weight must have numbers of classes, 0..{len(numbers) - 1}, as keys. Received: "
            f"{', '.join(map(repr, wrong[:5]))}."
        )
    check_weights(model, np.array([*class_weight.values()]), name="class_weight")


def check_labels(model, labels):
    """`check_numbers` and `check_metrics` of a model; of several heads, the former of each."""
    loss = getattr(model, "loss", None)
    if isinstance(loss, Mapping) and isinstance(labels, Mapping):
        outputs = getattr(model, "output", None)
        shapes = (
            {head: x.shape for head, x in outputs.items()} if isinstance(outputs, Mapping) else {}
        )
        losses = {head: each for head, each in loss.items() if head in labels and head in shapes}
        map_heads(check_numbers, losses, labels, shapes)
    else:
        check_numbers(loss, labels, getattr(model, "output_shape", None))
    check_metrics(model, labels)


def check_numbers(loss, labels, output_shape):
    """Raises a ValueError where labels are not what the loss of a model with so many outputs reads.

    In silence the backends train with numbers of no class, take -1 and 255 for probabilities, and
    repeat a column of values for each output. Looked at are the losses of this library and Keras's
    without `ignore_class`; what labels mean to others they know.
    """
    is_own, reading = hasattr(loss, "per_example"), reading_of_loss(loss)[0]
    is_known = is_own or isinstance(loss, str) or is_of_keras(loss)
    has_options = hasattr(loss, "keywords") or getattr(loss, "ignore_class", None) is not None
    is_one = isinstance(output_shape, tuple) and isinstance(output_shape[-1], int)
    is_here = getattr(labels, "ndim", 0) and getattr(labels, "is_fully_addressable", True)
    if has_options or not (is_known and reading and is_one and is_here):
        return
    labels, outputs = keras.ops.convert_to_numpy(labels), output_shape[-1]
    name = loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
    is_sparse, is_column = name.lower().startswith("sparse"), _is_column(labels, output_shape)
    classes = max(outputs, 2)  # one logit tells two classes
    rule, advice = f"one value for each of the {outputs} outputs", "; values must be finite"
    numbers = f"whole numbers from 0 to {classes - 1}, the classes of the model"
    if is_sparse or is_own:
        advice = "; give the model the data's num_classes"
        rule = numbers if is_sparse else f"{numbers}, or one value from 0 to 1 for each class"
    elif reading != "values":
        rule, advice = f"{rule}, from 0 to 1", "; no and yes are 0 and 1"
    is_number = is_sparse or (is_own and is_column)
    has_form = is_column if is_number else (1 if is_column else labels.shape[-1]) == outputs
    if not has_form or labels.dtype.kind in "OSU":
        is_rows = is_own and not is_column
        wrong = [f"{labels.shape[-1]} classes" if is_rows else f"{labels.dtype}, {labels.shape}"]
    elif is_number:
        wrong = labels[(labels < 0) | (labels >= classes) | (labels % 1 != 0)]
    else:  # mixed ones pass 1 by a rounding error
        least, most = (-np.inf, np.inf) if reading == "values" else (-1e-3, 1.001)
        wrong = labels[~((labels > least) & (labels < most))]
        if reading == "softmax" and not len(wrong):
            rule = "rows whose sum is 1, as that of a softmax"
            advice = "; for several labels of an image take a loss of sigmoids"
            sums = labels.astype("float32").sum(axis=-1)
            wrong = sums[sums > 1.1]
    if len(wrong):
        raise ValueError(f"Labels must be {rule}. Received: {wrong[0]}{advice}.")


def check_weights(model, weights, name="sample_weight"):
    """Raises a ValueError where weights are no numbers of 0 or more, one for each image (or class).

    Keras trains away from images of negative weights, loses the model to NaN, and multiplies rows
    of weights with the losses of other images where the shapes allow it.
    """
    outputs, losses = getattr(model, "outputs", None), keras.tree.flatten(model.loss)
    is_one = bool(outputs) and all(len(output.shape) == 2 for output in outputs)
    is_one = is_one and all(reading_of_loss(loss)[0] for loss in losses)  # others may take rows
    for each in keras.tree.flatten(weights):
        if not getattr(each, "ndim", 0) or not getattr(each, "is_fully_addressable", True):
            continue
        shape, each = tuple(each.shape), keras.ops.convert_to_numpy(each)
        each = each.astype("float32") if each.dtype.name == "bfloat16" else each
        wrong = each[~((each >= 0) & (each < np.inf))] if each.dtype.kind in "biuf" else each
        if is_one and shape not in (shape[:1], (*shape[:1], 1)):
            wrong = [f"shape {shape}"]
        if len(wrong):
            raise ValueError(
                f"{name} must have a number of 0 or more for each image or, as class_weight, for "
                f"each class. Received: {wrong[0]}."
            )


def check_metrics(model, labels):
    """Raises a ValueError where a metric reads class numbers and labels are rows, or inversely.

    Keras chooses such a metric for "accuracy" by the first labels, and compares labels of the other
    form, as those of a validation set, with it in silence. Of several heads one must fit.
    """
    parts = [each for each in keras.tree.flatten(labels) if getattr(each, "ndim", 0)]
    shape = getattr(model, "output_shape", None)
    shape = shape if isinstance(shape, tuple) else (None, None)
    metrics = [getattr(each, "metrics", [each]) for each in model.metrics] if parts else []
    compiled = getattr(model, "_compile_metrics", None)
    if parts and compiled is not None and not compiled.built:  # before the first batch
        metrics += [compiled._user_metrics, compiled._user_weighted_metrics]
    for metric in keras.tree.flatten(metrics):
        metric = getattr(keras.metrics, metric, None) if isinstance(metric, str) else metric
        function = getattr(metric, "_fn", metric)  # which most of Keras's metrics take a mean of
        function = getattr(function, "func", function)
        name = getattr(function, "__name__", type(function).__name__)
        is_known = is_of_keras(metric) and is_of_keras(function) and "categorical" in name.lower()
        is_sparse = "sparse" in name.lower()
        if is_known and shape[-1] != 1 and is_sparse not in {_is_column(y, shape) for y in parts}:
            raise ValueError(
                f"The metric {getattr(metric, 'name', name)!r} is Keras's {name}, chosen by the "
                "first labels if it was called 'accuracy', and reads labels of one form, class "
                f"numbers or rows of 0 and 1. Received: labels of shape {tuple(parts[0].shape)}; "
                "keras_vit.training.Accuracy() takes both, or give all data one form."
            )


def _is_column(labels, output_shape):
    """Whether labels have one number where the model has one or several outputs."""
    return labels.ndim < len(output_shape) or labels.shape[-1] == 1
