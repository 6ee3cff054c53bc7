"""What the checks accept, and that each refusal names what came and what to do."""

import numpy as np
import pytest

from keras_vit.data import ImageDataset, check_dataset, check_images, check_labels

pytestmark = pytest.mark.any_backend

PIXELS = np.full((4, 6, 5, 3), 0.5, "float32")


def dataset(**changes):
    values = {
        "name": "toy",
        "train_images": np.zeros((3, 4, 4, 1), "uint8"),
        "train_labels": np.array([0, 1, 0]),
        "test_images": np.zeros((2, 4, 4, 1), "uint8"),
        "test_labels": np.array([1, 0]),
        "class_names": ("cat", "dog"),
    }
    return ImageDataset(**{**values, **changes})


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64"])
def test_images_come_back_as_uint8_or_float32(dtype):
    checked = check_images(PIXELS.astype(dtype))
    assert checked.dtype == ("uint8" if dtype == "uint8" else "float32")
    np.testing.assert_allclose(checked, PIXELS.astype(dtype))


@pytest.mark.parametrize(
    "images, expected",
    [
        (np.zeros((3, 4, 4), "uint8"), ["my_images", r"images\[..., None\]", r"\(3, 4, 4\)"]),
        (
            np.zeros((4, 4), "uint8"),
            ["my_images", r"\(images, height, width, channels\)", r"\(4, 4\)"],
        ),
        (np.zeros((0, 4, 4, 1), "uint8"), ["my_images", "at least one image", r"\(0, 4, 4, 1\)"]),
        (np.zeros((2, 4, 4, 1), "int64"), ["my_images", "uint8 in 0..255", "dtype int64"]),
        (np.zeros((2, 4, 4, 1), bool), ["my_images", "dtype bool"]),
        (PIXELS * 510, ["my_images", "from 255 to 255", "Divide by 255"]),
        (PIXELS * 2 - 2, ["my_images", "from -1 to -1", r"\(images \+ 1\) / 2"]),
    ],
)
def test_bad_images(images, expected):
    for text in expected:
        with pytest.raises(ValueError, match=text):
            check_images(images, "my_images")


def test_non_finite_pixels_are_counted_and_located():
    images = PIXELS.copy()
    images[2, 0, 0] = np.nan
    images[3, 1, 1, 0] = np.inf
    with pytest.raises(ValueError, match="3 NaN and 1 infinite pixels, the first in image 2"):
        check_images(images)


@pytest.mark.parametrize("dtype", ["int64", "uint8", "float32", "bool"])
def test_labels_come_back_as_int32(dtype):
    checked = check_labels(np.array([0, 1, 1], dtype), 2)
    assert checked.dtype == np.int32
    assert checked.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    "labels, expected",
    [
        ([0, 1, 7, 9], r"test_labels must lie in 0..2 .*2 labels outside.*\[7, 9\].*index 2"),
        ([0, -1], r"values \[-1\], the first at index 1"),
        (list(range(20)), r"values \[3, 4, 5, 6, 7, ...\]"),
        ([0.0, 1.5, np.nan], r"whole numbers.*values \[1.5, nan\], the first at index 1"),
        (np.array([np.inf]), "outside, with values"),
        (np.eye(3), r"argmax.*shape \(3, 3\) and num_classes=3"),
        (np.zeros((3, 1)), r"reshape\(-1\).*\(3, 1\)"),
        (np.zeros(()), r"shape \(\)"),
        (["cat", "dog"], "not names.*dtype <U3"),
    ],
)
def test_bad_labels(labels, expected):
    with pytest.raises(ValueError, match=expected):
        check_labels(np.asarray(labels), 3, "test_labels")


def test_a_good_dataset_is_normalised():
    given = dataset(train_images=np.zeros((3, 4, 4, 1)), train_labels=np.array([0.0, 1.0, 0.0]))
    checked = check_dataset(given)
    assert checked.train_images.dtype == np.float32
    assert checked.train_labels.dtype == checked.test_labels.dtype == np.int32
    assert checked.num_classes == 2
    assert checked.image_shape == (4, 4, 1)
    assert "train=3, test=2, image=4x4x1" in repr(checked)


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({"train_labels": np.array([0, 1])}, "same length.*3 images and 2 labels"),
        ({"test_images": np.zeros((2, 5, 4, 1), "uint8")}, r"\(4, 4, 1\) and \(5, 4, 1\)"),
        ({"class_names": ()}, r"at least one class.*\(\)"),
        ({"test_labels": np.array([0, 2])}, r"test_labels must lie in 0..1.*\[2\]"),
        ({"test_images": np.zeros((0, 4, 4, 1), "uint8")}, "test_images must hold at least one"),
        ({"train_images": np.zeros((3, 4, 4), "uint8")}, "train_images must have shape"),
    ],
)
def test_bad_datasets(changes, expected):
    with pytest.raises(ValueError, match=expected):
        check_dataset(dataset(**changes))
