"""What every evaluation shares: results, class numbers, scores and their calibration."""

import dataclasses
import json
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from keras_vit.checks import check_choice, positive_int, require, to_array
from keras_vit.outputs import are_logits, log_softmax
from keras_vit.text import percent, table
from keras_vit.writing import write_text

LEAST = 1e-7  # a probability counts as this at least under a logarithm, as in Keras


class Result:
    """Base of the results: frozen dataclasses that print as a table and save as JSON."""

    def to_dict(self):
        """Fields and properties as dicts, lists and Python scalars; NaN and infinity are None."""
        names = [field.name for field in dataclasses.fields(self) if field.repr]
        names += [name for name in dir(self) if isinstance(getattr(type(self), name, 0), property)]
        return {name: _plain(getattr(self, name)) for name in names}

    def save(self, path):
        """Writes `to_dict()` as JSON."""
        write_text(path, json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")

    def __str__(self):
        rows = []
        for name, value in self.to_dict().items():
            name, each = name.replace("_", " "), value if isinstance(value, dict) else {"": value}
            rows += [(f"{name} {key}".rstrip(), _cell(cell)) for key, cell in each.items()]
        return f"{type(self).__name__}\n{table(rows, left=2)}"

    def __repr__(self):
        return str(self)


def _plain(value):
    if isinstance(value, Result):
        return value.to_dict()
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _cell(value):
    if isinstance(value, list):
        return ", ".join(map(_cell, value)) or "none"
    return f"{value:.4f}" if isinstance(value, float) and 0 <= value <= 1 else str(value)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Calibration(Result):
    """Confidence, the probability of the prediction, compared with accuracy.

    Bin m of M holds the images with a confidence in ((m - 1)/M, m/M].

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
        bins, rows = len(self.counts), []
        for m in np.flatnonzero(self.counts):
            shares = percent(self.confidence[m]), percent(self.accuracy[m])
            rows.append((f"{m / bins:.3f}-{(m + 1) / bins:.3f}", self.counts[m], *shares))
        return (
            f"expected calibration error {percent(self.expected_error)} ({bins} bins), largest "
            f"{percent(self.maximum_error)}, negative log-likelihood "
            f"{self.negative_log_likelihood:.4f} nats, Brier score {self.brier:.4f}\n"
            + table(rows, ("confidence", "images", "mean confidence", "accuracy"))
        )


def calibration(
    scores: ArrayLike,
    labels: ArrayLike,
    bins: int = 15,
    from_logits: bool | Literal["auto"] = "auto",
) -> Calibration:
    """Compares the confidence of predictions with their accuracy, as a `Calibration`.

    Args:
        scores: (images, classes) logits or probabilities.
        labels: (images,) class numbers, or one-hot rows.
        bins: number of equally wide bins of the confidence.
        from_logits: whether `scores` are logits; `"auto"`: unless every row sums to 1.

    Raises:
        ValueError: arrays of other shapes, labels that are no class, scores that are not finite, or
            with `from_logits=False` no probabilities.

    Source: Guo et al. (2017), "On Calibration of Modern Neural Networks", eq. 3 and 5; the Brier
    score as Brier (1950) defines it for several classes.
    """
    check_choice("from_logits", from_logits, ("auto", True, False))
    scores, labels = _scores_and_labels(scores, labels)
    from_logits = are_logits(scores) if from_logits == "auto" else from_logits
    confidence, loss, brier = confidences(scores, labels, from_logits)
    right = scores.argmax(axis=1) == labels
    return calibration_of(confidence, right, loss, brier, positive_int(bins, "bins"))


def confidences(scores, labels, from_logits, reading="softmax"):
    """(confidence, -log p of the right class, sum of (p - y)²) of each image, (images,) each.

    Probabilities of a softmax are made to sum to 1; the loss of a sigmoid is summed over classes.
    """
    right = np.arange(scores.shape[1]) == labels[:, None]
    if reading == "sigmoid":
        p, of_present, of_absent = sigmoid_losses(scores, from_logits)
        loss = np.where(right, of_present, of_absent).sum(axis=1)
    elif from_logits:
        log_p = log_softmax(scores)
        p, loss = np.exp(log_p), -log_p[right]
    elif are_logits(scores):
        raise _no_probabilities(scores, " and sum to 1 for each image")
    else:
        p = scores / scores.sum(axis=1, keepdims=True)
        loss = -np.log(np.maximum(p[right], LEAST))
    return p.max(axis=1), loss, ((p - right) ** 2).sum(axis=1)


def calibration_of(confidence, right, loss, brier, bins):
    """The `Calibration` of images whose numbers are known, (images,) each."""
    # An edge belongs to the bin below it, and rounding must not lead out of the last bin.
    number = np.searchsorted(np.arange(1, bins) / bins, confidence, side="left")
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


def fit_temperature(logits: ArrayLike, labels: ArrayLike) -> float:
    """The temperature T for which softmax(logits / T) has the least negative log-likelihood.

    Fitted on validation images, it repairs over-confidence and changes no prediction. It lies
    between 1e-3 and 1e3, as logits that separate all classes have no maximum. Arguments are as in
    `calibration`.

    Raises:
        ValueError: scores that are probabilities already, or as in `calibration`.

    Source: section 4.2 of Guo et al., 2017.
    """
    logits, labels = _scores_and_labels(logits, labels)
    rule = "A temperature divides logits; take the logarithm of probabilities, np.log(p)"
    require(are_logits(logits), rule, received="rows of probabilities, each with a sum of 1")
    right = logits[np.arange(len(labels)), labels].mean()
    low, high = -np.log(1e3), np.log(1e3)  # of log(1/T)
    for _ in range(60):
        middle = (low + high) / 2
        p = np.exp(log_softmax(np.exp(middle) * logits))
        # The slope of the negative log-likelihood, which is convex in 1/T.
        rises = (p * logits).sum(axis=1).mean() > right
        low, high = (low, middle) if rises else (middle, high)
    return float(np.exp(-middle))


def sigmoid_losses(scores, from_logits):
    """(p, -log p, -log(1 - p)) of each class by itself."""
    if from_logits:
        of_present, of_absent = np.logaddexp(0, -scores), np.logaddexp(0, scores)
        return np.exp(-of_present), of_present, of_absent
    if scores.size and (scores.min() < 0 or scores.max() > 1):
        raise _no_probabilities(scores)
    return scores, -np.log(np.maximum(scores, LEAST)), -np.log(np.maximum(1 - scores, LEAST))


def _no_probabilities(scores, also=""):
    return ValueError(
        f"Probabilities lie in [0, 1]{also}; logits need from_logits=True. Received: values from "
        f"{scores.min():g} to {scores.max():g}."
    )


def average_precision(scores, labels):
    """The area under the steps of precision over recall, of (images,) scores and labels.

    Equal scores make one step, as in scikit-learn. NaN without a right label.
    """
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    hits = np.cumsum(labels[order])[ends]
    if not hits[-1]:
        return float("nan")
    return float((np.diff(hits, prepend=0) / hits[-1] * hits / (ends + 1)).sum())


def check_scores(scores, where="", least=2):
    """Logits or probabilities as a finite float64 array (images, classes), or a ValueError."""
    scores = np.asarray(scores)
    fits = scores.ndim == 2 and scores.shape[1] >= least
    rule = "A classifier must give one score for each of two or more classes, (images, classes); "
    rule += "a model of tokens needs a pool and a head"
    require(fits, rule, received=f"shape {scores.shape}{where}")
    finite = np.isfinite(scores)
    if not finite.all():
        raise ValueError(
            "The model's outputs must be finite; check its weights, the images and the dtype. "
            f"Received: {int((~finite).sum())} NaN or infinite values{where}, the first for its "
            f"image {int(finite.all(axis=1).argmin())}."
        )
    return scores.astype(np.float64)


def class_numbers(labels, num_classes=None, what="labels"):
    """Whole numbers (images,) or (images, 1), or one-hot rows, as int64 class numbers (images,)."""
    labels = to_array(labels)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    fits = labels.dtype.kind in "biuf" and labels.ndim in (1, 2)
    rule = f"{what} must be class numbers, not names, of shape (images,), or one-hot rows"
    require(fits, rule, received=f"{labels.dtype} of shape {labels.shape}")
    if labels.ndim == 1:
        most = 2**53 if num_classes is None else num_classes - 1
        fits = (labels == np.floor(labels)) & (labels >= 0) & (labels <= most)
        expected = f"whole numbers in 0..{most}"
    else:
        rule = f"One-hot {what} must have one column for each of the {num_classes} classes"
        require(num_classes in (None, labels.shape[1]), rule, received=f"shape {labels.shape}")
        fits = np.isin(labels, (0, 1)).all(axis=1) & (labels.sum(axis=1) == 1)
        expected = (
            "rows with a single 1, without Mixup or smoothing (a model of several classes at once "
            "is read by reading='sigmoid'; for ReaL labels see real_accuracy)"
        )
    if not fits.all():
        index = int(fits.argmin())
        raise ValueError(
            f"{what} must be {expected}. Received: {int((~fits).sum())} others, the first "
            f"{labels[index]} at index {index}."
        )
    return (labels if labels.ndim == 1 else labels.argmax(axis=1)).astype(np.int64)


def count_classes(labels, most=10**6):
    """One more than the highest class number, or a ValueError if that is more than `most`."""
    count = int(labels.max()) + 1
    if count > most:
        raise ValueError(
            f"There may be at most {most:,} classes; np.unique(labels, return_inverse=True) "
            f"numbers ids. Received: labels up to {count - 1:,}."
        )
    return count


def check_same_length(first, second, names):
    """Raises a ValueError where two arrays do not describe the same images, one at least."""
    fits = len(first) == len(second) > 0
    rule = f"There must be as many {names[0]} as {names[1]}, and at least one"
    require(fits, rule, received=f"shapes {first.shape} and {second.shape}")


def _scores_and_labels(scores, labels):
    scores = check_scores(scores)
    labels = class_numbers(labels, scores.shape[1])
    check_same_length(scores, labels, ("rows of scores", "labels"))
    return scores, labels
