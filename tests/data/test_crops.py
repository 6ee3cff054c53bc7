"""Crops: boxes and windows distributed as the authors' are."""

import numpy as np
import pytest
from scipy import stats

from keras_vit.data.crops import CROPS, inception_box, random_resized_box, random_window
from keras_vit.data.resize import center_window
from keras_vit.data.transform import Transform
from tests.data.test_transforms import rng

pytestmark = pytest.mark.any_backend


@pytest.mark.parametrize("size", [(375, 500), (32, 32), (60, 200)])
def test_boxes_are_distributed_as_tensorflows(tf, size):
    """Two-sample Kolmogorov-Smirnov for height, width, ratio and place; sizes are whole numbers."""
    count, area, ratio = 3000, (0.05, 1.0), (0.75, 1.33)

    def theirs(index):
        begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
            tf.constant([*size, 3]),
            tf.zeros([1, 0, 4]),
            tf.stack([tf.constant(3, tf.int64), index]),
            min_object_covered=0.0,
            area_range=area,
            aspect_ratio_range=ratio,
            use_image_if_no_bounding_boxes=True,
        )
        return tf.concat([begin[:2], extent[:2]], 0)

    expected = np.stack(list(tf.data.Dataset.range(count).map(theirs).as_numpy_iterator()))
    generator = rng(3)
    actual = np.stack([inception_box(*size, area, ratio, generator) for _ in range(count)])
    ends = actual[:, :2] + actual[:, 2:]
    assert (actual >= 0).all() and (ends <= size).all()
    seen = [np.c_[boxes, boxes[:, 2] * boxes[:, 3]] for boxes in (actual, expected)]
    assert (stats.ks_2samp(*seen).statistic < 1.95 * (2 / count) ** 0.5).all()


def test_without_a_fitting_box_the_whole_image_is_taken():
    assert inception_box(10, 1000, (0.9, 1.0), (0.75, 1.33), rng(0)) == (0, 0, 10, 1000)


def test_every_window_is_equally_likely():
    generator = rng(0)
    tops = [random_window((12, 9), (8, 9), generator)[0] for _ in range(2000)]
    assert abs(np.bincount(tops, minlength=5) - 400).max() < 5 * 20 and max(tops) == 4
    assert center_window((13, 12), (8, 9)) == (2, 1, 8, 9)


DEIT = {"area": (0.08, 1.0), "ratio": (3 / 4, 4 / 3)}


def test_random_resized_boxes_are_larger_than_inceptions():
    """Of a photograph of 4 : 3, torchvision's boxes show 43 % and TensorFlow's 37 %."""
    for crop, expected in (("random_resized", 0.43), ("inception", 0.37)):
        transform, generator = Transform(8, crop, **DEIT), rng(0)
        boxes = np.array([CROPS[crop](transform, (375, 500), generator)[0] for _ in range(4000)])
        assert transform.is_random
        assert (boxes >= 0).all() and (boxes[:, :2] + boxes[:, 2:] <= (375, 500)).all()
        assert abs(boxes[:, 2:].prod(1).mean() / (375 * 500) - expected) < 0.01, crop


def test_random_resized_areas_are_uniform_where_every_box_fits():
    """A square, and boxes of at most a half: none is drawn again, so areas are uniform."""
    area, ratio = (0.08, 0.5), (3 / 4, 4 / 3)
    generator = rng(1)
    boxes = np.array([random_resized_box(400, 400, area, ratio, generator) for _ in range(4000)])
    shares = boxes[:, 2:].prod(1) / 400**2
    ratios = np.log(boxes[:, 3] / boxes[:, 2]) / np.log(4 / 3)
    for values, low, high in ((shares, *area), (ratios, -1, 1)):
        quantiles = np.quantile(values, np.linspace(0, 1, 9))
        np.testing.assert_allclose(quantiles, np.linspace(low, high, 9), atol=0.03 * (high - low))
    places = boxes[:, :2] / (400 - boxes[:, 2:])
    np.testing.assert_allclose(places.mean(0), 0.5, atol=0.02)
    assert places.min() == 0 and places.max() == 1


@pytest.mark.parametrize(
    "size, expected",
    [((10, 1000), (0, 493, 10, 13)), ((1000, 10), (493, 0, 13, 10)), ((9, 10), (0, 0, 9, 10))],
)
def test_without_a_fitting_box_torchvision_takes_the_middle(size, expected):
    whole = (1.0, 1.0), (3 / 4, 4 / 3)
    boxes = {random_resized_box(*size, *whole, rng(index)) for index in range(40)}
    assert expected in boxes
    assert size == (9, 10) or boxes == {expected}
