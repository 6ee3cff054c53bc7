"""Classifiers of scikit-learn on frozen features: nearest neighbours and a linear probe."""

import dataclasses
import importlib
import warnings
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import ArrayLike

from keras_vit.checks import check_choice, needs_extra, positive_float, positive_int, rate, require
from keras_vit.evaluation.fewshot import FewShot, check_pair, features_to_compare, fewshot
from keras_vit.evaluation.metrics import Result

CS = tuple(10.0**exponent for exponent in range(-4, 3))


@dataclasses.dataclass(frozen=True, repr=False)
class NearestNeighbours(Result):
    """Accuracies of a vote of the nearest neighbours.

    Attributes:
        accuracy: k -> share of the test images that the k nearest neighbours get right.
        temperature, metric: as in `knn`.
        train_examples, test_examples: numbers of images.
    """

    accuracy: dict
    temperature: float | None
    metric: str
    train_examples: int
    test_examples: int


def knn(
    train_features: ArrayLike,
    train_labels: ArrayLike,
    test_features: ArrayLike,
    test_labels: ArrayLike,
    k: int | Sequence[int] = (1, 10, 20),
    temperature: float | None = 0.07,
    metric: str = "cosine",
) -> NearestNeighbours:
    """Classifies each test image by its nearest training images: a `NearestNeighbours`.

    Of classes with equal votes the lowest number wins.

    Args:
        train_features, test_features: (images, features).
        train_labels, test_labels: (images,) class numbers, or one-hot rows.
        k: number of neighbours, or a sequence of numbers.
        temperature: T, by which a neighbour of cosine similarity s votes with weight exp(s/T), as
            in DINO; None for one vote each.
        metric: `"cosine"`, or `"euclidean"` for plain votes.

    Raises:
        ImportError: scikit-learn is not installed.
        ValueError: more neighbours than training images; features of zeros alone for the cosine; a
            temperature with the Euclidean metric.

    Source: `knn_classifier` of eval_knn.py, facebookresearch/dino.
    """
    check_choice("metric", metric, ("cosine", "euclidean"))
    if temperature is not None:
        positive_float(temperature, "temperature")
        rule = "Only the cosine has weights exp(s/T); pass temperature=None for plain votes"
        require(metric == "cosine", rule, received=metric)
    pair = (train_features, train_labels), (test_features, test_labels)
    x, y, test_x, test_y = _check_pair(*pair)
    zeros = [int((~vectors.any(axis=-1)).sum()) for vectors in (x, test_x)]
    received = f"zeros alone in {zeros[0]} rows of train_features and {zeros[1]} of test_features"
    fits = metric == "euclidean" or not any(zeros)
    require(fits, "The cosine needs features that are not all zero", received=received)

    def weights(distance):  # 1 - s; relative to the nearest, so that no temperature overflows
        return np.exp((distance.min(axis=1, keepdims=True) - distance) / temperature)

    vote = {"weights": "uniform" if temperature is None else weights, "metric": metric}
    accuracy, classifier = {}, _sklearn("neighbors").KNeighborsClassifier
    for each in k if np.ndim(k) else [k]:
        neighbours = classifier(positive_int(each, "k"), algorithm="brute", **vote).fit(x, y)
        accuracy[int(each)] = float(neighbours.score(test_x, test_y))
    return NearestNeighbours(accuracy, temperature, metric, len(x), len(test_x))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class LinearProbe(Result):
    """A fitted linear probe.

    Attributes:
        accuracy: share of the test images that it gets right.
        c: the inverse strength of the penalty that was best in validation.
        validation: C -> accuracy on the validation images; empty if only one C was given.
        converged: whether the last fit converged within `max_iter` iterations.
        train_examples, test_examples: numbers of images.
        classifier: scikit-learn's pipeline of whitening and regression, not part of `to_dict`.
    """

    accuracy: float
    c: float
    validation: dict
    converged: bool
    train_examples: int
    test_examples: int
    classifier: object = dataclasses.field(repr=False)


