"""Mixup and CutMix: labels follow pixels, shares have their distribution, both libraries agree."""

import numpy as np
import pytest

from keras_vit.data.mixing import _shares, cutmix, mix, mixup

pytestmark = pytest.mark.any_backend

BATCH, CLASSES = 6, 5


def batch(seed=0, size=(20, 30)):
    images = np.random.default_rng(seed).normal(size=(BATCH, *size, 3)).astype("float32")
    return images, np.eye(BATCH, CLASSES, dtype="float32")


def keys(count):
    return [np.array([4, step]) for step in range(count)]


@pytest.mark.parametrize("parameters", [(0.2, 0.0), (0.0, 1.0), (0.5, 0.3), (0.0, 0.0)])
def test_tensorflow_mixes_alike(parameters):
    tf = pytest.importorskip("tensorflow")
    images, labels = batch()
    run = tf.function(lambda key: mix(tf.constant(images), tf.constant(labels), key, *parameters))
    for key in keys(50):
        expected = mix(images, labels, key, *parameters)
        for actual, wanted in zip(run(key), expected):
            np.testing.assert_array_equal(actual, wanted)
            assert wanted.dtype == np.float32


def test_mixup_is_a_weighted_mean_with_the_image_before():
    images, labels = batch()
    for key in keys(20):
        mixed, mixed_labels = mixup(images, labels, key, 0.5)
        a = mixed_labels[0, 0]  # the first image's own class, which its partner does not have
        assert 0.5 <= a <= 1
        for actual, x in ((mixed, images), (mixed_labels, labels)):
            expected = a * x + (1 - a) * np.roll(x, 1, axis=0)
            np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_cutmix_puts_in_a_box_and_labels_follow_its_area():
    images, labels = batch()
    for key in keys(40):
        mixed, mixed_labels = cutmix(images, labels, key, 1.0)
        foreign = (mixed == np.roll(images, 1, axis=0)).all((0, 3))
        own = (mixed == images).all((0, 3))
        assert (foreign ^ own).all()
        rows, columns = foreign.any(1), foreign.any(0)
        assert foreign[np.ix_(rows, columns)].all() and foreign.sum() == rows.sum() * columns.sum()
        np.testing.assert_allclose(mixed_labels[0, 0], 1 - foreign.mean(), atol=1e-6)


@pytest.mark.parametrize("size", [(7, 9), (32, 32), (1, 1)])
def test_labels_keep_their_sum(size):
    images, labels = batch(size=size)
    for key in keys(20):
        mixed, mixed_labels = mix(images, labels, key, 0.2, 1.0)
        assert mixed.shape == images.shape
        np.testing.assert_allclose(mixed_labels.sum(), labels.sum(), rtol=1e-6)


CLOSED_FORMS = {  # distribution functions of Beta(alpha, alpha)
    0.5: lambda x: 2 / np.pi * np.arcsin(np.sqrt(x)),
    1.0: lambda x: x,
    2.0: lambda x: x**2 * (3 - 2 * x),
    3.0: lambda x: x**3 * (10 - 15 * x + 6 * x**2),
}


@pytest.mark.parametrize("alpha", CLOSED_FORMS)
def test_shares_have_the_beta_distribution(alpha):
    shares = _shares(alpha)
    expected = (np.arange(len(shares)) + 0.5) / len(shares)
    np.testing.assert_allclose(2 * CLOSED_FORMS[alpha](shares), expected, atol=1e-6)


@pytest.mark.parametrize("alpha", [0.05, 0.2, 0.8, 7.0])
def test_shares_have_the_variance_of_the_beta_distribution(alpha):
    """1 / (4 (2 alpha + 1)), about a half."""
    variance = ((_shares(alpha) - 0.5) ** 2).mean()
    np.testing.assert_allclose(variance, 1 / (4 * (2 * alpha + 1)), rtol=1e-3)


def test_steps_draw_different_shares_and_the_same_again():
    images, labels = batch()
    shares = [float(mixup(images, labels, key, 1.0)[1][0, 0]) for key in keys(300)]
    assert len(set(shares)) > 290
    assert abs(np.mean(shares) - 0.75) < 5 * (1 / 48 / 300) ** 0.5
    assert shares[7] == float(mixup(images, labels, np.array([4, 7]), 1.0)[1][0, 0])


def test_with_both_each_takes_half_of_the_steps():
    images, labels = batch()
    boxes = [np.isin(mix(images, labels, key, 1.0, 1.0)[0], images).all() for key in keys(200)]
    assert 0.3 < np.mean(boxes) < 0.7


@pytest.mark.parametrize("alpha", [0, -1.0, float("nan"), "half"])
def test_a_bad_parameter_is_named(alpha):
    with pytest.raises(ValueError, match="alpha must be a positive number"):
        mixup(*batch(), np.array([0, 0]), alpha)


def test_bytes_and_class_numbers_are_refused():
    images, labels = batch()
    with pytest.raises(ValueError, match="one-hot"):
        mixup(images, labels.argmax(1), np.array([0, 0]), 0.2)
    with pytest.raises(ValueError, match="uint8"):
        cutmix(images.astype("uint8"), labels, np.array([0, 0]), 0.2)
