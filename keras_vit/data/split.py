"""Splitting one set of examples into train and test."""

import numpy as np


def check_test_fraction(test_fraction):
    """Raises ValueError unless `test_fraction` lies strictly between 0 and 1."""
    if not isinstance(test_fraction, (int, float, np.number)) or not 0 < test_fraction < 1:
        raise ValueError(
            "test_fraction must lie strictly between 0 and 1, such as 0.2. "
            f"Received: {test_fraction!r}"
        )


def stratified_split(labels, test_fraction, seed):
    """Splits example indices so that each class keeps its share in both parts.

    A class with two or more examples has at least one on each side; the only example of a
    class goes to train, since a class cannot be learned from the test set.

    Args:
        labels: whole numbers, shape (examples,).
        test_fraction: share of each class for the test part, in (0, 1).
        seed: decides which examples; the same seed gives the same split.

    Returns:
        (train, test): two sorted int64 index arrays, disjoint and together complete.

    Raises:
        ValueError: `test_fraction` out of range, or every class has a single example.
    """
    check_test_fraction(test_fraction)
    rng = np.random.default_rng(seed)
    is_test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        if len(members) >= 2:
            wanted = int(len(members) * test_fraction + 0.5)
            is_test[members[: min(max(wanted, 1), len(members) - 1)]] = True
    if not is_test.any():
        raise ValueError(
            "A train/test split needs a class with at least two images. Received: "
            f"{len(labels)} images, no two of the same class; add images or supply a test set"
        )
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)
