"""Mixup and CutMix, whose labels follow pixels."""

import numpy as np
import pytest

from keras_vit.data.mixing import cutmix, mix, mixup

pytestmark = pytest.mark.any_backend

BATCH, CLASSES = 6, 5


def batch(seed=0, size=(20, 30)):
    images = np.random.default_rng(seed).integers(0, 256, (BATCH, *size, 3), "uint8")
    return images, np.eye(BATCH, CLASSES, dtype="float32")


def generators(count):
    return [np.random.default_rng([4, step]) for step in range(count)]


def test_mixup_is_a_weighted_mean_with_the_image_before():
    images, labels = batch()
    for rng in generators(20):
        mixed, mixed_labels = mixup(images, labels, rng, 0.5)
        a = mixed_labels[0, 0]  # the first image's own class, which its partner does not have
        assert 0.5 <= a <= 1 and mixed.dtype == mixed_labels.dtype == np.float32
        for actual, x in ((mixed, images), (mixed_labels, labels)):
            expected = a * x + (1 - a) * np.roll(x, 1, axis=0)
            np.testing.assert_allclose(actual, expected, atol=1e-4)


def test_cutmix_puts_in_a_box_and_labels_follow_its_area():
    images, labels = batch()
    before = images.copy()
    for rng in generators(40):
        mixed, mixed_labels = cutmix(images, labels, rng, 1.0)
        foreign = (mixed == np.roll(images, 1, axis=0)).all((0, 3))
        own = (mixed == images).all((0, 3))
        assert (foreign ^ own).all() and mixed.dtype == np.uint8
        rows, columns = foreign.any(1), foreign.any(0)
        assert foreign[np.ix_(rows, columns)].all() and foreign.sum() == rows.sum() * columns.sum()
        np.testing.assert_allclose(mixed_labels[0, 0], 1 - foreign.mean(), atol=1e-6)
    np.testing.assert_array_equal(images, before)


@pytest.mark.parametrize("size", [(7, 9), (32, 32), (1, 1)])
def test_labels_keep_their_sum(size):
    images, labels = batch(size=size)
    for rng in generators(20):
        mixed, mixed_labels = mix((images, labels, []), rng, 0.2, 1.0)[:2]
        assert mixed.shape == images.shape and mixed_labels.dtype == np.float32
        np.testing.assert_allclose(mixed_labels.sum(), labels.sum(), rtol=1e-6)


def test_shares_have_their_distribution():
    """max(a, 1 - a) of a uniform a has the mean 3/4; Beta(0.2, 0.2) the variance 1 / 5.6."""
    images, labels = batch()
    shares = [float(mixup(images, labels, rng, 1.0)[1][0, 0]) for rng in generators(300)]
    assert abs(np.mean(shares) - 0.75) < 5 * (1 / 48 / 300) ** 0.5
    wide = [float(mixup(images, labels, rng, 0.2)[1][0, 0]) for rng in generators(300)]
    assert abs(np.mean((np.array(wide) - 0.5) ** 2) - 1 / (4 * 1.4)) < 0.02


def test_with_both_each_takes_half_of_the_batches():
    given = (*batch(), [])
    boxes = [mix(given, rng, 1.0, 1.0)[0].dtype == np.uint8 for rng in generators(200)]
    assert 0.3 < np.mean(boxes) < 0.7
    assert mix(given, np.random.default_rng(0)) is given
