"""Few-shot accuracy: a linear classifier in closed form on frozen features (section 4.1).

"a regularized least-squares regression problem that maps the (frozen) representation of a subset
of training images to {-1, 1}^K target vectors", as in big_vision/evaluators/fewshot_lsr.py.
"""

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import ArrayLike

from keras_vit.checks import check_choice, positive_float, positive_int, require
from keras_vit.class_names import class_map
from keras_vit.evaluation.features import check_features, extract_features
from keras_vit.evaluation.metrics import Result, class_numbers, count_classes

L2 = 2.0**10  # the authors' one value
BIAS = 100.0  # the constant feature, so large that its weights are hardly regularised


@dataclasses.dataclass(frozen=True, eq=False)
class LeastSquares:
    """A least-squares classifier of features.

    Attributes:
        mean, std: (features,) of the training features; `std` is the standard deviation + 1e-5.
        weights: W, (features + 1, classes); the last row belongs to the constant feature.
    """

    mean: np.ndarray
    std: np.ndarray
    weights: np.ndarray

    def scores(self, vectors):
        """(images, classes) for features (images, features); the highest is the prediction."""
        vectors = np.asarray(vectors).astype(self.weights.dtype)
        return _with_constant((vectors - self.mean) / self.std) @ self.weights

    def accuracy(self, vectors, labels):
        """Share of the images whose class has the highest score."""
        vectors, labels = check_features(vectors, labels)
        return float((self.scores(vectors).argmax(axis=1) == labels).mean())


def least_squares(
    vectors: ArrayLike,
    labels: ArrayLike,
    num_classes: int | None = None,
    l2: float = L2,
    dtype: str = "float64",
) -> LeastSquares:
    """W = argmin |XW - Y|² + λ|W|² on whitened features, in closed form, as a `LeastSquares`.

    X (n, d) has rows (x - mean)/(σ + 1e-5), with σ of the population, and the constant `BIAS`;
    Y (n, K) has 1 for the right class and -1 elsewhere. Where the gradient is zero,

        (XᵀX + λI) W = XᵀY.

    With fewer images than columns, n < d, the n x n matrix XXᵀ makes the smaller system. From
    (XᵀX + λI) Xᵀ = Xᵀ (XXᵀ + λI) follows

        W = (XᵀX + λI)⁻¹ XᵀY = Xᵀ (XXᵀ + λI)⁻¹ Y.

    Args:
        vectors: features (images, features).
        labels: (images,) class numbers, or one-hot rows.
        num_classes: by default one more than the highest label.
        l2: λ, for the weights of the constant too.
        dtype: `"float64"`, or the authors' `"float32"`.

    Source: `_precompute_cache` and `_eig_fewshot_acc_fn` of
    big_vision/evaluators/fewshot_lsr.py, google-research/big_vision.
    """
    check_choice("dtype", dtype, ("float32", "float64"))
    l2 = positive_float(l2, "l2")
    vectors, labels = check_features(vectors, labels, num_classes=num_classes)
    vectors = vectors.astype(dtype)
    mean, std = vectors.mean(axis=0), vectors.std(axis=0) + np.asarray(1e-5, dtype)
    x = _with_constant((vectors - mean) / std)
    y = np.full((len(labels), num_classes or count_classes(labels)), -1, dtype)
    y[np.arange(len(labels)), labels] = 1
    if len(x) >= x.shape[1]:
        weights = np.linalg.solve(x.T @ x + l2 * np.eye(x.shape[1], dtype=dtype), x.T @ y)
    else:
        weights = x.T @ np.linalg.solve(x @ x.T + l2 * np.eye(len(x), dtype=dtype), y)
    return LeastSquares(mean, std, weights)


def _with_constant(x):
    """(images, features) -> (images, features + 1), the constant feature as the last column."""
    return np.pad(x, ((0, 0), (0, 1)), constant_values=BIAS)


def pick_shots(
    labels: ArrayLike, shots: int, seed: int, num_classes: int | None = None
) -> np.ndarray:
    """Indices of the training images of a few-shot problem, as the authors pick them.

    The images of each class are permuted by `numpy.random.default_rng(seed)`, class after class,
    and the first `shots` taken: 5 shots are the first 5 of the 10 of the same seed.

    Args:
        labels: (images,) class numbers of all training images.
        shots: images per class; a class with fewer gives what it has.
        seed: of the generator.
        num_classes: by default one more than the highest label.

    Source: `compute_fewshot_metrics` of big_vision/evaluators/fewshot_lsr.py.
    """
    labels, rng = class_numbers(labels, num_classes), np.random.default_rng(seed)
    num_classes = num_classes or count_classes(labels)
    shots = positive_int(shots, "shots")
    # All images of a class are permuted, so that the next classes draw alike for any `shots`.
    picked = [rng.permutation(np.flatnonzero(labels == c))[:shots] for c in range(num_classes)]
    return np.concatenate(picked)


