"""Whether a model is as often right as it says (Guo et al., 2017)."""

import dataclasses

import numpy as np

from keras_vit.checks import positive_int
from keras_vit.evaluation.result import Result, percent, table
from keras_vit.evaluation.scores import (
    are_logits,
    check_scores,
    log_softmax,
    negative_log_likelihood,
    probabilities,
)
from keras_vit.evaluation.stream import class_numbers


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

    def to_dict(self):
        bins = zip(self.counts.tolist(), self.confidence.tolist(), self.accuracy.tolist())
        return {
            "expected_calibration_error": self.expected_error,
            "maximum_calibration_error": self.maximum_error,
            "negative_log_likelihood": self.negative_log_likelihood,
            "brier": self.brier,
            "bins": [
                {"images": n, "confidence": c if n else None, "accuracy": a if n else None}
                for n, c, a in bins
            ],
        }

    def __str__(self):
        bins = len(self.counts)
        rows = [("confidence", "images", "mean confidence", "accuracy")]
        for m in np.flatnonzero(self.counts):
            means = (percent(self.confidence[m]), percent(self.accuracy[m]))
            rows.append((f"{m / bins:.3f}-{(m + 1) / bins:.3f}", str(self.counts[m]), *means))
        return (
            f"expected calibration error {percent(self.expected_error)} ({bins} bins), largest "
            f"{percent(self.maximum_error)}, negative log-likelihood "
            f"{self.negative_log_likelihood:.4f} nats, Brier score {self.brier:.4f}\n{table(rows)}"
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
    scores, labels, from_logits = _checked(scores, labels, from_logits)
    sums = CalibrationSums(bins)
    sums.add(scores, labels, from_logits)
    return sums.result()


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
    logits, labels, _ = _checked(logits, labels, True)
    right = logits[np.arange(len(labels)), labels].mean()

    def slope(beta):  # of the negative log-likelihood, which is convex in beta = 1/T
        p = np.exp(log_softmax(beta * logits))
        return (p * logits).sum(axis=1).mean() - right

    low, high = -np.log(1e3), np.log(1e3)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if slope(np.exp(middle)) > 0 else (middle, high)
    return float(np.exp(-(low + high) / 2))


class CalibrationSums:
    """The sums behind a `Calibration`, filled batch by batch."""

    def __init__(self, bins=15):
        self.bins = positive_int(bins, "bins")
        self.counts = np.zeros(self.bins, np.int64)
        self.confidence, self.right = np.zeros(self.bins), np.zeros(self.bins)
        self.loss = self.brier = 0.0

    def add(self, scores, labels, from_logits):
        """Adds a batch: scores (images, classes) in float64 and class numbers (images,)."""
        p = probabilities(scores, from_logits)
        confidence = p.max(axis=1)
        # Edges belong to the bin below them, and rounding must not lead out of the last bin.
        edges = np.arange(1, self.bins) / self.bins
        bin_ = np.searchsorted(edges, confidence, side="left")
        np.add.at(self.counts, bin_, 1)
        np.add.at(self.confidence, bin_, confidence)
        np.add.at(self.right, bin_, scores.argmax(axis=1) == labels)
        self.loss += negative_log_likelihood(scores, labels, from_logits).sum()
        self.brier += ((p**2).sum(axis=1) - 2 * p[np.arange(len(labels)), labels] + 1).sum()

    def result(self):
        """The sums so far as a `Calibration`."""
        n, filled = self.counts.sum(), self.counts > 0
        means = [
            np.divide(total, self.counts, out=np.full(self.bins, np.nan), where=filled)
            for total in (self.confidence, self.right)
        ]
        gaps = np.abs(means[0] - means[1])[filled]
        return Calibration(
            expected_error=float((gaps * self.counts[filled]).sum() / n),
            maximum_error=float(gaps.max()),
            negative_log_likelihood=float(self.loss / n),
            brier=float(self.brier / n),
            counts=self.counts.copy(),
            confidence=means[0],
            accuracy=means[1],
        )


def _checked(scores, labels, from_logits):
    scores = check_scores(scores)
    labels = class_numbers(labels, scores.shape[1])
    if len(scores) != len(labels) or not len(labels):
        raise ValueError(
            "There must be one row of scores for each label and at least one of them. Received: "
            f"scores of shape {scores.shape} and {len(labels)} labels"
        )
    if from_logits not in ("auto", True, False):
        raise ValueError(
            f"from_logits must be 'auto', True or False. Received: from_logits={from_logits!r}"
        )
    return scores, labels, are_logits(scores) if from_logits == "auto" else from_logits
