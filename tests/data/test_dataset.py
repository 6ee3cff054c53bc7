"""Datasets in memory and archives of their arrays: what is taken, and how all else is refused."""

import io
import zipfile

import numpy as np
import pytest

from keras_vit.data import ImageDataset, load
from tests.support import refuses

pytestmark = pytest.mark.any_backend

IMAGES = np.random.default_rng(0).integers(0, 256, (20, 6, 5, 3), dtype="uint8")
LABELS = np.arange(20) % 2


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


def save(tmp_path, **arrays):
    np.savez(tmp_path / "toy.npz", **arrays)
    return tmp_path / "toy.npz"


def test_a_good_dataset_is_normalised():
    for dtype in ("float16", "float32", "float64"):
        images = np.full((3, 4, 4, 1), 0.5, dtype)
        found = dataset(train_images=images, train_labels=np.array([0.0, 1.0, 0.0], "float32"))
        assert found.train_images.dtype == np.float32 and (found.train_images == 0.5).all()
        assert found.train_labels.dtype == found.test_labels.dtype == np.int32
    assert (found.num_classes, found.image_shape) == (2, (4, 4, 1))
    assert dataset().train_images.dtype == np.uint8
    assert "train=3, test=2, image=4x4x1" in repr(found)


PIXELS = np.full((3, 4, 4, 1), 0.5, "float32")


@pytest.mark.parametrize(
    "images, expected",
    [
        (
            np.zeros((3, 1, 8, 8), "uint8"),
            r"channels last.*moveaxis\(images, 1, -1\)\. Received: shape \(3, 1, 8, 8\)",
        ),
        (np.zeros((3, 3, 16, 20), "uint8"), r"train_images must have their channels last"),
        (PIXELS[..., 0], r"train_images must have shape .*images\[..., None\].*\(3, 4, 4\)"),
        (PIXELS[:0], r"none of them may be 0.*\(0, 4, 4, 1\)"),
        (PIXELS.astype("int64"), r"uint8 in 0..255 .*dtype int64"),
        (PIXELS.astype(bool), "dtype bool"),
        (PIXELS * 510, r"from 255 to 255, .*\[0, 0, 0, 0\]; divide by 255"),
        (PIXELS * 2 - 2, r"from -1 to -1.*\(images \+ 1\) / 2"),
        (np.where(np.arange(3)[:, None, None, None] == 2, np.nan, PIXELS), r"nan .*\[2, 0, 0, 0\]"),
        (np.where(np.arange(3)[:, None, None, None] == 1, np.inf, PIXELS), r"inf, .*\[1, 0, 0, 0"),
    ],
)
def test_bad_images(images, expected):
    refuses(expected, dataset, train_images=images)


def test_images_that_are_nearly_black_are_warned_of():
    """As masks and thresholds give bytes, and two divisions by 255 floats."""
    bits = (np.arange(48).reshape(3, 4, 4, 1) % 2).astype("uint8")
    for images, rule in ((bits, r"bytes of 0\.\.255"), (bits / 255, r"floats in \[0, 1\]")):
        with pytest.warns(UserWarning, match=f"train_images are {rule}.*multiply by 255"):
            dataset(train_images=images)


@pytest.mark.parametrize(
    "labels, expected",
    [
        ([0, 7, 9], r"test_labels must be whole numbers in 0..1.*2 others, the first is 7 at.* 1"),
        ([-1, 0, 0], "the first is -1 at index 0"),
        ([0.0, 1.0, 0.5], "the first is 0.5 at index 2"),
        ([0.0, 1.0, np.nan], "the first is nan at index 2"),
        ([0.0, 1.0, np.inf], "the first is inf at index 2"),
        ([0, 10**9, 0], r"Received: 1 others, the first is 1000000000 .*numpy.unique"),
        (np.eye(3), r"argmax.*shape \(3, 3\)"),
        (np.zeros((3, 1)), r"reshape\(-1\).*\(3, 1\)"),
        (0, r"shape \(\)"),
        (["cat", "dog", "dog"], "dtype <U3"),
        ([0, 1], r"one label for each image. Received: 2 labels.*\(3, 4, 4, 1\)"),
    ],
)
def test_bad_labels(labels, expected):
    refuses(expected, dataset, test_images=PIXELS, test_labels=labels)


def test_parts_that_do_not_fit_each_other():
    refuses(r"\(4, 4, 1\) and \(5, 4, 1\)", dataset, test_images=np.zeros((2, 5, 4, 1), "uint8"))
    for names in ((), "ab", [0, 1], np.array(["a", "b"]), ("a", None), None):
        refuses("a list or tuple that names each class, as text", dataset, class_names=names)


@pytest.mark.parametrize(
    "keys", ["x_{0} y_{0} x_{1} y_{1}", "{0}_images {0}_labels {1}_images {1}_labels"]
)
def test_train_and_test_arrays(tmp_path, keys):
    arrays = (IMAGES[:15], LABELS[:15], IMAGES[15:], LABELS[15:])
    toy = load(save(tmp_path, **dict(zip(keys.format("train", "test").split(), arrays))))
    np.testing.assert_array_equal(toy.train_images, IMAGES[:15])
    np.testing.assert_array_equal(toy.test_labels, LABELS[15:])
    assert toy.name == "toy" and toy.class_names == ("0", "1")