@dataclasses.dataclass(frozen=True, repr=False)
class FewShot(Result):
    """What `fewshot` returns; as every `Result` it prints as a table and saves as JSON.

    Attributes:
        accuracy: shots -> accuracies on the test images, one for each of the `seeds`.
        examples: shots -> training images used; a class with too few images gives what it has.
        seeds, l2: as in `fewshot`.
        num_classes, test_examples: of the data.
    """

    accuracy: dict
    examples: dict
    seeds: tuple
    l2: float
    num_classes: int
    test_examples: int

    @property
    def mean(self):
        """shots -> mean accuracy over the seeds."""
        return {shots: float(np.mean(each)) for shots, each in self.accuracy.items()}


def fewshot(
    model: keras.Model | None,
    train: Any,
    test: Any,
    shots: int | Sequence[int] = (1, 5, 10, 25),
    seeds: int | Sequence[int] = (0, 1, 2),
    l2: float = L2,
    layer: str | None = None,
    batch_size: int = 64,
    dtype: str = "float64",
    progress: bool | None = None,
) -> FewShot:
    """Few-shot accuracy of a frozen model as a `FewShot`: section 4.1 of the paper, as big_vision.

    Args:
        model: as in `features`; None if `train` and `test` hold features already.
        train, test: data as in `evaluate`, or (features, labels); of a dataset in memory, its
            images of that part. Classes with names are matched by them; numbers stand for the same
            class in both.
        shots: number of training images per class, or several.
        seeds: of the draws of those images, one or several.
        l2: λ of the regression.
        layer: as in `features`; by default what the head reads, the authors' `pre_logits`.
        batch_size, progress: as in `evaluate`.
        dtype: as in `least_squares`.

    Raises:
        ValueError: a class without training images, test images of a class that the training
            images lack, or more shots than any class has images.
    """
    shots = [positive_int(k, "shots") for k in (shots if np.ndim(shots) else [shots])]
    seeds = tuple(seeds) if np.ndim(seeds) else (seeds,)
    require(shots and seeds, "There must be shots and seeds", received=(shots, seeds))
    if model is not None:
        options = {"layer": layer, "batch_size": batch_size, "progress": progress}
        train, test = features_to_compare(model, train, test, **options)
    x, y, test_x, test_y = check_pair(train, test)
    num_classes = count_classes(np.concatenate([y, test_y]))  # one more than the highest number
    _check_shots(y, num_classes, shots)
    accuracy, examples = {}, {}
    for k in shots:
        picked = [pick_shots(y, k, seed, num_classes) for seed in seeds]
        fits = [least_squares(x[rows], y[rows], num_classes, l2, dtype) for rows in picked]
        accuracy[k] = tuple(fit.accuracy(test_x, test_y) for fit in fits)
        examples[k] = len(picked[0])
    return FewShot(accuracy, examples, seeds, float(l2), num_classes, len(test_y))


def features_to_compare(model, train, test, **options):
    """`extract_features` of data to learn from and to test on, in the class numbers of the first.

    Names decide which class is which, where both have them, see `keras_vit.class_names`. Of a
    dataset in memory as `train`, the training images are learned from.
    """
    if hasattr(train, "test_images"):  # which `extract_features` takes
        of_train = {"test_images": train.train_images, "test_labels": train.train_labels}
        train = dataclasses.replace(train, **of_train)
    known, of_test = (getattr(data, "class_names", None) for data in (train, test))
    numbers = None
    if known and of_test:
        numbers = class_map("single_label", known, of_test, (len(known),), "the training data")
    learned, (vectors, labels) = (extract_features(model, x, **options) for x in (train, test))
    if numbers is not None:
        labels = numbers[class_numbers(labels, len(numbers), "labels of test")]
    return learned, (vectors, labels)


def check_pair(train, test, name="test"):
    """Finite features (images, features) and class numbers (images,), of both sets.

    Features that are in both, as those of one image are, are warned of.
    """
    x, y = check_features(*train, "train_features")
    test_x, test_y = check_features(*test, f"{name}_features")
    if x.shape[1] != test_x.shape[1]:
        raise ValueError(
            f"Train and {name} features must have the same length. Received: "
            f"{x.shape[1]} and {test_x.shape[1]}."
        )
    learned = {row.tobytes() for row in x}
    if both := [row for row, vector in enumerate(test_x) if vector.tobytes() in learned]:
        warnings.warn(
            f"Images for {name} should not be learned from. Received: {len(both)} of {len(test_x)} "
            f"{name} features that train features have as well, first in row {both[0]}; take "
            "images that stay apart.",
            stacklevel=3,
        )
    return x, y, test_x, test_y


def _check_shots(y, num_classes, shots):
    """Raises a ValueError where a class has no training image, or all have fewer than the shots."""
    counts = np.bincount(y, minlength=num_classes)
    if not counts.all():
        raise ValueError(
            f"Each of the {num_classes} classes must have a training image. Received: none of "
            f"{(counts == 0).sum()} classes, such as {counts.argmin()}."
        )
    if max(shots) > counts.max():
        raise ValueError(
            f"No class has more than {counts.max()} training images. Received: shots={shots}."
        )
