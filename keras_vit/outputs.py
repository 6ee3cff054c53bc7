"""How the outputs of a model are read: as one class of several, as any of them, or as values.

Predictions, evaluation, exports, cards and figures ask here. What a model was trained for decides,
never the look of its numbers alone.
"""

import dataclasses
import functools
import warnings
from collections.abc import Mapping

import keras
import numpy as np

from keras_vit.checks import check_choice
from keras_vit.ends import IN_PLACE, end_of, inside, is_cut_before_head
from keras_vit.heads import check_one_head, heads_of, map_heads

READINGS = ("softmax", "sigmoid", "values")
# What the labels of a data set are -> how the outputs of a model for them are read.
PROBLEMS = {"single_label": "softmax", "multi_label": "sigmoid", "regression": "values"}

# Classes and functions of losses, in lower case without underscores, and Keras's short names.
_LOSSES = {
    "softmax": """softmaxloss categoricalcrossentropy sparsecategoricalcrossentropy
        categoricalfocalcrossentropy categoricalgeneralizedcrossentropy kldivergence kld
        kullbackleiblerdivergence""",
    "sigmoid": "sigmoidloss binarycrossentropy bce binaryfocalcrossentropy",
    "values": """meansquarederror mse meanabsoluteerror mae meanabsolutepercentageerror mape
        meansquaredlogarithmicerror msle huber logcosh poisson cosinesimilarity""",
}
_LOSSES = {loss: reading for reading, losses in _LOSSES.items() for loss in losses.split()}
_OF_THIS_LIBRARY = ("softmaxloss", "sigmoidloss")  # which take logits and have no argument for it


@dataclasses.dataclass(frozen=True)
class Reading:
    """How the outputs (images, outputs) of a model become what its user asks for.

    Attributes:
        name: `"softmax"`, the probabilities of classes of which one is right; `"sigmoid"`, the
            probability of each class by itself; `"values"`, the outputs as they are.
        applied: whether the model itself ends with that function; `None` where only the outputs
            tell: they are then taken for probabilities if they all are such.
    """

    name: str
    applied: bool | None = False

    def counts(self, outputs):
        """How many names so many outputs may have: two for a single sigmoid, of its two classes."""
        return (1, 2) if (self.name, outputs) == ("sigmoid", 1) else (outputs,)

    def scores(self, outputs, classes=None):
        """The outputs as they are read, in float64: probabilities or values, (images, classes).

        With 2 `classes`, a single sigmoid gives the probabilities of both.

        Raises:
            ValueError: NaN or infinity among them, or numbers that are no probabilities.
        """
        outputs = np.asarray(outputs, "float64")
        if not np.isfinite(outputs).all():
            raise ValueError(
                "The model's outputs must be finite. Received: NaN or infinity; are its weights "
                "damaged, or its dtype too narrow?"
            )
        if self.name == "values":
            return outputs
        if not self.is_applied(outputs):
            of_sigmoid = self.name == "sigmoid"
            outputs = np.exp(-np.logaddexp(0, -outputs) if of_sigmoid else log_softmax(outputs))
        elif outputs.size and (outputs.min() < -0.01 or outputs.max() > 1.01):
            raise ValueError(
                "Outputs that are probabilities lie in [0, 1]; logits need from_logits=True. "
                f"Received: values from {outputs.min():g} to {outputs.max():g}."
            )
        if classes == 2 and outputs.shape[-1] == 1:
            return np.concatenate([1 - outputs, outputs], axis=-1)
        return outputs

    def is_applied(self, outputs):
        """`applied`, or what the outputs tell."""
        if self.applied is not None or self.name == "values":
            return bool(self.applied)
        in_range = bool((outputs >= 0).all() and (outputs <= 1).all())
        if self.name == "sigmoid" or not in_range:
            return in_range
        takes_logits = are_logits(outputs)
        if takes_logits and outputs.any():
            warnings.warn(
                "Nothing says how outputs are read that all lie in [0, 1] without a sum of 1: they "
                "are taken for logits of a softmax. If they are probabilities, each of a sigmoid, "
                "set model.reading = 'sigmoid'; else pass from_logits=True.",
                stacklevel=2,
            )
        return not takes_logits

    def decided(self, outputs):
        """The same with `applied` as the first outputs tell, so that later ones are read alike."""
        return dataclasses.replace(self, applied=self.is_applied(outputs))

    def layer(self, name="probabilities"):
        """The layer that follows the model so that its outputs are read, or `None` for none."""
        if self.name == "values" or self.applied:
            return None
        return keras.layers.Activation(self.name, dtype="float32", name=name)


