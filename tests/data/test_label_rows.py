"""Labels as rows of numbers, and what Keras is fed of them."""

import numpy as np
import pytest

from keras_vit.data.label_rows import LabelRows
from keras_vit.data.sources import Source

pytestmark = pytest.mark.any_backend


@pytest.mark.parametrize(
    "problem, shape, labels, width, dtype",
    [
        ("single_label", (), [2, 0], 1, np.int32),
        ("multi_label", (3,), [[1, 0, 1], [0, 0, 0]], 3, np.float32),
        ("regression", (), [2.5, -1.0], 1, np.float32),
        ("regression", (2,), [[2.5, 1], [-1, 0]], 2, np.float32),
    ],
)
def test_labels_come_back(problem, shape, labels, width, dtype):
    made = LabelRows(Source("set", "abc", {"train": 2}, problem, shape))
    rows = np.stack([made.row(np.asarray(label)) for label in labels])
    assert rows.shape == (2, width) and rows.dtype == np.float32 and made.width == width
    (found,) = made.labels(rows)
    assert found.dtype == dtype and found.tolist() == np.asarray(labels).tolist()
    assert made.labels(rows[:0])[0].shape == (0, *shape)


def test_heads_stand_side_by_side_and_what_lacks_stays_without_when_mixed():
    problem = {"breed": "single_label", "size": "regression"}
    names, shapes = {"breed": "abc", "size": None}, {"breed": (), "size": (2,)}
    source = Source("set", names, {"train": 2}, problem, shapes)
    made = LabelRows(source, one_hot=True, weighted=True)
    both = made.row({"breed": 1, "size": np.array([10.0, 30.0])})
    neither = made.row({"breed": -1, "size": np.array([10.0, np.nan])})
    np.testing.assert_array_equal(both, [0, 1, 0, 10, 30])
    mixed = np.stack([both, (both + neither) / 2])
    units = {"breed": None, "size": ([10.0, 10.0], [2.0, 4.0])}
    labels, weights = made.in_units(units).labels(mixed)
    assert labels["breed"].tolist() == [[0, 1, 0], [0, 0, 0]]
    assert labels["size"].tolist() == [[0, 5], [0, 0]] and labels["size"].dtype == np.float32
    assert weights["breed"].tolist() == weights["size"].tolist() == [1, 0]
