"""Few-shot accuracy: a linear classifier in closed form on frozen features (section 4.1).

Section 4.1 of the paper: "a regularized least-squares regression problem that maps the (frozen)
representation of a subset of training images to {-1, 1}^K target vectors". The numbers are those
of big_vision/evaluators/fewshot_lsr.py.
"""

import dataclasses

import numpy as np

from keras_vit.checks import positive_float, positive_int
from keras_vit.evaluation.features import check_features, check_pair, extract, features
from keras_vit.evaluation.result import Result, percent, table

L2 = 2.0**10  # the authors' one value
BIAS = 100.0  # constant feature: so large that the bias is hardly regularised
_STD_EPSILON = 1e-5
_BLOCK = 4096  # test images scored at a time


@dataclasses.dataclass(frozen=True, eq=False)
class LeastSquares:
    """A regularised least-squares classifier.

    Attributes:
        weights: (features + 1, classes); the last row belongs to the constant feature 100.
        mean, std: (features,) of the training features, by which all are whitened.
    """

    weights: np.ndarray
    mean: np.ndarray
    std: np.ndarray

    def scores(self, vectors):
        """(images, classes) for features (images, features); the highest is the prediction."""
        vectors = np.asarray(vectors).astype(self.weights.dtype)
        return _with_bias((vectors - self.mean) / self.std) @ self.weights

    def accuracy(self, vectors, labels):
        """Share of the images whose class has the highest score."""
        right = 0
        for start in range(0, len(vectors), _BLOCK):
            part = slice(start, start + _BLOCK)
            right += int((self.scores(vectors[part]).argmax(axis=1) == labels[part]).sum())
        return right / len(vectors)


def least_squares(vectors, labels, num_classes=None, l2=L2, dtype="float64"):
    """W = (XᵀX + λI)⁻¹XᵀY on whitened features, in closed form.

    X has rows (x - mean)/(std + 1e-5), with the population's std, and a constant 100; Y has 1
    for the right class and -1 elsewhere. With fewer images than columns the equal
    Xᵀ(XXᵀ + λI)⁻¹Y is the smaller problem.

    Args:
        vectors: features (images, features).
        labels: (images,) class numbers, or one-hot rows.
        num_classes: by default one more than the highest label.
        l2: λ, which the constant's weight bears too.
        dtype: `"float64"`, or the authors' `"float32"`.

    Returns:
        A `LeastSquares`.

    Source: `_precompute_cache` and `_eig_fewshot_acc_fn` of
    big_vision/evaluators/fewshot_lsr.py, google-research/big_vision.
    """
    return _Decomposition(vectors, labels, num_classes, dtype).solve(l2)


class _Decomposition:
    """The eigenvalues that solve the regression for every λ."""

    def __init__(self, vectors, labels, num_classes, dtype):
        if dtype not in ("float32", "float64"):
            raise ValueError(f"dtype must be 'float32' or 'float64'. Received: dtype={dtype!r}")
        vectors, labels = check_features(vectors, labels, num_classes=num_classes)
        num_classes = num_classes or int(labels.max()) + 1
        vectors = vectors.astype(dtype)
        self.mean = vectors.mean(axis=0)
        self.std = vectors.std(axis=0) + np.asarray(_STD_EPSILON, dtype)
        x = _with_bias((vectors - self.mean) / self.std)
        y = np.full((len(labels), num_classes), -1, dtype)
        y[np.arange(len(labels)), labels] = 1
        if len(x) >= x.shape[1]:
            self.values, q = np.linalg.eigh(x.T @ x)
            self.left, self.right = q, q.T @ (x.T @ y)
        else:
            self.values, q = np.linalg.eigh(x @ x.T)
            self.left, self.right = x.T @ q, q.T @ y

    def solve(self, l2):
        l2 = self.values.dtype.type(positive_float(l2, "l2"))
        weights = (self.left / (self.values + l2)) @ self.right
        return LeastSquares(weights, self.mean, self.std)


def fewshot_lsr(
    train_features,
    train_labels,
    test_features,
    test_labels,
    l2=L2,
    num_classes=None,
    dtype="float64",
):
    """The test accuracy of `least_squares` on all the training features given.

    Args:
        train_features, test_features: (images, features).
        train_labels, test_labels: (images,) class numbers, or one-hot rows.
        l2: λ, or a sequence of them: all are solved with one decomposition.
        num_classes: by default one more than the highest label.
        dtype: `"float64"`, or the authors' `"float32"`.

    Returns:
        The accuracy as a float, or a dict l2 -> accuracy for a sequence.
    """
    train, train_labels, test, test_labels, num_classes = check_pair(
        train_features, train_labels, test_features, test_labels, num_classes
    )
    problem = _Decomposition(train, train_labels, num_classes, dtype)
    if np.ndim(l2) == 0:
        return problem.solve(l2).accuracy(test, test_labels)
    return {float(each): problem.solve(each).accuracy(test, test_labels) for each in l2}