def reading_of(model, reading=None, from_logits="auto", outputs=None):
    """The `Reading` of a model: as asked for, as recorded, as it ends or as it was trained.

    The first of these decides: `reading`; `model.reading`, which a `Classifier` saves, takes from
    the loss that it is compiled with, and may have from the config of its weights; a softmax or a
    sigmoid at the end of the model; its compiled loss; the record of the model inside that it ends
    with. Several of these must agree, and only a softmax may be followed by an unknown layer.
    Otherwise two outputs or more are logits of a softmax, with a warning where a loss that is not
    known trained them; of one of several heads nothing is assumed, as heads are seldom alike.

    Args:
        model: a Keras model with one output of shape (batch, outputs), or one of `heads_of`.
        reading: `"softmax"`, `"sigmoid"` or `"values"`.
        from_logits: whether the outputs are logits; `"auto"` for what model and loss say.
        outputs: their number; by default that of `model.output_shape`.

    Raises:
        ValueError: nothing says how a single output, a head or features are read, the models
            inside are read differently, a softmax is to be taken of one output, the model ends with
            another function than the reading, or it has several heads.
    """
    check_one_head(model, "Reading its outputs at once")
    check_choice("reading", reading, (*READINGS, None))
    check_choice("from_logits", from_logits, ("auto", True, False))
    end = end_of(model)
    _, takes_logits = reading_of_loss(getattr(model, "loss", None))
    activation = end if end in READINGS else None
    recorded = getattr(model, "reading", None)  # unchecked of models of Keras's own classes
    check_choice("reading", recorded, (*READINGS, None))
    asked = reading or recorded
    name = asked or told_reading(model) or _reading_inside(model)
    outputs, heads = outputs or model.output_shape[-1], inside(model, "head_name")[0]
    head = getattr(model, "head_name", None) or next(filter(None, heads), None)
    if name is None and head is not None:
        raise ValueError(
            "Each head has a reading of its own: 'softmax', 'sigmoid' or 'values'. Received: "
            f"{model.name!r}, with no loss for {head!r} that tells. Set model.reading = "
            f"{{{head!r}: ...}} or pass reading={{{head!r}: ...}}."
        )
    if name is None and outputs == 1:
        raise ValueError(
            "One output may be the logit of a yes-or-no question or a value, and nothing says "
            f"which. Received: {model.name!r}, never compiled with a loss that tells. Set "
            "model.reading = 'sigmoid' or 'values', or pass reading=..."
        )
    if name is None and gives_features(model):
        raise ValueError(
            f"Features are no classes. Received: {model.name!r}, which has no head; build it with "
            "num_classes, or pass reading=... for how its outputs are read."
        )
    if name is None and end == "function":
        raise ValueError(
            f"An activation at the end makes no logits. Received: {model.name!r}, and nothing that "
            "says how it is read; set model.reading = 'softmax', 'sigmoid' or 'values'."
        )
    if name is None and getattr(model, "loss", None) is not None:
        warnings.warn(
            f"The outputs of {model.name!r} are taken for those of a softmax, as its loss says "
            f"nothing of that. Received: loss={model.loss!r}; set model.reading, or give reading= "
            "(a command: --reading), as 'softmax', 'sigmoid' or 'values'.",
            stacklevel=2,
        )
    name = name or "softmax"
    if name == "softmax" and outputs == 1:
        raise ValueError(
            f"A softmax of one output is always 1. Received: reading 'softmax' for {model.name!r}, "
            "whose output has one number; set model.reading = 'sigmoid' or 'values'."
        )
    if asked and asked != "values" and activation not in (None, asked):
        raise ValueError(
            f"{model.name!r} ends with a {activation}. Received: reading={asked!r}; its outputs "
            f"can be read as {activation!r} or as 'values'."
        )
    if from_logits != "auto":
        return Reading(name, not from_logits)
    if end is not None:
        return Reading(name, activation is not None)
    return Reading(name, None if takes_logits is None else not takes_logits)


def gives_features(model):
    """Whether the outputs are features: of a network without a head, perhaps scaled behind it."""
    if (own := getattr(model, "num_classes", None)) is not None:
        return own == 0
    if told_reading(model):
        return False
    counts, passing = inside(model, "num_classes", IN_PLACE)
    return (passing and {*counts} == {0}) or is_cut_before_head(model)


