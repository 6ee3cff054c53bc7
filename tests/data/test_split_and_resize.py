"""Splits are stratified, fixed, disjoint and complete; sizes and channels follow Pillow."""

import keras
import numpy as np
import pytest
from PIL import Image

from keras_vit.data import resize
from keras_vit.data.resize import (
    check_memory,
    convert_channels,
    parse_image_size,
    resize_images,
)
from keras_vit.data.split import stratified_split

pytestmark = pytest.mark.any_backend


@pytest.mark.parametrize("fraction", [0.01, 0.2, 0.5, 0.99])
def test_every_class_keeps_its_share(fraction):
    labels = np.random.default_rng(0).permutation(np.repeat([0, 1, 2, 3], [100, 40, 2, 1]))
    train, test = stratified_split(labels, fraction, seed=3)
    assert sorted([*train, *test]) == list(range(143))
    assert (np.diff(train) > 0).all() and (np.diff(test) > 0).all()
    counts = np.bincount(labels[test], minlength=4)
    assert counts[3] == 0, "the only image of a class goes to train"
    assert counts[2] == 1
    for count, total in zip(counts[:2], (100, 40)):
        assert 1 <= count <= total - 1
        assert abs(count - total * fraction) <= 1


def test_a_split_is_fixed_by_its_seed():
    labels = np.arange(60) % 3
    first, again, other = (stratified_split(labels, 0.3, seed)[1] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert first.tolist() != other.tolist()


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, float("nan"), "0.2", None])
def test_bad_fractions(fraction):
    with pytest.raises(ValueError, match=r"between 0 and 1.*Received"):
        stratified_split(np.array([0, 0]), fraction, 0)


def test_no_class_to_split():
    with pytest.raises(ValueError, match=r"at least two images. Received: 3 images"):
        stratified_split(np.array([0, 1, 2]), 0.5, 0)


@pytest.mark.parametrize("value, size", [(None, None), (8, (8, 8)), ((4, 6), (4, 6))])
def test_image_sizes(value, size):
    assert parse_image_size(value) == size
    assert parse_image_size(np.int64(3)) == (3, 3)


@pytest.mark.parametrize("value", [0, -4, 2.5, "224", True, (1, 2, 3), (8, 0), (8,), [None, 2]])
def test_bad_image_sizes(value):
    with pytest.raises(ValueError, match=r"positive whole number of pixels.*Received"):
        parse_image_size(value)


def test_memory_limit_tells_how_large(monkeypatch):
    check_memory((1000, 224, 224, 3))
    with pytest.raises(ValueError, match=r"50000 images of 224x224x3, which is 7.01 GiB. Lower"):
        check_memory((50_000, 224, 224, 3))
    monkeypatch.setattr(resize, "MAX_BYTES", 63)
    with pytest.raises(ValueError, match="image_size"):
        check_memory((1, 4, 4, 1), itemsize=4)


@pytest.mark.parametrize("size", [(5, 9), (20, 31)])
@pytest.mark.parametrize("channels", [1, 2, 3])
def test_float_resize_is_antialiased_bilinear(size, channels):
    images = np.random.default_rng(0).random((2, 12, 14, channels), dtype="float32")
    expected = keras.ops.image.resize(
        images, size, "bilinear", antialias=True, data_format="channels_last"
    )
    actual = resize_images(images, size)
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, keras.ops.convert_to_numpy(expected), atol=2e-5)
    assert actual.min() >= 0 and actual.max() <= 1


def test_uint8_resize_is_pillows():
    images = np.random.default_rng(0).integers(0, 256, (2, 12, 14, 3), dtype="uint8")
    expected = [np.asarray(Image.fromarray(i).resize((9, 5), Image.BILINEAR)) for i in images]
    actual = resize_images(images, (5, 9))
    assert actual.dtype == np.uint8
    np.testing.assert_array_equal(actual, expected)
    assert resize_images(images, None) is images
    assert resize_images(images, (12, 14)) is images


def test_channels_follow_pillow():
    images = np.random.default_rng(0).integers(0, 256, (3, 6, 6, 3), dtype="uint8")
    luma = np.stack([np.asarray(Image.fromarray(i).convert("L")) for i in images])
    gray = convert_channels(images, 1)
    np.testing.assert_array_equal(gray[..., 0], luma)
    np.testing.assert_array_equal(convert_channels(gray, 3), np.repeat(gray, 3, -1))
    floats = convert_channels(images.astype("float32") / 255, 1)
    assert floats.dtype == np.float32 and floats.shape == (3, 6, 6, 1)
    np.testing.assert_allclose(floats[..., 0], luma / 255, atol=1 / 255)
    assert convert_channels(images, None) is images


def test_other_channel_counts_are_refused():
    with pytest.raises(ValueError, match="4 channels and channels=3"):
        convert_channels(np.zeros((1, 2, 2, 4), "uint8"), 3)
