"""Archives of arrays: every layout, and every way to be wrong."""

import io
import zipfile

import numpy as np
import pytest

from keras_vit.data import load

pytestmark = pytest.mark.any_backend

IMAGES = np.random.default_rng(0).integers(0, 256, (20, 6, 5, 3), dtype="uint8")
LABELS = np.arange(20) % 2


def save(tmp_path, **arrays):
    np.savez(tmp_path / "toy.npz", **arrays)
    return tmp_path / "toy.npz"


@pytest.mark.parametrize(
    "keys",
    [
        ("x_train", "y_train", "x_test", "y_test"),
        ("train_images", "train_labels", "test_images", "test_labels"),
    ],
)
def test_train_and_test_arrays(tmp_path, keys):
    arrays = (IMAGES[:15], LABELS[:15], IMAGES[15:], LABELS[15:])
    toy = load(save(tmp_path, **dict(zip(keys, arrays))))
    np.testing.assert_array_equal(toy.train_images, IMAGES[:15])
    np.testing.assert_array_equal(toy.test_labels, LABELS[15:])
    assert toy.name == "toy" and toy.class_names == ("0", "1")


@pytest.mark.parametrize("keys", [("x", "y"), ("images", "labels")])
def test_one_set_is_split(tmp_path, keys):
    toy = load(save(tmp_path, **dict(zip(keys, (IMAGES, LABELS)))), test_fraction=0.3)
    assert np.bincount(toy.test_labels).tolist() == [3, 3]
    both = np.concatenate([toy.train_images, toy.test_images]).reshape(20, -1)
    assert sorted(both.tolist()) == sorted(IMAGES.reshape(20, -1).tolist())


@pytest.mark.parametrize("names", [np.array(["cat", "dog", "eel"]), np.array([b"cat", b"dog"])])
def test_class_names(tmp_path, names):
    toy = load(save(tmp_path, x=IMAGES, y=LABELS, class_names=names))
    assert toy.class_names[:2] == ("cat", "dog") and toy.num_classes == len(names)


def test_shapes_and_dtypes_are_normalised(tmp_path):
    toy = load(
        save(tmp_path, x=IMAGES[..., 0] / 255, y=LABELS[:, None].astype("float32")),
        image_size=9,
        channels=3,
    )
    assert toy.image_shape == (9, 9, 3)
    assert toy.train_images.dtype == np.float32 and toy.train_images.max() <= 1
    assert toy.train_labels.dtype == np.int32 and toy.train_labels.ndim == 1


@pytest.mark.parametrize(
    "arrays, expected",
    [
        ({"x": IMAGES}, r"x_train, y_train, x_test, y_test or .*Received: keys x; rename"),
        ({}, "Received: keys none"),
        ({"x_train": IMAGES, "y_train": LABELS}, "Received: keys x_train, y_train"),
        ({"x": IMAGES, "y": LABELS[:19]}, r"x in .*toy\.npz must have as many.*20.*19"),
        ({"x": IMAGES, "y": LABELS + 0.5}, r"y in .*toy\.npz must be whole numbers"),
        ({"x": IMAGES, "y": np.eye(20)}, r"y in .*argmax"),
        ({"x": IMAGES, "y": LABELS - 1}, r"must lie in .*values \[-1\]"),
        ({"x": IMAGES.astype(int), "y": LABELS}, "train_images must be uint8.*dtype int64"),
        ({"x": IMAGES / 1.0, "y": LABELS}, "Divide by 255"),
        ({"x": IMAGES[:, 0, 0], "y": LABELS}, r"train_images must have shape.*\(16, 3\)"),
        ({"x": IMAGES[:0], "y": LABELS[:0]}, "at least one training image"),
        ({"x": IMAGES, "y": LABELS, "class_names": np.arange(2)}, "class_names in .*list of text"),
        ({"x": IMAGES, "y": LABELS, "class_names": np.array(["a"])}, r"0..0 for 1 classes.*\[1\]"),
        ({"x": np.array([IMAGES, None], object), "y": LABELS}, "object arrays are not read"),
    ],
)
def test_bad_archives(tmp_path, arrays, expected):
    with pytest.raises(ValueError, match=expected):
        load(save(tmp_path, **arrays))


def test_a_test_label_unknown_to_train(tmp_path):
    path = save(tmp_path, x_train=IMAGES, y_train=LABELS, x_test=IMAGES, y_test=LABELS * 5)
    with pytest.raises(ValueError, match=r"test_labels must lie in 0..1 .*values \[5\]"):
        load(path)


def test_files_that_are_no_archive(tmp_path):
    path = save(tmp_path, x=IMAGES, y=LABELS)
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    for data in (b"", b"hello", whole[: len(whole) // 2], bytes(damaged)):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"toy\.npz cannot be read as a \.npz archive"):
            load(path)
    np.save(tmp_path / "array.npy", IMAGES)
    (tmp_path / "array.npy").rename(path)
    with pytest.raises(ValueError, match="not a zip archive"):
        load(path)


def test_archives_that_claim_more_than_they_hold_are_refused(tmp_path):
    zeros = np.zeros((4000, 100, 100, 3), "uint8")
    np.savez_compressed(tmp_path / "zeros.npz", x=zeros, y=LABELS)
    with pytest.raises(ValueError, match=r"zeros\.npz cannot be read.*that claim to hold"):
        load(tmp_path / "zeros.npz")
    header = io.BytesIO()
    claim = {"descr": "|u1", "fortran_order": False, "shape": (2**40, 3)}
    np.lib.format.write_array_header_1_0(header, claim)
    with zipfile.ZipFile(tmp_path / "claims.npz", "w") as archive:
        archive.writestr("x.npy", header.getvalue())
    with pytest.raises(ValueError, match=r"x\.npy has \d+ bytes and claims \(1099511627776, 3\)"):
        load(tmp_path / "claims.npz")


def test_identifiers_are_no_labels(tmp_path):
    with pytest.raises(ValueError, match=r"y in .*Received: 1000000000. Are they identifiers"):
        load(save(tmp_path, x=IMAGES, y=LABELS * 10**9))
