"""A linear probe: multinomial logistic regression on frozen features."""

import dataclasses
import warnings

import numpy as np

from keras_vit.checks import positive_float, positive_int, rate
from keras_vit.evaluation.features import check_features, check_pair
from keras_vit.evaluation.result import Result, percent, table

CS = tuple(10.0**exponent for exponent in range(-4, 3))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class LinearProbe(Result):
    """A fitted linear probe.

    Attributes:
        accuracy: share of the test images that it gets right.
        c: the inverse strength of the penalty that was best in validation.
        validation: C -> accuracy on the validation images; empty where there was one C.
        converged: whether the last fit converged within `max_iter` iterations.
        train_examples, test_examples: numbers of images.
        weights, bias: (features, classes) and (classes,), which give the logits of features as
            they came.
    """

    accuracy: float
    c: float
    validation: dict
    converged: bool
    train_examples: int
    test_examples: int
    weights: np.ndarray
    bias: np.ndarray

    def to_dict(self):
        return {
            "accuracy": self.accuracy,
            "c": self.c,
            "validation": {f"{c:g}": accuracy for c, accuracy in self.validation.items()},
            "converged": self.converged,
            "train_examples": self.train_examples,
            "test_examples": self.test_examples,
        }

    def __str__(self):
        rows = [(f"C = {c:g}", percent(accuracy)) for c, accuracy in self.validation.items()]
        warning = "" if self.converged else "; NOT converged, raise max_iter"
        return (
            f"linear probe: {percent(self.accuracy)} of {self.test_examples} images, trained on "
            f"{self.train_examples} with C = {self.c:g}{warning}"
            + (f"\nin validation\n{table(rows, indent=2)}" if rows else "")
        )

    __repr__ = __str__


def linear_probe(
    train_features,
    train_labels,
    test_features,
    test_labels,
    c=CS,
    validation=0.1,
    max_iter=1000,
    seed=0,
):
    """Fits a logistic regression with L-BFGS and tests it once.

    ```python
    train, test = (extract_features(model, data) for data in (train_data, test_data))
    print(linear_probe(*train, *test))
    ```

    The features are whitened (mean and std of the training features). With several C, each is
    fitted without the validation images and the best there (of equals the smallest: the stronger
    penalty) is fitted again on all training images; the test images choose nothing.

    Args:
        train_features, test_features: (images, features).
        train_labels, test_labels: (images,) class numbers, or one-hot rows.
        c: inverse strength C of the squared penalty, as in scikit-learn, or several to choose
            from.
        validation: share of the training images to choose C by, drawn with `seed` class by class;
            or (features, labels).
        max_iter: iterations of L-BFGS.
        seed: of the validation split.

    Returns:
        A `LinearProbe`.

    Raises:
        ImportError: scikit-learn is not installed.
        ValueError: fewer than two classes, or a class with too few images to split.
    """
    cs = sorted(positive_float(each, "c") for each in (c if np.ndim(c) else (c,)))
    if not cs:
        raise ValueError(f"c must be a positive number or several. Received: c={c!r}")
    max_iter = positive_int(max_iter, "max_iter")
    x, y, test_x, test_y, num_classes = check_pair(
        train_features, train_labels, test_features, test_labels
    )
    if len(np.unique(y)) < 2:
        raise ValueError(f"A probe needs two classes in training. Received: only {np.unique(y)}")
    scores = {}
    if len(cs) > 1:
        fit_x, fit_y, held_x, held_y = _validation_split(x, y, validation, seed)
        for each in cs:
            fitted, _ = _fit(fit_x, fit_y, each, max_iter)
            scores[each] = float((fitted.predict(held_x) == held_y).mean())
    best = max(scores, key=scores.get) if scores else cs[0]
    fitted, converged = _fit(x, y, best, max_iter)
    return LinearProbe(
        accuracy=float((fitted.predict(test_x) == test_y).mean()),
        c=best,
        validation=scores,
        converged=converged,
        train_examples=len(x),
        test_examples=len(test_x),
        **_linear_map(fitted, num_classes),
    )


def _fit(x, y, c, max_iter):
    """The whitening and the regression, fitted, and whether it converged."""
    _, exceptions, linear_model, pipeline, preprocessing = _sklearn()
    fitted = pipeline.make_pipeline(
        preprocessing.StandardScaler(), linear_model.LogisticRegression(C=c, max_iter=max_iter)
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", exceptions.ConvergenceWarning)
        fitted.fit(x, y)
    stopped = [w for w in caught if issubclass(w.category, exceptions.ConvergenceWarning)]
    return fitted, not stopped


def _validation_split(x, y, validation, seed):
    if isinstance(validation, (tuple, list)):
        held_x, held_y = check_features(*validation, "validation features")
        return x, y, held_x, held_y
    share = rate(validation, "validation")
    model_selection = _sklearn()[0]
    try:
        fit_x, held_x, fit_y, held_y = model_selection.train_test_split(
            x, y, test_size=share, random_state=seed, stratify=y
        )
    except ValueError as error:
        raise ValueError(
            "The training images must allow a validation split with every class; pass "
            "validation=(features, labels), or one c. Received: "
            f"{len(x)} images of {len(np.unique(y))} classes, validation={validation} ({error})"
        ) from error
    return fit_x, fit_y, held_x, held_y


def _linear_map(fitted, num_classes):
    """Weights and bias for features that are not whitened, with a column for every class."""
    scaler, regression = fitted[0], fitted[-1]
    weights = np.zeros((len(scaler.mean_), num_classes))
    bias = np.full(num_classes, -np.inf)  # a class never seen is never predicted
    slopes, offsets = regression.coef_, regression.intercept_
    if len(slopes) == 1:  # two classes share one row, the logit of the second
        slopes, offsets = np.concatenate([0 * slopes, slopes]), np.append(0, offsets)
    weights[:, regression.classes_] = (slopes / scaler.scale_).T
    bias[regression.classes_] = offsets - (slopes / scaler.scale_) @ scaler.mean_
    return {"weights": weights, "bias": bias}


def _sklearn():
    try:
        from sklearn import exceptions, linear_model, model_selection, pipeline, preprocessing
    except ImportError as error:
        raise ImportError(
            'The linear probe is fitted by scikit-learn: pip install "keras3-vit[data]"'
        ) from error
    return model_selection, exceptions, linear_model, pipeline, preprocessing