def pick_shots(labels, shots, seed, num_classes=None):
    """Indices of the training images of a few-shot problem, as the authors pick them.

    The images of each class are permuted by `numpy.random.default_rng(seed)`, class after class,
    and the first `shots` taken: 5 shots are the first 5 of the 10 of the same seed.

    Args:
        labels: (images,) class numbers of all training images.
        shots: images per class; a class with fewer gives what it has.
        seed: of the generator.
        num_classes: by default one more than the highest label.

    Returns:
        int64 indices, class by class.

    Source: `compute_fewshot_metrics` of big_vision/evaluators/fewshot_lsr.py.
    """
    labels, rng = np.asarray(labels), np.random.default_rng(seed)
    num_classes = num_classes or int(labels.max()) + 1
    shots = positive_int(shots, "shots")
    # Every class is permuted whole, or the later classes of a seed would depend on the shots.
    picked = [rng.permutation(np.flatnonzero(labels == c))[:shots] for c in range(num_classes)]
    return np.concatenate(picked)


@dataclasses.dataclass(frozen=True)
class FewShot(Result):
    """Few-shot accuracies.

    Attributes:
        accuracy: shots -> accuracies, one for each seed.
        examples: shots -> training images used, fewer than shots times classes where a class has
            fewer images.
        seeds: of the picking.
        l2: λ of the regression.
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

    def to_dict(self):
        return {
            "accuracy": {str(shots): list(each) for shots, each in self.accuracy.items()},
            "mean": {str(shots): mean for shots, mean in self.mean.items()},
            "examples": {str(shots): count for shots, count in self.examples.items()},
            "seeds": list(self.seeds),
            "l2": self.l2,
            "num_classes": self.num_classes,
            "test_examples": self.test_examples,
        }

    def __str__(self):
        rows = [("shots", "images", "mean", *[f"seed {seed}" for seed in self.seeds])]
        for shots, each in self.accuracy.items():
            cells = (percent(self.mean[shots]), *map(percent, each))
            rows.append((str(shots), str(self.examples[shots]), *cells))
        title = f"few-shot accuracy, {self.num_classes} classes, {self.test_examples} test images"
        return f"{title}\n{table(rows)}"


def fewshot(
    model,
    train,
    test,
    shots=(1, 5, 10, 25),
    seeds=(0, 1, 2),
    l2=L2,
    layer=None,
    num_classes=None,
    batch_size=64,
    dtype="float64",
    progress=None,
):
    """Few-shot accuracy of a frozen model: section 4.1 of the paper, as big_vision measures it.

    Args:
        model: as in `features`; None where `train` and `test` hold features already.
        train, test: data as in `evaluate`, or (features, labels).
        shots: numbers of training images per class.
        seeds: of the picking of those images.
        l2: λ of the regression.
        layer: as in `features`; by default what the head reads, the authors' `pre_logits`.
        num_classes: by default one more than the highest label.
        batch_size, progress: as in `evaluate`.
        dtype: of the regression, `"float64"` or the authors' `"float32"`.

    Returns:
        A `FewShot`.

    Raises:
        ValueError: a class without training images, features or labels that are damaged.
    """
    shots = [positive_int(each, "shots") for each in shots]
    if model is not None:
        backbone = features(model, layer)
        train = extract(backbone, train, batch_size, progress=progress)
        test = extract(backbone, test, batch_size, progress=progress)
    x, y, test_x, test_y, num_classes = check_pair(*train, *test, num_classes)
    absent = np.setdiff1d(np.arange(num_classes), y)
    if len(absent):
        raise ValueError(
            f"Each of the {num_classes} classes must have a training image. Received: none of "
            f"{len(absent)} classes, such as {absent[:5].tolist()}"
        )
    accuracy, examples = {}, {}
    for k in shots:
        picked = [pick_shots(y, k, seed, num_classes) for seed in seeds]
        fits = [least_squares(x[rows], y[rows], num_classes, l2, dtype) for rows in picked]
        accuracy[k] = tuple(fit.accuracy(test_x, test_y) for fit in fits)
        examples[k] = len(picked[0])
    return FewShot(accuracy, examples, tuple(seeds), float(l2), num_classes, len(test_y))


def _with_bias(x):
    return np.pad(x, ((0, 0), (0, 1)), constant_values=BIAS)