def linear_probe(
    train_features: ArrayLike,
    train_labels: ArrayLike,
    test_features: ArrayLike,
    test_labels: ArrayLike,
    c: float | Sequence[float] = CS,
    validation: float | tuple[ArrayLike, ArrayLike] = 0.1,
    max_iter: int = 1000,
    seed: int = 0,
) -> LinearProbe:
    """Fits a multinomial logistic regression with L-BFGS and tests it once: a `LinearProbe`.

    The features are whitened (mean and std of the training features). Of several C, the one that
    is best on the validation images (of equals the smallest: the stronger penalty) is fitted again
    on all training images; the test images choose nothing.

    Args:
        train_features, train_labels, test_features, test_labels: as in `knn`.
        c: inverse strength C of the squared penalty, as in scikit-learn, or several of them.
        validation: (features, labels), or the share of each class's training images to choose by.
        max_iter: iterations of L-BFGS.
        seed: of the validation split.

    Raises:
        ImportError: scikit-learn is not installed.
        ValueError: fewer than two classes, or a class with too few images to split.
    """
    cs = sorted(positive_float(each, "c") for each in (c if np.ndim(c) else [c]))
    max_iter = positive_int(max_iter, "max_iter")

    def fit(x, y, c):
        regression = _sklearn("linear_model").LogisticRegression(C=c, max_iter=max_iter)
        whitening = _sklearn("preprocessing").StandardScaler()
        return _sklearn("pipeline").make_pipeline(whitening, regression).fit(x, y)

    pair = (train_features, train_labels), (test_features, test_labels)
    x, y, test_x, test_y = _check_pair(*pair)
    scores = {}
    if len(cs) > 1:
        if isinstance(validation, (tuple, list)):
            fit_x, fit_y, held_x, held_y = _check_pair((x, y), validation, "validation")
        else:
            of_each = {"test_size": rate(validation, "validation"), "stratify": y}
            split = _sklearn("model_selection").train_test_split
            try:
                fit_x, held_x, fit_y, held_y = split(x, y, random_state=seed, **of_each)
            except ValueError as error:
                raise ValueError(
                    "The images that choose C need one of each class, and so do those that are "
                    f"left to fit. Received: {len(y)} images and {validation=:g}. {error} Give a "
                    "larger share, other images as validation=(features, labels), or one C, such "
                    "as c=1.0."
                ) from error
        scores = {each: float(fit(fit_x, fit_y, each).score(held_x, held_y)) for each in cs}
    best = max(scores, key=scores.get) if scores else cs[0]
    classifier = fit(x, y, best)
    accuracy = float(classifier.score(test_x, test_y))
    converged = bool(classifier[-1].n_iter_.max() < max_iter)
    return LinearProbe(accuracy, best, scores, converged, len(x), len(test_x), classifier)


def probe(
    model: keras.Model,
    train: Any,
    test: Any,
    shots: int | Sequence[int] | None = None,
    seed: int = 0,
    layer: str | None = None,
    batch_size: int = 64,
    progress: bool | None = None,
) -> LinearProbe | FewShot:
    """How good frozen features are: `linear_probe` on all training images, or `fewshot` on a few.

    Args:
        model, layer: as in `features`.
        train, test: as in `fewshot`; batch_size, progress: as in `extract_features`.
        shots: training images of each class, or several numbers; `None` for all of them.
        seed: of the validation split of `linear_probe`, or of the images that `fewshot` picks.

    Raises:
        ImportError, ValueError: as in `linear_probe` and `fewshot`.
    """
    options = {"layer": layer, "batch_size": batch_size, "progress": progress}
    train, test = features_to_compare(model, train, test, **options)
    if shots is not None:
        return fewshot(None, train, test, shots, seeds=(seed,))
    return linear_probe(*train, *test, seed=seed)


def _check_pair(train, test, name="test"):
    """`check_pair`, with a warning of classes that nothing can be learned of."""
    _, y, _, test_y = pair = check_pair(train, test, name)
    if (unseen := np.setdiff1d(test_y, y)).size:
        warnings.warn(
            f"Each {name} image of a class without training images counts as wrong. Received: "
            f"{np.isin(test_y, unseen).sum()} of {len(test_y)}, such as of class {unseen[0]}.",
            stacklevel=3,
        )
    return pair


def _sklearn(module):
    with needs_extra("data", "Neighbours and probes are scikit-learn's"):
        importlib.import_module("sklearn")
        return importlib.import_module(f"sklearn.{module}")
