"""Nearest neighbours among frozen features."""

import dataclasses

import numpy as np

from keras_vit.checks import check_choice, positive_float, positive_int
from keras_vit.evaluation.features import check_pair
from keras_vit.evaluation.result import Result, percent, table

_QUERIES, _BANK = 512, 8192  # a block of similarities: 16 MiB in float32


@dataclasses.dataclass(frozen=True)
class NearestNeighbours(Result):
    """Accuracies of a vote of the nearest neighbours.

    Attributes:
        accuracy: k -> share of the test images that the k nearest neighbours get right.
        temperature: of the weights of the votes, or None where each neighbour has one vote.
        metric: `"cosine"` or `"euclidean"`.
        train_examples, test_examples: numbers of images.
    """

    accuracy: dict
    temperature: float | None
    metric: str
    train_examples: int
    test_examples: int

    def to_dict(self):
        accuracy = {str(k): each for k, each in self.accuracy.items()}
        return {**dataclasses.asdict(self), "accuracy": accuracy}

    def __str__(self):
        vote = "one vote each" if self.temperature is None else f"temperature {self.temperature:g}"
        title = (
            f"{self.metric} nearest neighbours of {self.test_examples} images among "
            f"{self.train_examples}, {vote}"
        )
        rows = [(f"k = {k}", percent(each)) for k, each in self.accuracy.items()]
        return f"{title}\n{table(rows)}"


def knn(
    train_features,
    train_labels,
    test_features,
    test_labels,
    k=(1, 10, 20),
    temperature=0.07,
    metric="cosine",
):
    """Classifies each test image by its nearest training images.

    ```python
    train, test = (extract_features(model, data) for data in (train_data, test_data))
    print(knn(*train, *test))
    ```

    With a temperature T, a neighbour of cosine similarity s votes with weight exp(s/T), as in
    DINO; without, every neighbour has one vote. Of classes with equal votes the lowest number
    wins. Blocks of both sets are compared at a time, so memory grows with neither.

    Args:
        train_features, test_features: (images, features).
        train_labels, test_labels: (images,) class numbers, or one-hot rows.
        k: number of neighbours, or a sequence of numbers, all computed at once.
        temperature: T, or None for plain votes.
        metric: `"cosine"`, or `"euclidean"` for plain votes.

    Returns:
        A `NearestNeighbours`.

    Raises:
        ValueError: more neighbours than training images; features without direction (all zero)
            under the cosine; a temperature with the Euclidean metric.

    Source: `knn_classifier` of eval_knn.py, facebookresearch/dino.
    """
    ks = tuple(positive_int(each, "k") for each in (k if np.ndim(k) else (k,)))
    check_choice("metric", metric, ("cosine", "euclidean"))
    if temperature is not None:
        positive_float(temperature, "temperature")
        if metric == "euclidean":
            raise ValueError(
                "The weights exp(s/T) are defined for the cosine similarity; pass "
                f"temperature=None for plain votes. Received: temperature={temperature}, "
                f"metric={metric!r}"
            )
    bank, bank_labels, queries, labels, num_classes = check_pair(
        train_features, train_labels, test_features, test_labels
    )
    if not ks or max(ks) > len(bank):
        raise ValueError(
            f"k must be at least one number, none above the {len(bank)} training images. "
            f"Received: k={k}"
        )
    if metric == "cosine":
        bank, queries = _normalised(bank, "train"), _normalised(queries, "test")
    right = dict.fromkeys(ks, 0)
    for start in range(0, len(queries), _QUERIES):
        part = slice(start, start + _QUERIES)
        near, similarity = _nearest(queries[part], bank, max(ks), metric)
        weights = None if temperature is None else similarity / temperature
        for number, winner in _votes(bank_labels[near], weights, num_classes, set(ks)):
            right[number] += int((winner == labels[part]).sum())
    accuracy = {number: count / len(labels) for number, count in right.items()}
    return NearestNeighbours(accuracy, temperature, metric, len(bank), len(labels))


def _normalised(vectors, which):
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not norms.all():
        raise ValueError(
            "The cosine needs features that are not all zero. Received: zeros in row "
            f"{int(np.flatnonzero(norms == 0)[0])} of {which}_features"
        )
    return vectors / norms


def _nearest(queries, bank, k, metric):
    """Indices in the bank and similarities of the k nearest, (queries, k), nearest first."""
    indices = np.empty((len(queries), 0), np.int64)
    similarity = np.empty((len(queries), 0), bank.dtype)
    for start in range(0, len(bank), _BANK):
        part = bank[start : start + _BANK]
        new = queries @ part.T
        if metric == "euclidean":  # -|q - b|² without |q|², which ranks nothing
            new = 2 * new - (part**2).sum(axis=1)
        kept = _largest(new, k)
        indices = np.concatenate([indices, start + kept], axis=1)
        similarity = np.concatenate([similarity, np.take_along_axis(new, kept, axis=1)], axis=1)
        kept = _largest(similarity, k)
        indices = np.take_along_axis(indices, kept, axis=1)
        similarity = np.take_along_axis(similarity, kept, axis=1)
    order = np.argsort(-similarity, axis=1, kind="stable")
    return tuple(np.take_along_axis(each, order, axis=1) for each in (indices, similarity))


def _largest(values, k):
    """Columns of the k largest values of each row, or of all, in any order."""
    return np.argpartition(values, max(values.shape[1] - k, 0), axis=1)[:, -k:]


def _votes(neighbours, exponents, num_classes, ks):
    """Yields (k, winning class of each query) while the neighbours vote, nearest first."""
    rows = np.arange(len(neighbours))
    votes = np.zeros((len(neighbours), num_classes))
    for i in range(max(ks)):
        # Relative to the nearest neighbour, so that no temperature overflows.
        weight = 1.0 if exponents is None else np.exp(exponents[:, i] - exponents[:, 0])
        votes[rows, neighbours[:, i]] += weight
        if i + 1 in ks:
            yield i + 1, votes.argmax(axis=1)