def told_reading(model):
    """What is recorded of a model, its end or else its loss tells of its reading, or `None`."""
    end = end_of(model)
    told = getattr(model, "reading", None) or (end if end in READINGS else None)
    return told or reading_of_loss(getattr(model, "loss", None))[0]


def reading_of_loss(loss):
    """(reading, whether it takes logits) of a loss as in `compile`; `None` where unknown."""
    parts = keras.tree.flatten(loss)
    if len(parts) != 1:  # none, or those of several outputs
        return None, None
    loss, options = parts[0], {}
    if isinstance(loss, functools.partial):
        loss, options = loss.func, loss.keywords
    names = [loss if isinstance(loss, str) else getattr(loss, "__name__", "")]
    if isinstance(loss, keras.losses.Loss):
        names, options = [each.__name__ for each in type(loss).__mro__], vars(loss)
    for name in (name.lower().replace("_", "") for name in names):
        if reading := _LOSSES.get(name):
            takes_logits = reading != "values" and bool(options.get("from_logits"))
            return reading, takes_logits or name in _OF_THIS_LIBRARY
    return None, None


def is_of_keras(function):
    """Whether Keras has a class or function, or that of a `functools.partial`."""
    module = getattr(getattr(function, "func", function), "__module__", None)
    return (module or "").startswith("keras.")


def check_problem(model, problem):
    """Raises a ValueError where the loss is not for labels of a problem, and warns of its input.

    Of several heads, {head: problem}, each is looked at.
    """
    if isinstance(problem, Mapping):
        if getattr(model, "outputs", None) is None:  # only its code knows its heads
            return
        heads = heads_of(model)
        if set(problem) != set(heads):
            raise ValueError(
                f"The labels are those of the heads {', '.join(map(repr, problem))}. Received: "
                f"{model.name!r} with {', '.join(map(repr, heads)) or 'one output'}; "
                "keras_vit.add_heads gives a network such heads."
            )
        map_heads(check_problem, heads, problem)
        return
    reading, takes_logits = reading_of_loss(getattr(model, "loss", None))
    end = None if hasattr(model, "reading") else end_of(model)  # others warn in `compile`
    given = "probabilities" if end in READINGS else "logits" if end == "linear" else None
    taken = "logits" if takes_logits else "probabilities"
    if reading in ("softmax", "sigmoid") and given not in (None, taken):
        warnings.warn(
            f"{model.name} gives {given}, and its loss takes them for {taken}. Received: "
            f"loss={model.loss!r}; pass an object with from_logits={given == 'logits'}.",
            stacklevel=3,
        )
    if problem in ("multi_label", "regression") and reading not in (None, PROBLEMS[problem]):
        raise ValueError(
            f"Labels of problem={problem!r} are read by {PROBLEMS[problem]!r}, and the loss trains "
            f"for {reading!r}. Received: loss={model.loss!r}; recipe.for_problem(problem) changes "
            "loss and metrics of a recipe."
        )


def log_softmax(logits):
    """The logarithm of the softmax over the last axis, in NumPy."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def are_logits(scores):
    """Whether scores are logits: False if every row is a distribution over the classes."""
    in_range = (scores >= 0).all() and (scores <= 1).all()
    # bfloat16 keeps eight bits of each probability; logits miss a sum of 1 by far more.
    return not (in_range and (np.abs(scores.sum(axis=1) - 1) <= 1e-2).all())


def _reading_inside(model):
    """The reading of the networks that make the outputs, or `None` where they have none.

    Raises:
        ValueError: they are read differently, or what follows them may change how they are read.
    """
    of_loss = lambda part: reading_of_loss(getattr(part, "loss", None))[0]  # noqa: E731
    readings, passing = inside(model, "reading", otherwise=of_loss)
    for reading in readings:
        check_choice("reading", reading, (*READINGS, None))
    if not any(readings):
        return None
    readings = sorted({reading or "softmax" for reading in readings})
    if len(readings) > 1 or (readings != ["softmax"] and not passing):
        what = "a layer follows that may change that" if len(readings) == 1 else "at once"
        raise ValueError(
            f"The networks inside {model.name!r} are read as {' and '.join(readings)}, {what}. "
            "Received: nothing that says how its outputs are read; set model.reading = 'softmax', "
            "'sigmoid' or 'values', or pass reading=..."
        )
    return readings[0] if passing else None
