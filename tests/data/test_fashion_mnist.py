"""IDX files round trip, damage is named, and nothing reaches for the network."""

import gzip
import socket
import struct
import sys

import numpy as np
import pytest

from keras_vit.data import load
from keras_vit.data.formats import FASHION_MNIST_CLASSES, read_idx
from tests.data.pipeline_cases import write_prepared

pytestmark = pytest.mark.any_backend

NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def idx_bytes(array):
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype("uint8").tobytes()


def write_set(folder, zipped):
    rng = np.random.default_rng(0)
    arrays = []
    for name, count in zip(NAMES, (30, 30, 10, 10)):
        is_images = "images" in name
        array = rng.integers(0, 256 if is_images else 10, (count, 28, 28)[: 3 if is_images else 1])
        arrays.append(array)
        data = idx_bytes(array)
        (folder / (name + ".gz" * zipped)).write_bytes(gzip.compress(data) if zipped else data)
    return arrays


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a test of data on disk tried to use the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("subfolder", ["", "fashion_mnist", "fashion-mnist"])
def test_idx_files_round_trip(tmp_path, zipped, subfolder):
    folder = tmp_path / subfolder
    folder.mkdir(exist_ok=True)
    x_train, y_train, x_test, y_test = write_set(folder, zipped)
    fashion = load("fashion_mnist", data_dir=str(tmp_path))
    np.testing.assert_array_equal(fashion.train_images[..., 0], x_train)
    np.testing.assert_array_equal(fashion.train_labels, y_train)
    np.testing.assert_array_equal(fashion.test_images[..., 0], x_test)
    np.testing.assert_array_equal(fashion.test_labels, y_test)
    assert fashion.class_names == FASHION_MNIST_CLASSES and fashion.num_classes == 10
    assert fashion.train_images.dtype == np.uint8 and fashion.train_images.flags.writeable


IMAGES = idx_bytes(np.zeros((3, 4, 5)))


@pytest.mark.parametrize(
    "name, data, expected",
    [
        ("cut", IMAGES[:-1], r"cut is truncated.*\(3, 4, 5\), 60 bytes.*Received: 59"),
        ("long", IMAGES + b"x", "long is too long.*Received: 61"),
        ("header", IMAGES[:10], "header is truncated inside its header of 16 bytes.*10 bytes"),
        ("magic", b"\x89PNG" + IMAGES, "magic is not an IDX file.*00 00 08 03.*89 50 4e 47"),
        ("labels", idx_bytes(np.zeros(3)), "labels is not an IDX file.*00 00 08 01"),
        ("float", b"\0\0\x0d\x03" + IMAGES[4:], "float is not an IDX file.*00 00 0d 03"),
        ("empty", b"", "empty is not an IDX file.*an empty file"),
        (
            "cut.gz",
            gzip.compress(IMAGES, mtime=0)[:-9],
            r"cut\.gz cannot be read.*truncated or damaged",
        ),
        ("raw.gz", IMAGES, r"raw\.gz cannot be read"),
    ],
)
def test_damaged_idx_files_are_named(tmp_path, name, data, expected):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=expected):
        read_idx(tmp_path / name, rank=3)


def test_damage_stops_load_and_counts_must_agree(tmp_path):
    write_set(tmp_path, zipped=False)
    (tmp_path / NAMES[1]).write_bytes(idx_bytes(np.zeros(29)))
    with pytest.raises(ValueError, match="30 images and 29 labels"):
        load("fashion_mnist", data_dir=tmp_path)
    (tmp_path / NAMES[0]).write_bytes(b"<html>not found</html>")
    with pytest.raises(ValueError, match=rf"{NAMES[0]} is not an IDX file"):
        load("fashion_mnist", data_dir=tmp_path)


def test_nothing_found_tells_what_where_and_how(tmp_path):
    with pytest.raises(ValueError) as caught:
        load("fashion_mnist", data_dir=tmp_path)
    message = str(caught.value)
    for text in (*NAMES, str(tmp_path), "download_and_prepare", "no such folder", "Received"):
        assert text in message
    with pytest.raises(ValueError, match=r"needs data_dir.*data_dir=None"):
        load("fashion_mnist")


def test_an_incomplete_set_names_what_is_missing(tmp_path):
    write_set(tmp_path, zipped=True)
    (tmp_path / f"{NAMES[3]}.gz").unlink()
    with pytest.raises(ValueError, match=f"missing {NAMES[3]}\n"):
        load("fashion_mnist", data_dir=tmp_path)


def prepared_by_tfds(tmp_path):
    version = tmp_path / "fashion_mnist" / "3.0.1"
    version.mkdir(parents=True)
    (version / "dataset_info.json").write_text("{}")
    return version


def test_prepared_set_without_the_package(tmp_path, monkeypatch):
    prepared_by_tfds(tmp_path)
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(ImportError, match=r"prepared by TensorFlow.*keras3-vit\[data\]"):
        load("fashion_mnist", data_dir=tmp_path)


@pytest.mark.parametrize("file_format", ["tfrecord", "array_record"])
def test_prepared_set_is_read_from_its_folder(tmp_path, file_format):
    for package in ("tensorflow", "tensorflow_datasets"):
        pytest.importorskip(package)
    images = np.random.default_rng(0).integers(0, 256, (4, 28, 28, 3), "uint8")
    images[..., 1:] = images[..., :1]
    examples = [{"image": image, "label": index} for index, image in enumerate(images)]
    parts = {"train": examples, "test": examples[:2]}
    write_prepared(tmp_path, "fashion_mnist", parts, classes=10, file_format=file_format)
    fashion = load("fashion_mnist", data_dir=tmp_path)
    np.testing.assert_array_equal(fashion.train_images, images[..., :1])
    assert fashion.test_labels.tolist() == [0, 1] and fashion.num_classes == 10


def test_an_archive_made_to_fill_the_memory_is_refused(tmp_path):
    sizes = struct.pack(">3I", 60_000, 2800, 2800)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes([0, 0, 8, 3]) + sizes + bytes(10**6)))
    with pytest.raises(ValueError, match=r"bomb\.gz cannot be read.*claim to hold 470400000000"):
        read_idx(tmp_path / "bomb.gz", 3)
