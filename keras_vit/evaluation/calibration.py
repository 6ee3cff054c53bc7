"""Whether a model is as often right as it says (Guo et al., 2017)."""

import dataclasses

import numpy as np

from keras_vit.checks import positive_int
from keras_vit.evaluation.outputs import class_numbers
from keras_vit.evaluation.result import Result
from keras_vit.text import percent, table

# bfloat16 keeps eight bits of each probability; logits miss a sum of 1 by far more.
_SUM_TOLERANCE = 1e-2
_SMALLEST = 1e-7  # of a probability under the logarithm: Keras's epsilon


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Calibration(Result):
    """Confidence compared with accuracy.

    The confidence of a prediction is its probability. Bin m of M holds the images with a
    confidence in ((m - 1)/M, m/M].

    Attributes:
        expected_error: ECE, the mean over the images of |accuracy - confidence| of their bins.
        maximum_error: MCE, the largest such difference of a bin with images.
        negative_log_likelihood: mean of -log p of the right class, in nats.
        brier: mean over the images of the sum over the classes of (p - y)², 0 to 2.
        counts: images in each bin, (bins,).
        confidence: mean confidence of each bin; NaN without images.
        accuracy: share of right predictions in each bin; NaN without images.
    """

    expected_error: float
    maximum_error: float
    negative_log_likelihood: float
    brier: float
    counts: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray

    def __str__(self):
        bins = len(self.counts)
        rows = [
            (
                f"{m / bins:.3f}-{(m + 1) / bins:.3f}",
                self.counts[m],
                percent(self.confidence[m]),
                percent(self.accuracy[m]),
            )
            for m in np.flatnonzero(self.counts)
        ]
        return (
            f"expected calibration error {percent(self.expected_error)} ({bins} bins), largest "
            f"{percent(self.maximum_error)}, negative log-likelihood "
            f"{self.negative_log_likelihood:.4f} nats, Brier score {self.brier:.4f}\n"
            + table(rows, ("confidence", "images", "mean confidence", "accuracy"))
        )

    __repr__ = __str__


def calibration(scores, labels, bins=15, from_logits="auto"):
    """Compares the confidence of predictions with their accuracy.

    Args:
        scores: (images, classes) logits or probabilities.
        labels: (images,) class numbers, or one-hot rows.
        bins: number of equally wide bins of the confidence.
        from_logits: whether `scores` are logits; `"auto"` takes them for probabilities where
            every row sums to 1.

    Returns:
        A `Calibration`.

    Raises:
        ValueError: no images, scores that are not finite, labels that do not fit the scores.

    Source: "On Calibration of Modern Neural Networks", eq. 3 and 5; the Brier score as Brier
    (1950) defines it for several classes.
    """
    scores, labels = _checked(scores, labels)
    from_logits = resolve_from_logits(from_logits, scores)
    confidence, loss, brier = confidences(scores, labels, from_logits)
    return calibration_of(confidence, scores.argmax(axis=1) == labels, loss, brier, bins)


def confidences(scores, labels, from_logits):
    """(confidence, -log p of the right class, sum of (p - y)²) of each image, (images,) each.

    Given probabilities are made to sum to 1 and count as at least 1e-7 under the logarithm.

    Raises:
        ValueError: `from_logits` is False and the rows are no distributions.
    """
    rows = np.arange(len(labels))
    if from_logits:
        log_p = log_softmax(scores)
        p, loss = np.exp(log_p), -log_p[rows, labels]
    elif are_logits(scores):
        raise ValueError(
            "Probabilities must lie in [0, 1] and sum to 1 for each image. Received: values from "
            f"{scores.min():g} to {scores.max():g}, sums from {scores.sum(axis=1).min():g} to "
            f"{scores.sum(axis=1).max():g}; pass from_logits=True if the model gives logits"
        )
    else:
        p = scores / scores.sum(axis=1, keepdims=True)
        loss = -np.log(np.maximum(p[rows, labels], _SMALLEST))
    return p.max(axis=1), loss, (p**2).sum(axis=1) - 2 * p[rows, labels] + 1


def calibration_of(confidence, right, loss, brier, bins=15):
    """The `Calibration` of images whose numbers are known, (images,) each."""
    # An edge belongs to the bin below it, and rounding must not lead out of the last bin.
    edges = np.arange(1, positive_int(bins, "bins")) / bins
    number = np.searchsorted(edges, confidence, side="left")
    counts = np.bincount(number, minlength=bins)
    with np.errstate(invalid="ignore"):  # bins without images: 0 / 0 = NaN
        mean_confidence = np.bincount(number, confidence, bins) / counts
        accuracy = np.bincount(number, right, bins) / counts
    gaps = np.nan_to_num(np.abs(accuracy - mean_confidence))
    return Calibration(
        expected_error=float((gaps * counts).sum() / counts.sum()),
        maximum_error=float(gaps.max()),
        negative_log_likelihood=float(np.mean(loss)),
        brier=float(np.mean(brier)),
        counts=counts,
        confidence=mean_confidence,
        accuracy=accuracy,
    )


def fit_temperature(logits, labels):
    """The temperature T for which softmax(logits / T) has the least negative log-likelihood.

    Fitted on validation images, it repairs over-confidence without changing a prediction:
    `calibration(logits / fit_temperature(...), labels)`.

    Args:
        logits: (images, classes).
        labels: (images,) class numbers, or one-hot rows.

    Returns:
        T as a float between 1e-3 and 1e3, where the search ends: the likelihood of logits that
        separate all classes grows without end as T falls.

    Source: section 4.2 of Guo et al., 2017.
    """
    logits, labels = _checked(logits, labels)
    right = logits[np.arange(len(labels)), labels].mean()

    def slope(beta):  # of the negative log-likelihood, which is convex in beta = 1/T
        p = np.exp(log_softmax(beta * logits))
        return (p * logits).sum(axis=1).mean() - right

    low, high = -np.log(1e3), np.log(1e3)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if slope(np.exp(middle)) > 0 else (middle, high)
    return float(np.exp(-(low + high) / 2))


def log_softmax(logits):
    """The logarithm of the softmax over the last axis, in NumPy."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def check_scores(scores, where=""):
    """Scores as a finite float64 array of shape (images, classes), at least two classes.

    Args:
        scores: logits or probabilities.
        where: where they come from, for errors.

    Raises:
        ValueError: another shape, or NaN or infinite values.
    """
    scores = np.asarray(scores)
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
            f"{int((~finite).any(axis=1).argmax())}; are the weights damaged, the images not "
            "finite, or the dtype too narrow?"
        )
    return scores


def are_logits(scores):
    """Whether scores are logits: False where every row is a distribution over the classes."""
    in_range = (scores >= 0).all() and (scores <= 1).all()
    return not (in_range and (np.abs(scores.sum(axis=1) - 1) <= _SUM_TOLERANCE).all())


def resolve_from_logits(from_logits, scores):
    """Whether scores are logits, by the argument of that name or, for "auto", by themselves."""
    if from_logits not in ("auto", True, False):
        raise ValueError(
            f"from_logits must be 'auto', True or False. Received: from_logits={from_logits!r}"
        )
    return bool(are_logits(scores)) if from_logits == "auto" else from_logits


def _checked(scores, labels):
    scores = check_scores(scores)
    labels = class_numbers(labels, scores.shape[1])
    if len(scores) != len(labels) or not len(labels):
        raise ValueError(
            "There must be one row of scores for each label and at least one of them. Received: "
            f"scores of shape {scores.shape} and {len(labels)} labels"
        )
    return scores, labels
