"""From what a model says to class probabilities and ranks, in float64."""

import numpy as np

# bfloat16 keeps eight bits of each probability; logits miss a sum of 1 by far more.
_SUM_TOLERANCE = 1e-2
_SMALLEST = 1e-7  # of a probability under the logarithm: Keras's epsilon


def check_scores(scores, batch=None):
    """Scores as a finite float64 array of shape (images, classes), at least two classes.

    Args:
        scores: logits or probabilities.
        batch: number of the batch, for errors.

    Raises:
        ValueError: another shape, or NaN or infinite values.
    """
    scores = np.asarray(scores)
    where = "" if batch is None else f" in batch {batch}"
    if scores.ndim != 2 or scores.shape[1] < 2:
        raise ValueError(
            "A classifier must give one score for each of two or more classes, (images, classes). "
            f"Received: shape {scores.shape}{where}; a model of tokens or features needs a pool "
            "and a head, and a single output a second class"
        )
    scores = scores.astype(np.float64)
    finite = np.isfinite(scores)
    if not finite.all():
        nans = int(np.isnan(scores).sum())
        raise ValueError(
            f"The model's outputs must be finite. Received: {nans} NaN and "
            f"{int((~finite).sum()) - nans} infinite values{where}, the first for its image "
            f"{int(np.flatnonzero(~finite.all(axis=1))[0])}; are the weights damaged, the images "
            "not finite, or the dtype too narrow?"
        )
    return scores


def are_logits(scores):
    """Whether scores are logits: False where every row is a distribution over the classes."""
    in_range = (scores >= 0).all() and (scores <= 1).all()
    return not (in_range and (np.abs(scores.sum(axis=1) - 1) <= _SUM_TOLERANCE).all())


def probabilities(scores, from_logits):
    """The class probabilities: the softmax of logits, or the given ones, made to sum to 1.

    Raises:
        ValueError: `from_logits` is False and the rows are no distributions.
    """
    if from_logits:
        return np.exp(log_softmax(scores))
    if are_logits(scores):
        raise ValueError(
            "Probabilities must lie in [0, 1] and sum to 1 for each image. Received: values from "
            f"{scores.min():g} to {scores.max():g}, sums from {scores.sum(axis=1).min():g} to "
            f"{scores.sum(axis=1).max():g}; give logits with from_logits=True, or ask for top-k "
            "accuracy only"
        )
    return scores / scores.sum(axis=1, keepdims=True)


def log_softmax(logits):
    """The logarithm of the softmax over the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def negative_log_likelihood(scores, labels, from_logits):
    """-log p of the right class of each image, in nats; p is at least 1e-7 if it was given."""
    rows = np.arange(len(labels))
    if from_logits:
        return -log_softmax(scores)[rows, labels]
    return -np.log(np.maximum(probabilities(scores, False)[rows, labels], _SMALLEST))


def ranks(scores, labels):
    """How many classes come before the right one, for each image; of equals, the lower first."""
    right = scores[np.arange(len(labels)), labels][:, None]
    earlier = np.arange(scores.shape[1]) < labels[:, None]
    return ((scores > right) | ((scores == right) & earlier)).sum(axis=1)