@pytest.mark.parametrize("keys", [("x", "y"), ("images", "labels")])
def test_one_set_is_split(tmp_path, keys):
    toy = load(save(tmp_path, **dict(zip(keys, (IMAGES, LABELS)))), test_fraction=0.3)
    assert np.bincount(toy.test_labels).tolist() == [3, 3]
    both = np.concatenate([toy.train_images, toy.test_images]).reshape(20, -1)
    assert sorted(both.tolist()) == sorted(IMAGES.reshape(20, -1).tolist())


def test_images_of_both_parts_are_warned_of(tmp_path):
    arrays = {"x_train": IMAGES, "y_train": LABELS, "x_test": IMAGES[:3], "y_test": LABELS[:3]}
    for options in ({}, {"image_size": 12}):  # as they are, and resized
        with pytest.warns(UserWarning, match="should not be trained on. Received: 3 images twice"):
            load(save(tmp_path, **arrays), **options)


def test_names_shapes_and_dtypes_are_normalised(tmp_path):
    for names in (np.array(["cat", "dog", "eel"]), np.array([b"cat", b"dog"])):
        toy = load(save(tmp_path, x=IMAGES, y=LABELS, class_names=names))
        assert toy.class_names[:2] == ("cat", "dog") and toy.num_classes == len(names)
    arrays = {"x": IMAGES[..., 0] / 255, "y": LABELS[:, None].astype("float32")}
    toy = load(save(tmp_path, **arrays), image_size=9, channels=3)
    assert toy.image_shape == (9, 9, 3)
    assert toy.train_images.dtype == np.float32 and toy.train_images.max() <= 1
    assert toy.train_labels.dtype == np.int32 and toy.train_labels.ndim == 1


@pytest.mark.parametrize(
    "arrays, expected",
    [
        ({"x": IMAGES}, r"x_train, y_train, x_test, y_test or .*Received: keys x; rename"),
        ({}, "Received: keys none"),
        ({"x": IMAGES, "y": LABELS[:19]}, r"y in .*toy\.npz must have one label.*19.*\(20, 6"),
        ({"x": IMAGES, "y": LABELS * 10**9}, r"0..99999.*1000000000 .*numpy.unique"),
        ({"x": IMAGES[:, 0, 0], "y": LABELS}, r"train_images must have shape.*\(16, 3\)"),
        ({"x": IMAGES[:0], "y": LABELS[:0]}, "at least one training image"),
        ({"x": IMAGES, "y": LABELS, "class_names": np.arange(2)}, "class_names in .*list of at mo"),
        ({"x": IMAGES, "y": LABELS, "class_names": np.array(["a"])}, "in 0..0.*the first is 1"),
        ({"x": np.array([IMAGES, None], object), "y": LABELS}, "without object arrays"),
        (
            {"x_train": IMAGES, "y_train": LABELS, "x_test": IMAGES, "y_test": LABELS * 5},
            r"test_labels must be .* in 0..1\..*the first is 5",
        ),
    ],
)
def test_bad_archives(tmp_path, arrays, expected):
    refuses(expected, load, save(tmp_path, **arrays))


def test_files_that_are_no_archive(tmp_path):
    path = save(tmp_path, x=IMAGES, y=LABELS)
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    for data in (b"", b"hello", whole[: len(whole) // 2], bytes(damaged)):
        path.write_bytes(data)
        refuses(r"toy\.npz cannot be read as a \.npz archive", load, path)
    np.save(tmp_path / "array.npy", IMAGES)
    (tmp_path / "array.npy").rename(path)
    refuses("not a zip file", load, path)


def test_archives_that_claim_more_than_they_hold_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "zeros.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", bytes(4 * 10**6))
    refuses(r"zeros\.npz cannot be read.*that claim to hold", load, tmp_path / "zeros.npz")
    for shape in ((2**40, 3), (2**28, 3)):  # more than any memory, and more than this file
        header = io.BytesIO()
        claim = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(header, claim)
        with zipfile.ZipFile(tmp_path / "claims.npz", "w") as archive:
            archive.writestr("x.npy", header.getvalue())
        refuses(r"claims\.npz cannot be read as a \.npz", load, tmp_path / "claims.npz")


def test_arrays_of_an_archive_that_are_not_read_are_named(tmp_path):
    images, labels = np.zeros((4, 6, 6, 1), np.uint8), np.array([0, 1, 0, 1])
    arrays = {"x_train": images, "y_train": labels, "x_test": images, "y_test": labels}
    np.savez(tmp_path / "a.npz", **arrays, x_val=images, sample_weight=labels)
    with pytest.warns(UserWarning, match=r"Received: also sample_weight, x_val"):
        load(tmp_path / "a.npz")
