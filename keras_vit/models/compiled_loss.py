"""How the loss that a model is compiled with reads its outputs, and what does not fit to it."""

import inspect
import warnings

import keras

from keras_vit.ends import networks_at_end
from keras_vit.heads import heads_of
from keras_vit.outputs import is_of_keras, reading_of_loss, told_reading

# Keras's metrics by their names in `compile`, in lower case without underscores.
_METRICS = {name.lower(): x for name, x in vars(keras.metrics).items() if inspect.isclass(x)}


def record_reading(model):
    """Records how a model, its end or its loss reads the networks whose outputs it gives."""
    for one in list(heads_of(model).values()) or [model]:
        if reading := told_reading(one):
            for network in networks_at_end(one):
                network.reading = reading


def record_loss(model, metrics=()):
    """Records how the compiled loss of a model, or of one of its heads, reads the logits.

    Warns of a loss or metrics that take logits for probabilities. A softmax of a single output is
    a ValueError.
    """
    head, loss, outputs = getattr(model, "head_name", None), model.loss, model.outputs[0].shape[-1]
    name = model.name if head is None else f"Head {head!r} of {model.name}"
    if isinstance(loss, str) and loss.lower() in ("crossentropy", "ce"):  # Keras chooses which
        loss = "binary_crossentropy" if outputs == 1 else "categorical_crossentropy"
    reading, takes_logits = reading_of_loss(loss)
    if reading == "softmax" and outputs == 1:
        raise ValueError(
            "A softmax of one output is always 1, so nothing is learned. Received: loss="
            f"{loss!r} for {model.name!r}; take 'mse' for values, "
            "BinaryCrossentropy(from_logits=True), or a model of two classes."
        )
    model.reading = reading or model.reading
    wrong = [model.loss] if reading in ("softmax", "sigmoid") and not takes_logits else []
    wrong += [each for each in keras.tree.flatten(metrics) if _of_probabilities(each, reading)]
    if wrong:
        warnings.warn(
            f"{name} gives logits, and what it is compiled with takes its outputs for "
            f"probabilities. Received: {wrong}; pass objects with from_logits=True or, of a "
            "sigmoid, with threshold=0. What has neither option needs "
            f"keras.layers.Activation({reading or 'sigmoid'!r}) behind the outputs.",
            stacklevel=3,
        )


def warn_of_last_loss(model, loss):
    """Warns where a loss that tells nothing replaces one that the reading of a model is from."""
    last, present = reading_of_loss(loss)[0], getattr(model, "loss", None)
    unknown = present is not None and reading_of_loss(present)[0] is None
    if unknown and last is not None and last == model.reading:
        warnings.warn(
            f"The outputs of {model.name} are still read as {last!r}, by the loss before this one, "
            f"which says nothing of that. Received: loss={present!r}; set model.reading after "
            "compile to 'softmax', 'sigmoid' or 'values' where that has changed.",
            stacklevel=3,
        )


def _of_probabilities(metric, reading):
    """Whether a metric, as `compile` takes it, asks for probabilities of a sigmoid or softmax.

    Metrics and functions that are not Keras's are unknown: they may take logits.
    """
    if reading == "values":
        return False
    if isinstance(metric, str):
        if metric.lower() in ("accuracy", "acc"):
            return reading == "sigmoid"
        metric = _METRICS.get(metric.lower().replace("_", ""), metric)
    options = {}
    if isinstance(metric, keras.metrics.Metric):
        # Its config would give a function's name alone, which one of the user's may have, too.
        update, function = type(metric).update_state, getattr(metric, "_fn", None)
        if not is_of_keras(update):
            return False
        options = metric.get_config() if function is None else metric._fn_kwargs
        metric = function or update
    if not isinstance(metric, str):
        if not is_of_keras(metric):
            return False
        parameters = inspect.signature(metric).parameters.items()
        options = {option: each.default for option, each in parameters} | options
    of_loss, takes_logits = reading_of_loss(metric)
    if "from_logits" in options or of_loss in ("softmax", "sigmoid"):
        return not (takes_logits or options.get("from_logits"))
    if "thresholds" in options and options["thresholds"] is None and not options.get("top_k"):
        options["thresholds"] = 0.5  # as Keras takes it
    limits = [options.get("threshold"), options.get("thresholds")]
    # Metrics such as `PrecisionAtRecall` look for a threshold from 0 to 1.
    is_within = [0 < limit < 1 for limit in keras.tree.flatten(limits) if limit is not None]
    return reading is not None and (any(is_within) or "num_thresholds" in options)
